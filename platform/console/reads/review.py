"""The review page: the queue as one reviewer sees it, and one item with all that is needed to judge it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count
from django.http import QueryDict
from django.utils import timezone

from console.lists.turns import payloads_of
from console.reads.flagged import find_flag
from console.reads.transcript import Exchange, transcript
from evals.models import Benchmark, Score
from evals.services.drafts import open_drafts
from feedback.models import Flag, FlagState, ReviewDraft, ReviewReservation, ReviewResponse, TurnPayload, UserSignal
from feedback.services.review import num_needed
from feedback.services.review_queue import Narrowed, open_flags
from feedback.triage import RULES, Rule
from registry.errors import InvalidInput
from registry.services import parse_checkpoint_name
from rl_online.models import BatchSample, UpdateRun

LISTED = 60  # open flags in the pane at the left
RECENT = 12  # of this person's answers below them


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The part of the queue that the address asks for."""

    rule: str = ""
    checkpoint: str = ""  # <policy>@<version> or a policy's name

    @classmethod
    def of(cls, params: QueryDict) -> "Scope":
        texts = {name: params.get(name, "").replace("\x00", "")[:120] for name in ("rule", "checkpoint")}
        return cls(**texts)

    @property
    def narrowed(self) -> Narrowed:
        """What is no checkpoint's name is looked for as a policy's, and finds nothing."""
        try:
            policy, version = parse_checkpoint_name(self.checkpoint)
        except InvalidInput:
            return Narrowed(rule=self.rule, policy=self.checkpoint)
        return Narrowed(rule=self.rule, policy=policy, version=version if version < 2**31 else -1)

    @property
    def query(self) -> str:
        """As the end of an address, with its question mark; empty when all is asked for."""
        params = QueryDict(mutable=True)
        params.update({name: value for name, value in (("rule", self.rule), ("checkpoint", self.checkpoint)) if value})
        return f"?{params.urlencode()}" if params else ""

    @property
    def is_all(self) -> bool:
        return not (self.rule or self.checkpoint)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRow:
    """One line of the pane at the left. `chip` is the word that says how it stands for this person."""

    flag: Flag
    payload: TurnPayload | None
    chip: str  # open | yours | held | answered | skipped | settled
    note: str = ""  # who holds it, or how many answered

    @property
    def is_next(self) -> bool:
        """Whether j and k stop here."""
        return self.chip in ("open", "yours", "skipped")


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    rows: list[QueueRow]
    recent: list[QueueRow]  # this person's newest answers
    num_open: int  # in scope
    num_everywhere: int  # open, whatever the scope
    num_skipped: int  # turns this person skipped
    num_settled_today: int
    num_mine_today: int
    rules: list[tuple[str, int]]  # with open flags, and how many
    checkpoints: list[str]  # likewise
    drafts: list[Benchmark]  # that problems are collected for, with `num_problems`

    @property
    def total(self) -> int:
        """What there was to do today, for the progress bar."""
        return self.num_settled_today + self.num_everywhere


