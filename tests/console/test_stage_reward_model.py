"""What the pages of a reward model and of PPO show of their kind."""

from django.urls import reverse

from console.charts.judging import over_optimisation, reliability
from registry.tenancy import tenant
from rl_online.models import RewardModel, UpdateMetric, UpdateRun
from rl_online.training.overoptimisation import Point


def share(value, n=20):
    return {"share": value, "low": 0.5, "high": 0.99, "n": n}


REPORT = {
    "accuracy": share(0.85),
    "ece": 0.125,
    "bins": [
        {"low": 0.5, "high": 0.6, "confidence": 0.55, "accuracy": share(0.5, 8)},
        {"low": 0.6, "high": 0.7, "confidence": None, "accuracy": share(None, 0)},
    ],
    "length_slope": 0.0625,
    "length_slope_low": -0.25,
    "length_slope_high": 0.375,
    "shorter_wins": share(0.75, 4),
    "longer_wins": share(None, 0),
    "num_trained": 76,
    "num_heldout": 20,
    "part": "proxy",
}


def page(as_owner, project, loop, kind, *, report=None, steps=(), **inputs):
    with tenant(project.id):
        run = UpdateRun.objects.get(policy=loop.policy, version=2)
        config = run.config | {"gold_margin": 0.25, "ppo_kl": 0.05}
        UpdateRun.objects.filter(pk=run.pk).update(kind=kind, inputs=inputs, config=config)
        UpdateMetric.objects.filter(run=run).delete()
        for step, values in enumerate(steps, 1):
            UpdateMetric.objects.create(run=run, step=step, values=values)
        if report:
            RewardModel.objects.create(
                policy=loop.policy, run=run, part="proxy", tree_digest="d" * 64, folder="f", num_bytes=1, report=report
            )
    response = as_owner.get(reverse("console:update", kwargs={"project": "editor", "update": run.pk}))
    assert response.status_code == 200
    return response.content.decode()


def test_a_reward_model_shows_how_far_it_can_be_trusted(as_owner, project, loop):
    html = page(as_owner, project, loop, "reward_model", report=REPORT)
    assert "76 pairs learnt, 20 of other people measured, part proxy" in html
    assert "85" in html and "0.125" in html and "(-0.25 to 0.375)" in html.replace("−", "-")
    assert 'data-figure="reliability"' in html


def test_a_reward_model_that_is_being_trained_says_so(as_owner, project, loop):
    assert "measured after the last step" in page(as_owner, project, loop, "reward_model")


def test_ppo_shows_where_gold_fell_and_what_is_kept(as_owner, project, loop):
    start = {"start_proxy": 0.0, "start_gold": 0.0, "start_kl_answer": 0.0}
    steps = [
        start | {"proxy": 1.0, "gold": 0.75, "kl_answer": 4.0, "loss": 1.0},
        {"proxy": 2.0, "gold": 0.375, "kl_answer": 9.0, "loss": 1.0},
    ]
    html = page(as_owner, project, loop, "ppo", steps=steps)
    assert "iteration 1; stopped at iteration 2" in html
    assert 'data-figure="over-optimisation"' in html and "0.375" in html


def test_ppo_before_its_first_iteration_says_so(as_owner, project, loop):
    assert "after the first iteration" in page(as_owner, project, loop, "ppo")


def test_a_curve_marks_what_is_kept_and_where_it_stopped():
    points = [Point(iteration=n, proxy=n, gold=gold, kl=n**2) for n, gold in enumerate((0.0, 0.5, 0.1))]
    figure = over_optimisation(points, is_stopped=True)
    assert [trace["name"] for trace in figure["data"]] == ["reward model", "gold"]
    assert [(one["text"], one["x"]) for one in figure["layout"]["annotations"]] == [("kept", 1.0), ("stopped", 2.0)]
    assert over_optimisation([], is_stopped=False) is None


def test_an_empty_bin_is_left_out_of_the_reliability_chart():
    figure = reliability(REPORT["bins"])
    assert (figure["data"][1]["x"], figure["data"][1]["y"]) == ([55.00000000000001], [50.0])
    assert reliability([REPORT["bins"][1]]) is None
