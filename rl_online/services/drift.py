"""What the answers of the serving checkpoint do, beside those of the one before it and of the first. Inside a tenant.

Read from the hourly counts, of real users' turns. What counts as a drift is in `rl_online.alarms`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from evals.statistics.proportions import wilson
from feedback import hourly
from feedback.hourly import Counts, Span
from registry.models import Checkpoint, Deployment
from rl_online import alarms
from rl_online.alarms import Conduct, Finding, Rule
from rl_online.services.holdings import first_checkpoint

REACH = timedelta(days=90)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """One number of what answers do, and what its rule says."""

    now: Conduct
    before: Sequence[Conduct]  # of the checkpoint that served before, and of the first where it is another one
    finding: Finding

    @property
    def rule(self) -> Rule:
        return self.finding.rule


def drifts(deployment: Deployment, *, now: datetime) -> list[Drift]:
    """One for each rule, in their order. Shares are of turns, whose users are not told apart."""
    name, serving = deployment.policy.name, deployment.checkpoint
    earlier = {one.pk: one for one in (deployment.previous, first_checkpoint(deployment.policy_id)) if one is not None}
    compared = [one for one in earlier.values() if one.pk != serving.pk]
    span, versions = Span.in_hours(now - REACH, now), [serving.version, *(one.version for one in compared)]
    counts = hourly.counts_by_version(span, policy=name, versions=versions)
    abandoned = hourly.num_signals_by_version(span, "abandon", policy=name, versions=versions)

    def seen(rule: Rule, checkpoint: Checkpoint) -> Conduct:
        known = counts.get(checkpoint.version, Counts())
        return _conduct(rule, str(checkpoint), known, abandoned.get(checkpoint.version, 0))

    found = []
    for rule in (Rule.BAD_CALLS, Rule.QUESTIONS, Rule.NO_EDIT, Rule.ABANDONED, Rule.LENGTH):
        new, old = seen(rule, serving), [seen(rule, one) for one in compared]
        finding = (
            alarms.length(name, now=new, before=old)
            if rule is Rule.LENGTH
            else alarms.drift(rule, name, now=new, before=old)
        )
        found.append(Drift(now=new, before=old, finding=finding))
    return found


def _conduct(rule: Rule, checkpoint: str, counts: Counts, abandoned: int) -> Conduct:
    if rule is Rule.LENGTH:
        turns = counts.with_usage
        return Conduct(checkpoint=checkpoint, turns=turns, value=counts.output_tokens / turns if turns else None)
    number, turns = {
        Rule.BAD_CALLS: (counts.bad_calls, counts.with_conduct),
        Rule.QUESTIONS: (counts.asked_back, counts.with_conduct),
        Rule.NO_EDIT: (counts.without_edit, counts.with_conduct),
        Rule.ABANDONED: (min(abandoned, counts.shown), counts.shown),
    }[rule]
    share = wilson(number, turns)
    return Conduct(checkpoint=checkpoint, turns=turns, value=share.share, low=share.low, high=share.high)