def queue(scope: Scope, reviewer: str, *, now: datetime | None = None) -> Queue:
    now = now or timezone.now()
    everything = open_flags(Narrowed(), now=now)
    flags = open_flags(scope.narrowed, now=now)
    counts = everything.order_by().values_list("rule").annotate(n=Count("id"))
    versions = everything.order_by().filter(turn__version__isnull=False).values_list("turn__policy", "turn__version")
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    settled = Flag.objects.filter(state=FlagState.RESOLVED, resolved_at__gte=midnight).count()
    mine = ReviewResponse.objects.filter(reviewer=reviewer, withdrawn_at__isnull=True)
    by_rule = sorted(counts, key=lambda pair: (-(RULES[pair[0]].severity if pair[0] in RULES else -1), pair[0]))
    return Queue(
        rows=_rows(list(flags.select_related("turn__session")[:LISTED]), reviewer, now),
        recent=_recent(mine),
        num_open=flags.count() if not scope.is_all else sum(n for _, n in by_rule),
        num_everywhere=sum(n for _, n in by_rule),
        num_skipped=ReviewDraft.objects.filter(
            reviewer=reviewer, skipped_at__isnull=False, turn__flags__state=FlagState.OPEN
        )
        .values("turn")
        .distinct()
        .count(),
        num_settled_today=settled,
        num_mine_today=mine.filter(at__gte=midnight).values("submission").distinct().count(),
        rules=by_rule,
        checkpoints=[f"{policy}@{version}" for policy, version in versions.distinct().order_by("-turn__version")[:30]],
        drafts=open_drafts(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One flagged turn on the review page."""

    flag: Flag
    rule: Rule | None  # None: the rule was retired
    exchanges: list[Exchange]  # the last is the flagged turn
    signals: list[UserSignal]
    scores: list[Score]
    siblings: list[Flag]  # other flags of the turn
    mine: ReviewResponse | None  # this person's standing answer
    answers: list[ReviewResponse]  # standing ones that this person may see
    num_answers: int  # standing ones, seen or not
    num_needed: int
    others: list[str]  # who else is looking at it right now
    form: Mapping[str, str]  # what the form starts with: this person's draft
    learnt: list[tuple[BatchSample, UpdateRun | None]]  # batches the turn was sealed into, with their newest update
    instructions: str

    @property
    def is_open(self) -> bool:
        return self.flag.state == FlagState.OPEN

    @property
    def is_answerable(self) -> bool:
        """Late answers are kept, too."""
        return self.mine is None

    @property
    def num_hidden(self) -> int:
        """Answers of others that would sway this person's."""
        return self.num_answers - len(self.answers)

    @property
    def edits(self) -> list[UserSignal]:
        return [one for one in self.signals if one.kind in ("edit", "correction") and one.text is not None]

    @property
    def open_siblings(self) -> list[Flag]:
        return [flag for flag in self.siblings if flag.state == FlagState.OPEN]


def item(flag_id: int, reviewer: str, instructions: str, *, now: datetime | None = None) -> Item:
    """Raises NotFound. While a flag needs several answers, others' are not shown to who has not given theirs."""
    now = now or timezone.now()
    flag = find_flag(flag_id)
    turn = flag.turn
    standing = list(ReviewResponse.objects.filter(flag=flag, withdrawn_at__isnull=True).order_by("at", "id"))
    mine = next((one for one in standing if one.reviewer == reviewer), None)
    is_blind = flag.state == FlagState.OPEN and mine is None
    others = ReviewReservation.objects.filter(turn=turn, lease_until__gt=now).exclude(reviewer=reviewer)
    draft = ReviewDraft.objects.filter(turn=turn, reviewer=reviewer).first()
    return Item(
        flag=flag,
        rule=RULES.get(flag.rule),
        exchanges=transcript(turn),
        signals=list(UserSignal.objects.filter(turn=turn).order_by("at", "id")[:200]),
        scores=list(Score.objects.filter(turn_ref=turn.turn_id).order_by("scorer", "scorer_version")),
        siblings=list(Flag.objects.filter(turn=turn).exclude(pk=flag.pk).order_by("created_at")),
        mine=mine,
        answers=[] if is_blind else standing,
        num_answers=len(standing),
        num_needed=num_needed(flag.project_id),
        others=list(others.order_by("slot").values_list("reviewer", flat=True)),
        form=draft.body if draft else {},
        learnt=_learnt(turn.turn_id),
        instructions=instructions,
    )


def place(rows: Sequence[QueueRow], flag_id: int) -> tuple[QueueRow | None, QueueRow | None]:
    """(the row before, the row after) in the pane that j and k go to; what others hold is passed over."""
    at = next((i for i, row in enumerate(rows) if row.flag.pk == flag_id), None)
    if at is None:
        return None, next((row for row in rows if row.is_next), None)
    before = next((row for row in reversed(rows[:at]) if row.is_next), None)
    return before, next((row for row in rows[at + 1 :] if row.is_next), None)


def _rows(flags: list[Flag], reviewer: str, now: datetime) -> list[QueueRow]:
    payloads = payloads_of([flag.turn for flag in flags])
    turns = [flag.turn_id for flag in flags]
    held: dict[int, list[str]] = {}
    live = ReviewReservation.objects.filter(turn__in=turns, lease_until__gt=now).order_by("slot")
    for turn, name in live.values_list("turn_id", "reviewer"):
        held.setdefault(turn, []).append(name)
    answered: dict[int, list[str]] = {}
    for flag_id, name in ReviewResponse.objects.filter(flag__in=flags, withdrawn_at__isnull=True).values_list(
        "flag_id", "reviewer"
    ):
        answered.setdefault(flag_id, []).append(name)
    skipped = set(
        ReviewDraft.objects.filter(turn__in=turns, reviewer=reviewer, skipped_at__isnull=False).values_list(
            "turn_id", flat=True
        )
    )
    needed = num_needed(flags[0].project_id) if flags else 1
    return [
        QueueRow(flag=flag, payload=payloads.get(flag.turn.turn_id), chip=chip, note=note)
        for flag in flags
        for chip, note in [_chip(flag, reviewer, held, answered, skipped, needed)]
    ]


def _chip(
    flag: Flag,
    reviewer: str,
    held: Mapping[int, list[str]],
    answered: Mapping[int, list[str]],
    skipped: set[int],
    needed: int,
) -> tuple[str, str]:
    people, names = held.get(flag.turn_id, []), answered.get(flag.pk, [])
    count = f"{len(names)} of {needed}" if needed > 1 else ""
    if reviewer in names:
        return "answered", count
    if reviewer in people:
        return "yours", count
    if people and len(people) + len(names) >= needed:
        return "held", ", ".join(people)
    return ("skipped" if flag.turn_id in skipped else "open"), count


def _recent(mine: Any) -> list[QueueRow]:
    newest = list(mine.select_related("flag__turn__session").order_by("-at", "-id")[:RECENT])
    payloads = payloads_of([one.flag.turn for one in newest])
    return [
        QueueRow(
            flag=one.flag,
            payload=payloads.get(one.flag.turn.turn_id),
            chip="settled" if one.flag.state == FlagState.RESOLVED else "answered",
            note=one.resolution + (" (late)" if one.is_late else ""),
        )
        for one in newest
    ]


def _learnt(turn_ref: str) -> list[tuple[BatchSample, UpdateRun | None]]:
    samples = list(BatchSample.objects.filter(turn_ref=turn_ref).select_related("batch__policy").order_by("id"))
    runs = UpdateRun.objects.filter(batch__in=[sample.batch_id for sample in samples])
    newest = {run.batch_id: run for run in runs.select_related("policy", "checkpoint__policy").order_by("created_at")}
    return [(sample, newest.get(sample.batch_id)) for sample in samples]
