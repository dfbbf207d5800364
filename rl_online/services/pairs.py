"""Pairs of answers to one prompt, of which a person liked one better: what users, reviewers and raters said.

| source | chosen over rejected |
|---|---|
| choices | the answer of a `preference` signal over the one it names |
| edits | what the user made of an accepted answer (`edit`), or says it should be (`correction`), over the answer |
| retries | the next accepted answer of the session to the same prompt, over the one a `retry` asked again for |
| reviews | an answer reviewers call good over one they call bad, of the same group |
| people | votes of people on problems of benchmarks that are not held out and that no gate measures by |

A preference holds whoever wrote the answers, so those of old checkpoints count too. Not here: the samples made of them
(`pair_samples`). Inside a tenant; reads only.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet, Value
from django.db.models.functions import Concat

from evals.models import Comparison
from evals.refs import benchmark_ref
from feedback.labels import Heard, current
from feedback.models import AgentSession, Outcome, ReviewResponse, Turn, TurnPayload, UserSignal
from rl_online.collecting import Line, of_text, payloads_of, text_fault
from rl_online.models import BatchSample, LearningPlan
from rl_online.services.plans import suites_of
from rl_online.services.tokens import Answer

SOURCES = ("choices", "edits", "retries", "reviews", "people")
LOOKED_AT = 4  # times as many leads as pairs are wanted
OVER, UNDER = "over:", "under:"  # the part of a turn in a pair, with the other turn's id


@dataclass(frozen=True, kw_only=True)
class Pair:
    source: str
    chosen: Answer
    rejected: Answer
    user: str | None  # who gave the preference: a user, or the rater as the file of the votes names them
    at: datetime

    @property
    def turn_ids(self) -> tuple[str, str]:
        return self.chosen.turn.turn_id, self.rejected.turn.turn_id


@dataclass(frozen=True, kw_only=True)
class FoundPairs:
    pairs: list[Pair]  # in the order in which the preferences were given
    dropped: dict[str, int]  # reason -> leads that came to no pair


@dataclass(frozen=True, kw_only=True)
class _Lead:
    """A preference before its turns are read."""

    source: str
    chosen: str  # turn ids, the same one for an edit
    rejected: str
    text: str | None  # of the chosen one, where it is not the turn's own
    user: str | None
    at: datetime


def find_pairs(line: Line, *, kind: str, sources: Sequence[str], at_most: int) -> FoundPairs:
    """The newest pairs that no batch of this kind has taken, each pair of answers once."""
    dropped: Counter[str] = Counter()
    most = LOOKED_AT * at_most
    leads = [lead for source in sources if source in LEADS for lead in LEADS[source](line, kind, most)]
    leads = _once(sorted(leads, key=lambda one: one.at, reverse=True), dropped)
    spent = _spent(leads, kind)
    turns = _turns(line, {turn for one in leads for turn in (one.chosen, one.rejected)})
    payloads = payloads_of(list(turns.values()))
    pairs = _votes(kind, at_most) if "people" in sources else []
    for lead in leads:
        if (lead.rejected, f"{UNDER}{lead.chosen}") in spent:
            continue
        found = _pair(lead, turns, payloads)
        if isinstance(found, Pair):
            pairs.append(found)
        else:
            dropped[found] += 1
    newest = sorted(pairs, key=lambda one: (one.at, one.turn_ids), reverse=True)[:at_most]
    return FoundPairs(pairs=newest[::-1], dropped=dict(dropped))


def _choices(line: Line, kind: str, at_most: int) -> list[_Lead]:
    spent = BatchSample.objects.filter(
        kind=kind, turn_ref=OuterRef("turn_ref"), part=Concat(Value(OVER), OuterRef("text")), is_correction=False
    )
    signals = _standing(line, ("preference",), at_most, spent)
    return [
        _Lead(
            source="choices",
            chosen=one.turn_ref or "",
            rejected=one.text or "",
            text=None,
            user=one.user,
            at=one.at,
        )
        for one in signals
    ]


def _edits(line: Line, kind: str, at_most: int) -> list[_Lead]:
    spent = BatchSample.objects.filter(
        kind=kind, turn_ref=OuterRef("turn_ref"), part=Concat(Value(OVER), OuterRef("turn_ref")), is_correction=False
    )
    return [
        _Lead(source="edits", chosen=name, rejected=name, text=one.text, user=one.user, at=one.at)
        for name, one in last_edits(line, at_most, spent).items()
    ]


def last_edits(line: Line, at_most: int, spent: QuerySet[BatchSample]) -> dict[str, UserSignal]:
    """turn -> what its user last made of it, or says it should have been; an edit whose answer was then taken back is
    none. `spent` are the samples of the turns to leave out."""
    found: dict[str, UserSignal] = {}
    for one in _standing(line, ("edit", "correction"), at_most, spent):
        assert one.turn is not None and one.turn_ref is not None
        if one.text and (one.kind == "correction" or one.turn.outcome == Outcome.ACCEPT):
            found.setdefault(one.turn_ref, one)
    return found


def _retries(line: Line, kind: str, at_most: int) -> list[_Lead]:
    spent = BatchSample.objects.filter(
        kind=kind, turn_ref=OuterRef("turn_ref"), part__startswith=UNDER, is_correction=False
    )
    asked_again = [one for one in _standing(line, ("retry",), at_most, spent) if one.turn is not None]
    accepted: dict[int, list[Turn]] = defaultdict(list)
    sessions = {one.turn.session_id for one in asked_again if one.turn}
    for turn in Turn.objects.filter(session__in=sessions, outcome=Outcome.ACCEPT).order_by("at", "index"):
        accepted[turn.session_id].append(turn)
    leads = []
    for one in asked_again:
        before = one.turn
        assert before is not None
        later = (turn for turn in accepted[before.session_id] if (turn.at, turn.index) > (before.at, before.index))
        after = next(later, None)
        if after is not None and before.outcome != Outcome.ACCEPT:
            leads.append(
                _Lead(
                    source="retries",
                    chosen=after.turn_id,
                    rejected=before.turn_id,
                    text=None,
                    user=one.user or after.user,
                    at=one.at,
                )
            )
    return leads


def _reviews(line: Line, kind: str, at_most: int) -> list[_Lead]:
    """All verdicts are read, for an old one may stand against a new one; people write few."""
    standing = ReviewResponse.objects.filter(
        gold__isnull=False, withdrawn_at__isnull=True, is_late=False, flag__turn__group__isnull=False
    )
    said: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))  # group -> turn -> verdicts
    times: dict[str, datetime] = {}
    columns = ("flag__turn__group", "flag__turn__turn_id", "gold", "at")
    for group, turn, gold, at in standing.values_list(*columns):
        said[group][turn].add(gold)
        times[turn] = max(at, times.get(turn, at))
    leads = [
        _Lead(source="reviews", chosen=good, rejected=bad, text=None, user=None, at=max(times[good], times[bad]))
        for verdicts in said.values()
        for good in _turns_called(verdicts, Outcome.ACCEPT)
        for bad in _turns_called(verdicts, Outcome.REJECT)
    ]
    spent = _spent(leads, kind)
    unspent = [one for one in leads if (one.rejected, f"{UNDER}{one.chosen}") not in spent]
    return sorted(unspent, key=lambda one: (one.at, one.chosen, one.rejected), reverse=True)[:at_most]


LEADS = {"choices": _choices, "edits": _edits, "retries": _retries, "reviews": _reviews}


def _turns_called(verdicts: dict[str, set[str]], verdict: str) -> list[str]:
    """Those of which every reviewer says so."""
    return [turn for turn, said in verdicts.items() if said == {verdict}]


def _votes(kind: str, at_most: int) -> list[Pair]:
    """Of people, as pairs of turns that exist only here: a vote has no session."""
    spent = BatchSample.objects.filter(kind=kind, turn_ref__startswith="comparison:").values_list("turn_ref", flat=True)
    known = {int(name.removeprefix("comparison:")) for name in spent}
    votes = (
        Comparison.objects.filter(by="person", verdict__in=("left", "right"), problem__benchmark__is_held_out=False)
        .exclude(pk__in=known)
        .exclude(problem__benchmark__name__in=_measured_by())
        .select_related("problem")
        .order_by("-created_at", "-pk")[:at_most]
    )
    return [pair for one in votes if (pair := _vote(one)) is not None]


def _measured_by() -> set[str]:
    """Names of the gates' benchmarks: what is learnt of any version spoils them all, for versions share problems."""
    suites = [suite for plan in LearningPlan.objects.all() for suite in suites_of(plan)]
    return {benchmark_ref(suite.benchmark).name for suite in suites}


