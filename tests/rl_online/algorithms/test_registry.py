import ast
import pkgutil
from pathlib import Path

from rl_online import algorithms
from rl_online.algorithms import registry
from rl_online.algorithms.registry import ALGORITHMS, as_markdown
from rl_online.rewards.update_config import UpdateConfig

DOCS = Path(registry.__file__).parents[2] / "docs" / "algorithms.md"
PACKAGE = Path(registry.__file__).parents[1]
# What no setting and no stage reaches, and what stands in its place.
ONLY_COMPARED = {
    "GKD / JSD": "the trainer sums its `gkd.divergences` of each token itself (distill_beta)",
    "top-k KL": "of what an engine named, `gkd.kl_top_and_tail` learns the rest too (distill_estimator top_k)",
    "hint self-distillation": "the same divergences, with the hinted prompt as the teacher's (stage distill)",
    "hint advantage": "distillation_advantage on top of reward minus baseline (distill_estimator sampled)",
    "bare k3: KL(base to policy)": "its gradient is another KL's; GRPO as published is compared with by it",
    "REINFORCE++": "its baseline variant is the setting (advantage); token rewards have GAE (stage ppo)",
}
NO_ALGORITHMS = {"registry", "reduction", "groups", "diagnostics", "merge_error"}  # what the others are made of


def test_the_documented_table_is_the_registry():
    assert as_markdown() in DOCS.read_text()


def test_every_module_of_algorithms_is_in_the_table():
    modules = {module.name for module in pkgutil.iter_modules(algorithms.__path__)}
    assert {one.function.__module__.rpartition(".")[2] for one in ALGORITHMS} == modules - NO_ALGORITHMS


def test_names_and_functions_are_listed_once_and_say_where_they_come_from():
    assert len({one.name for one in ALGORITHMS}) == len({one.function for one in ALGORITHMS}) == len(ALGORITHMS)
    assert all(one.data and one.formula and one.pitfall and one.source for one in ALGORITHMS)


def test_every_loss_takes_its_count_from_the_caller():
    losses = [one for one in ALGORITHMS if "denominator" in one.function.__annotations__]
    assert len(losses) > 20 and all("denominator" not in one.defaults for one in losses)


def test_the_defaults_of_an_update_are_those_of_the_functions():
    config = UpdateConfig()
    defaults = {one.name: one.defaults for one in ALGORITHMS}
    assert defaults["DPPO mask"] == {"high": config.mask_high, "low": config.mask_low}
    assert defaults["KTO"] == {
        "beta": config.kto_beta,
        "desirable": config.kto_desirable,
        "undesirable": config.kto_undesirable,
    }
    assert defaults["DAPO"] == {"clip_low": config.clip_low, "clip_high": config.clip_high}
    assert defaults["GSPO"] == {"clip_low": config.gspo_clip_low, "clip_high": config.gspo_clip_high}
    assert defaults["CISPO"]["ratio_high"] == config.ratio_cap
    assert defaults["TIS (and decoupled PPO)"]["cap"] == config.tis_cap
    assert defaults["IcePop"] == {"low": config.icepop_low, "high": config.icepop_high}
    assert defaults["OPSM"] == {"threshold": config.opsm_delta}
    assert defaults["DPO (cDPO)"] == {"beta": config.dpo_beta, "label_smoothing": config.label_smoothing}


def used_functions() -> set[tuple[str, str]]:
    """(module, name) of every function of algorithms that other code of rl_online names."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "algorithms":
            continue
        tree = ast.parse(path.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules = {one.name for node in imports if node.module == algorithms.__name__ for one in node.names}
        for node in imports:
            package, _, module = (node.module or "").rpartition(".")
            if package == algorithms.__name__:
                found |= {(module, one.name) for one in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                found.add((node.value.id, node.attr))
    return found


def test_every_algorithm_is_reached_by_a_setting_or_a_stage_but_those_that_are_only_compared_with():
    used = used_functions()
    unused = {
        one.name
        for one in ALGORITHMS
        if (one.function.__module__.rpartition(".")[2], one.function.__name__) not in used
    }
    assert unused == ONLY_COMPARED.keys()
