import pkgutil
from pathlib import Path

from rl_online import algorithms
from rl_online.algorithms import registry
from rl_online.algorithms.registry import ALGORITHMS, as_markdown
from rl_online.rewards.update_config import UpdateConfig

DOCS = Path(registry.__file__).parents[2] / "docs" / "algorithms.md"
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