def _vote(one: Comparison) -> Pair | None:
    """None where the file brought no text of the prompt or an answer."""
    problem = one.problem
    if problem is None or (problem.messages is None and problem.prompt is None):
        return None
    if not (one.left_text and one.right_text) or one.left_text == one.right_text:
        return None

    def answer(model: str, text: str) -> Answer:
        name = f"comparison:{one.pk}"
        turn = Turn(turn_id=name, session=AgentSession(session_id=""), model=model, source="import", at=one.created_at)
        payload = TurnPayload(turn_id=name, messages=problem.messages, prompt=problem.prompt, completion=text)
        return Answer(turn=turn, payload=payload, text=text)

    sides = [answer(one.left, one.left_text), answer(one.right, one.right_text)]
    chosen, rejected = sides if one.verdict == "left" else sides[::-1]
    return Pair(source="people", chosen=chosen, rejected=rejected, user=one.rater or None, at=one.created_at)


def _standing(line: Line, kinds: Sequence[str], at_most: int, spent: QuerySet[BatchSample]) -> list[UserSignal]:
    """Signals of these kinds that no later one supersedes, newest first."""
    signals = list(
        UserSignal.objects.filter(~Exists(spent), kind__in=kinds, turn__in=Turn.objects.filter(of_text(line)))
        .select_related("turn")
        .order_by("-at", "-signal_id")[:at_most]
    )
    of_turn: dict[int | None, list[Heard]] = defaultdict(list)
    rows = UserSignal.objects.filter(turn__in={one.turn_id for one in signals})
    for turn, name, kind, at, supersedes in rows.values_list("turn_id", "signal_id", "kind", "at", "supersedes"):
        of_turn[turn].append(Heard(id=name, kind=kind, at=at, supersedes=supersedes))
    standing = {heard.id for several in of_turn.values() for heard in current(several)[0]}
    return [one for one in signals if one.signal_id in standing]


