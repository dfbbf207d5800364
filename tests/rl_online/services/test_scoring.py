"""Live turns that name a problem are scored by what the recipes in force ask for, and paid by it."""

import pytest

from evals.models import Score
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from jobs.services import claim_next, run
from registry.tenancy import tenant
from rl_online.rewards.batch import read_batch
from rl_online.services import reward_specs, scoring, sealing

pytestmark = pytest.mark.django_db
CASES = [{"args": [n], "expected": n + 2} for n in (1, 5, 9, 12)]


@pytest.fixture
def adding(project):
    problem = ProblemSpec(id="2", prompt="def f(a):\n    return", tests={"function": "f", "cases": CASES})
    return create_benchmark(project.id, "adding", [problem], is_held_out=False)


@pytest.fixture
def code_spec(project, policy):
    """`editor` learns by the recipe for code."""
    with tenant(project.id):
        spec = reward_specs.latest_reward_spec("code")
        reward_specs.activate_reward_spec(policy, spec, actor="test")
    return spec


def test_the_usual_recipe_asks_for_the_usual_scorers(project, policy):
    with tenant(project.id):
        assert scoring.wanted_scorers() == ["unit_tests", "executability"]


def test_the_recipe_for_code_stands_ready_and_is_made_once(project, policy):
    with tenant(project.id):
        first = reward_specs.latest_reward_spec("code")
        assert (first.name, first.version) == ("code", 1)
        assert reward_specs.latest_reward_spec("code").pk == first.pk


def test_turns_are_paid_by_the_recipe_and_its_parts_are_kept(project, code_spec, adding, judged, policy, tmp_path):
    completions = {"right": " a + 2", "half": " a + 2 if a < 9 else 0", "constant": " 3", "broken": " a +"}
    for name, completion in completions.items():
        judged("accept", id=name, prompt="def f(a):\n    return", completion=completion, problem="adding@1/2")
    while job := claim_next(["default"], "test"):
        run(job)
    with tenant(project.id):
        prepared = sealing.prepare(sealing.look(policy, kind="rl"), project.id, root=tmp_path)
        assert Score.objects.filter(turn_ref="right").count() == 6
    rows = {sample.row["turn"]: sample for sample in read_batch(prepared.sealed.folder).samples}
    # quality 1, no reference: (.4 + .3 + .15) / .85; half the tests, so efficiency pays 0: .4 + .15 + .15
    rewards = {name: sample.reward for name, sample in rows.items()}
    assert rewards == pytest.approx({"right": 1.0, "half": 0.7, "constant": 0.0, "broken": -0.25})
    kept = rows["half"].row["reward_breakdown"]
    assert kept["efficiency"]["reason"] == "test_share is 0.5, at least 1 is asked"
    assert kept["test_share"]["part"] == pytest.approx(0.15)
    assert rows["broken"].row["reward_breakdown"]["gate"]["scorer"] == "executability"
