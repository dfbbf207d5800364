"""How flags stand by the rule that raised them: what waits, what was settled, how often there was something to find."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Q

from console.query import written
from console.timerange import TimeRange
from evals.statistics.proportions import Share, wilson
from feedback.models import Flag, FlagResolution, FlagState
from feedback.triage import RULES, SAMPLE, Rule
from registry.errors import NotFound

MANY_OPEN = 1000
FOUND = (FlagResolution.EXCLUDED, FlagResolution.OVERRIDDEN)  # what a reviewer decides who found something


def num_open_flags() -> int:
    """Counted up to MANY_OPEN, for every page's frame."""
    return Flag.objects.filter(state=FlagState.OPEN).values("pk")[:MANY_OPEN].count()


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleStanding:
    """One rule's flags of a time range."""

    name: str
    rule: Rule | None  # None: no rule of that name raises flags any more
    num_open: int
    num_settled: int
    num_found: int  # settled as excluded or overridden
    precision: Share | None  # found / settled, Wilson; None: nothing settled yet
    newest_at: datetime

    @property
    def query(self) -> str:
        """Of the list of its flags."""
        return written("rule", self.name)

    @property
    def is_sample(self) -> bool:
        """Its share is what triage misses, not how precise it is."""
        return self.name == SAMPLE


def by_rule(time_range: TimeRange) -> list[RuleStanding]:
    """Rules with flags raised in the range, the most severe first."""
    rows = (
        Flag.objects.filter(time_range.within("created_at"))
        .values("rule")
        .annotate(
            num_open=Count("id", filter=Q(state=FlagState.OPEN)),
            num_settled=Count("id", filter=Q(state=FlagState.RESOLVED)),
            num_found=Count("id", filter=Q(state=FlagState.RESOLVED, resolution__in=FOUND)),
            newest_at=Max("created_at"),
        )
    )
    found = [
        RuleStanding(
            name=row["rule"],
            rule=RULES.get(row["rule"]),
            num_open=row["num_open"],
            num_settled=row["num_settled"],
            num_found=row["num_found"],
            precision=wilson(row["num_found"], row["num_settled"]) if row["num_settled"] else None,
            newest_at=row["newest_at"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: (one.rule is None, -(one.rule.severity if one.rule else 0), one.name))


def find_flag(flag_id: int) -> Flag:
    """With its turn, session and label. Raises NotFound."""
    flag = Flag.objects.select_related("turn__session", "turn__label").filter(pk=flag_id).first()
    if flag is None:
        raise NotFound(f"no flag {flag_id}")
    return flag


def has_any() -> bool:
    return Flag.objects.exists()
