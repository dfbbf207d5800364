"""What the rules of alarms are told."""

from datetime import timedelta

import pytest
from django.utils import timezone

from feedback.services import rollups
from feedback.services.record import record_items
from feedback.wire import SignalItem, TurnItem, Usage
from jobs.services import record_beat
from registry.models import Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.alarms import Rule, Verdict
from rl_online.services.observing import findings
from tests.console import factories


@pytest.mark.parametrize(("up_for", "verdict"), [(5, Verdict.UNKNOWN), (600, Verdict.RAISED)])
def test_an_engine_has_its_minutes_to_speak_after_a_start(project, up_for, verdict):
    now = timezone.now()
    with tenant(project.id):
        factories.make_policy()
        Deployment.objects.update(changed_at=now - timedelta(days=1))
        record_beat("beat@host", "beat", pid=1, started_at=now - timedelta(seconds=up_for), version="1")
        found = {finding.rule: finding.verdict for finding in findings(project.id, now=now)}
    assert found[Rule.ENGINE_AWAY] is verdict


def answers(version, *, number=120, at, completion="```py\npass\n```", tool_calls=(), abandoned=0, output=20):
    """Turns of as many sessions, and the signals of users that walked away."""
    turns = [
        TurnItem(
            id=f"v{version} {place}", session=f"v{version} {place}", at=at, checkpoint=f"editor@{version}",
            messages=[{"role": "user", "content": "fix it"}], completion=completion, tool_calls=list(tool_calls),
            usage=Usage(input=5, output=output),
        )
        for place in range(number)
    ]  # fmt: skip
    left = [SignalItem(id=f"left {one.id}", kind="abandon", turn=one.id, at=at) for one in turns[:abandoned]]
    return [*turns, *left]


DRIFTS = {
    Rule.BAD_CALLS: {"tool_calls": [{"name": "edit", "input": "{"}]},
    Rule.QUESTIONS: {"completion": "Which one?"},
    Rule.NO_EDIT: {"completion": "Done."},
    Rule.ABANDONED: {"abandoned": 40},
    Rule.LENGTH: {"output": 30},
}


@pytest.mark.django_db
@pytest.mark.parametrize("rule", DRIFTS)
def test_a_checkpoint_whose_answers_do_something_else_is_found_by_its_rule(project, rule):
    now = timezone.now()
    with tenant(project.id):
        policy = factories.make_policy()
        first = Checkpoint.objects.get()
        second = factories.make_checkpoint(policy, 2, first, state="serving")
        Deployment.objects.update(checkpoint=second, previous=first)
    items = [*answers(1, at=now), *answers(2, at=now, **DRIFTS[rule])]
    record_items(project.id, items, received_at=now)
    with tenant(project.id):
        rollups.count_all_dirty(project.id)
        found = {finding.rule: finding for finding in findings(project.id, now=now)}
    raised = {one for one in DRIFTS if found[one].verdict is Verdict.RAISED}
    assert raised == ({Rule.QUESTIONS, Rule.NO_EDIT} if rule is Rule.QUESTIONS else {rule})  # a question is no edit
    assert found[rule].evidence["checkpoint"] == "editor@2"