def _once(leads: Sequence[_Lead], dropped: Counter[str]) -> list[_Lead]:
    """Of two answers the newest word, whatever its source."""
    found: dict[frozenset[str], _Lead] = {}
    for lead in leads:
        known = found.setdefault(frozenset((lead.chosen, lead.rejected)), lead)
        if known.chosen != lead.chosen:
            dropped["said otherwise later"] += 1
    return list(found.values())


def _spent(leads: Sequence[_Lead], kind: str) -> set[tuple[str, str]]:
    rejected = {one.rejected for one in leads}
    rows = BatchSample.objects.filter(kind=kind, turn_ref__in=rejected, part__startswith=UNDER, is_correction=False)
    return set(rows.values_list("turn_ref", "part"))


def _turns(line: Line, names: set[str]) -> dict[str, Turn]:
    turns = Turn.objects.filter(of_text(line), turn_id__in=names).select_related("label", "session")
    return {turn.turn_id: turn for turn in turns}


def _pair(lead: _Lead, turns: dict[str, Turn], payloads: dict[str, TurnPayload]) -> Pair | str:
    """The pair, or why it is none."""
    chosen, rejected = turns.get(lead.chosen), turns.get(lead.rejected)
    if chosen is None or rejected is None:
        return "the other answer is not here"
    if reason := text_fault(chosen) or text_fault(rejected):
        return reason
    better, worse = payloads.get(lead.chosen), payloads.get(lead.rejected)
    if better is None or worse is None:
        return "the text is gone"
    if (better.messages, better.prompt) != (worse.messages, worse.prompt):
        return "prompts differ"
    text = better.completion if lead.text is None else lead.text
    if text == worse.completion and not (better.tool_calls or worse.tool_calls):
        return "answers are the same"
    return Pair(
        source=lead.source,
        chosen=Answer(turn=chosen, payload=better, text=lead.text),
        rejected=Answer(turn=rejected, payload=worse),
        user=lead.user,
        at=lead.at,
    )
