"""Anchor sets, and whether a judge still says about them what it said."""

import pytest

from evals.judge_evidence import values_of
from evals.judge_record import find_judge, records
from evals.judge_trust import trusts
from evals.models import AnchorRun, JudgeCall
from evals.services import completers
from evals.services.anchors import ANCHOR_JOB, create_anchor_set, request_anchor_run
from evals.services.judges import create_judge
from jobs.models import Job
from jobs.services import claim, run
from registry.errors import Conflict, InvalidInput
from registry.tenancy import tenant
from tests.evals.services.judge_server import JudgeServer
from tests.evals.test_judge_record import EARLIER, LATER

pytestmark = pytest.mark.django_db
ITEMS = [{"key": f"k{n}", "task": f"task {n}", "answer": "good" if n % 2 else "bad"} for n in range(24)]


@pytest.fixture
def server(settings, monkeypatch):
    """Marks good answers 5 and bad ones 1, or what `says` maps them to."""
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.setattr(completers, "FIRST_WAIT_S", 0.01)
    made = JudgeServer(lambda model, data, n: (200, f'{{"score": {made.says[data["answer"]]}}}'))
    made.says = {"good": 5, "bad": 1}
    yield made
    made.close()


@pytest.fixture
def judge(project, server):
    with tenant(project.id):
        return create_judge(name="j", model="m", endpoint=server.url, actor="ada")


@pytest.fixture
def anchors(project):
    with tenant(project.id):
        return create_anchor_set("first", ITEMS, actor="ada")


def shown(project, judge, anchors) -> AnchorRun:
    with tenant(project.id):
        asked = request_anchor_run(judge, anchors, actor="ada")
    while job := Job.objects.filter(kind=ANCHOR_JOB, state="queued").first():
        run(claim(job.id, "test"))
    with tenant(project.id):
        return AnchorRun.objects.get(pk=asked.pk)


def test_every_item_is_asked_and_kept_batch_by_batch(project, judge, anchors, server):
    done = shown(project, judge, anchors)
    assert done.state == "done" and values_of(done)["k1"] == 1.0 and len(done.results) == 24
    assert server.asked == {"m": 24}
    with tenant(project.id):
        assert JudgeCall.objects.filter(anchor_run=done).count() == 24


def test_the_second_run_asks_again_and_a_judge_that_says_the_same_has_not_moved(project, judge, anchors, server):
    shown(project, judge, anchors), shown(project, judge, anchors)
    assert server.asked == {"m": 48}
    with tenant(project.id):
        found = records([find_judge(judge.pk)], since=EARLIER, until=LATER)[0]
        assert found.drift.shift.value == 0 and found.drift.agreement.agreement.share == 1
        assert not found.drift.is_unstable


def test_a_judge_that_has_become_lenient_shows_the_shift_and_is_paused(project, judge, anchors, server):
    shown(project, judge, anchors)
    server.says = {"good": 5, "bad": 5}
    shown(project, judge, anchors)
    with tenant(project.id):
        found = records([find_judge(judge.pk)], since=EARLIER, until=LATER)[0]
        assert found.drift.shift.value == 0.5 and found.drift.shift.low > 0
        assert found.drift.agreement.agreement.successes == 12
        assert trusts([judge])[judge.pk].is_paused


def test_one_run_at_a_time_and_only_on_what_it_judges(project, judge, anchors):
    with tenant(project.id):
        request_anchor_run(judge, anchors, actor="ada")
        with pytest.raises(Conflict, match="wait for it"):
            request_anchor_run(judge, anchors, actor="ada")
        pairs = create_anchor_set("pairs", [{"key": "1", "task": "x", "left": "a", "right": "b"}], actor="ada")
        with pytest.raises(InvalidInput, match="the other kind"):
            request_anchor_run(judge, pairs, actor="ada")


def test_items_that_could_not_be_judged_have_no_value_and_are_outside_the_shift(project, judge, anchors, server):
    shown(project, judge, anchors)
    server.says = {"good": 5, "bad": '"none"'}
    done = shown(project, judge, anchors)
    assert done.results["k0"] == {"state": "invalid", "value": None}
    with tenant(project.id):
        assert records([find_judge(judge.pk)], since=EARLIER, until=LATER)[0].drift.shift.n == 12


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([], "1 to 200"),
        ("x", "1 to 200"),
        ([{"key": "1"}], "neither key, task, answer"),
        ([{"key": "1", "task": "x", "answer": 3}], "answer is no text"),
        ([{"key": "1", "task": "x", "answer": "y", "extra": 1}], "extra is not known"),
        ([{"key": "1", "task": "x", "answer": "y", "gold": 2}], "a number from 0 to 1"),
        ([{"key": "1", "task": "x", "answer": "y", "gold": float("nan")}], "a number from 0 to 1"),
        ([{"key": "1", "task": "x", "answer": "y"}] * 2, "comes twice"),
        (
            [{"key": "1", "task": "x", "answer": "y"}, {"key": "2", "task": "x", "left": "a", "right": "b"}],
            "make two sets",
        ),
    ],
)
def test_a_set_that_cannot_be_used_is_refused_with_the_item(project, items, why):
    with tenant(project.id), pytest.raises(InvalidInput, match=why):
        create_anchor_set("a", items, actor="ada")


def test_other_items_make_another_version_and_the_same_none(project, anchors):
    with tenant(project.id):
        assert str(create_anchor_set("first", ITEMS[:5], actor="ada")) == "first@2"
        with pytest.raises(Conflict, match="the same items"):
            create_anchor_set("first", ITEMS[:5], actor="ada")


def test_labels_of_people_on_anchors_say_how_far_to_believe_a_judge(project, judge, server):
    labelled = [{**item, "gold": float(item["answer"] == "good")} for item in ITEMS]
    with tenant(project.id):
        anchors = create_anchor_set("gold", labelled, actor="ada")
    shown(project, judge, anchors)
    with tenant(project.id):
        found = records([find_judge(judge.pk)], since=EARLIER, until=LATER)[0]
        assert (found.gold.agreement.kappa, found.gold.n, found.gold.calibration.ece) == (1.0, 24, 0)
        assert found.gold.corrected.estimate.value is None, "anchors are no sample of what it judges"
        assert trusts([judge])[judge.pk].has_vote


def test_a_judge_that_disagrees_with_people_is_paused(project, judge, server):
    labelled = [{**item, "gold": float(n % 4 < 2)} for n, item in enumerate(ITEMS)]
    with tenant(project.id):
        anchors = create_anchor_set("gold", labelled, actor="ada")
    shown(project, judge, anchors)
    with tenant(project.id):
        assert trusts([judge])[judge.pk].is_paused
