"""What is asked every second or two costs little while nothing moves, and misses nothing when something does."""

import pytest

from jobs.models import Job
from registry.models import Deployment
from registry.tenancy import tenant
from rl_online.models import LearningPlan
from rl_online.services import holdings, promotion, sealing, updates


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with every whole look at what waits."""
    made: list[str] = []
    real = sealing.look_at_turns

    def counted(*args, **kwargs):
        made.append("look")
        return real(*args, **kwargs)

    monkeypatch.setattr(sealing, "look_at_turns", counted)
    return made


def consider(project, policy) -> bool:
    with tenant(project.id):
        return updates.consider(policy).is_due


def test_too_few_turns_are_counted_and_not_read(project, policy, judged, looks):
    for _ in range(3):
        judged("accept")
    looks.clear()
    assert not consider(project, policy) and looks == []


def test_the_turn_that_makes_them_enough_is_noticed_at_once(project, policy, judged, looks):
    for _ in range(4):
        judged("accept")
    assert consider(project, policy)
    assert Job.objects.filter(kind=updates.SEAL_JOB, state="queued").exists()


def test_enough_turns_that_cannot_be_used_are_read_once_and_again_when_something_changes(
    project, policy, judged, looks
):
    for _ in range(5):
        judged("accept", finish_reason="error")
    looks.clear()
    assert [consider(project, policy) for _ in range(3)] == [False] * 3
    assert len(looks) <= 1
    judged("accept", finish_reason="error")
    looks.clear()
    consider(project, policy)
    with tenant(project.id):
        LearningPlan.objects.get(policy=policy).save()  # its time of change moves
    consider(project, policy)
    assert len(looks) >= 1


def test_the_end_of_an_update_is_noticed_though_no_turn_came(project, policy, judged, sealed, looks):
    for _ in range(4):
        judged("accept")
    run = sealed()
    for _ in range(4):
        judged("reject")
    assert not consider(project, policy)
    with tenant(project.id):
        updates.cancel_update(run, actor="test")
    assert consider(project, policy)


def test_turns_of_versions_off_the_line_are_not_counted(project, policy, judged, looks):
    for _ in range(6):
        judged("accept", version=None, model="other")
    looks.clear()
    assert not consider(project, policy) and looks == []


def test_a_head_that_nothing_moved_is_not_made_again(project, policy, django_assert_num_queries):
    with tenant(project.id):
        first = holdings.look(policy.id, None)
        with django_assert_num_queries(1):
            assert holdings.look(policy.id, first) is first


def test_a_promotion_a_rollback_and_an_engines_word_are_seen(project, policy, judged, promoted):
    for _ in range(4):
        judged("accept")
    with tenant(project.id):
        first = holdings.look(policy.id, None)
    second = promoted()
    with tenant(project.id):
        after = holdings.look(policy.id, first)
        assert after.head.etag != first.head.etag
        row = {"version": second.version, "tree_digest": second.tree_digest}
        holdings.record_held("engine", policy.id, [row], [])
        held = holdings.look(policy.id, after)
        assert held.head.etag != after.head.etag, "the predecessor is no longer wanted"
        promotion.roll_back(policy, actor="test", reason="worse")
        assert holdings.look(policy.id, held).head.etag != held.head.etag
        assert Deployment.objects.get().checkpoint.version == 1
