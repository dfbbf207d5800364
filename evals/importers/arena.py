"""Battles of the Chatbot Arena (votes of people) and of Arena-Hard (a judge, against a baseline, in both orders).

An unknown winner is an error of the file, never a tie. Arena-Hard: in the first game the baseline is A, in the second
the model; a strong verdict ("A>>B") weighs three times, as its leaderboard counts, and P(right wins) is the weighted
share of the model. A pair with one missing game has no verdict: its leaderboard leaves it out too, and counts it.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import digest, identity, instant, rate, text
from evals.importers.reading import mapping, sequence
from evals.importers.record import Battle, Battles, Note, Source, Winner

FORMAT = "arena"
ARENA, ARENA_HARD = "chatbot_arena", "arena_hard"
WINNERS: dict[str, Winner] = {
    "model_a": "left", "model_b": "right", "tie": "tie", "tie (bothbad)": "both_bad", "both_bad": "both_bad",
    "bothbad": "both_bad",
}  # fmt: skip
STRONG = 3  # how many times a strong verdict counts
OLD_BASELINE = "gpt-4-0314"  # of Arena-Hard v0.1, whose records do not name it
A_WINS = {"A>>B": (1.0, STRONG), "A>B": (1.0, 1), "A=B": (0.5, 1), "A<B": (0.0, 1), "A<<B": (0.0, STRONG)}
LABELS = A_WINS | {"B>>A": (0.0, STRONG), "B>A": (0.0, 1), "B=A": (0.5, 1), "B<A": (1.0, 1), "B<<A": (1.0, STRONG)}


def recognises(path: Path) -> bool:
    start = reading.head(path)
    return is_arena_hard(start) or is_arena(start)


def is_arena_hard(start: bytes) -> bool:
    return all(key in start for key in (b'"games"', b'"judge"', b'"model"'))


def is_arena(start: bytes) -> bool:
    return all(key in start for key in (b'"model_a"', b'"model_b"', b'"winner"')) and b'"g1_winner"' not in start


def read(path: Path) -> Iterator[Battles]:
    start = reading.head(path)
    if not recognises(path):
        raise Unreadable(
            "neither battles (model_a, model_b, winner) nor Arena-Hard's judgments (games)", where=path.name
        )
    is_hard = is_arena_hard(start)
    found = Battles(
        benchmark=ARENA_HARD if is_hard else ARENA,
        source=Source(format=FORMAT, sha256=reading.digest(path)),
        battles=(),
    )
    found.battles = (judgments if is_hard else votes)(path, found.notes)
    yield found


# --- Chatbot Arena ---


def votes(path: Path, notes: list[Note]) -> Iterator[Battle]:
    repeats: Counter[tuple[str, ...]] = Counter()
    num_not_anonymous = num_battles = 0
    for place, (where, record) in enumerate(rows.records(path)):
        label = record.get("winner")
        if not isinstance(label, str) or label not in WINNERS:
            raise Unreadable(f"winner is {text(label)!r}; it must be one of {', '.join(WINNERS)}", where=where)
        left, right = identity(record.get("model_a")), identity(record.get("model_b"))
        if not left or not right:
            raise Unreadable("a battle names model_a and model_b", where=where)
        problem = problem_of(record, place)
        key = (problem, left, right, identity(record.get("judge")))
        yield Battle(
            problem=problem, left=left, right=right, winner=WINNERS[label],
            by="person", rater=key[3], repeat=repeats[key],
            left_text=last_reply(record.get("conversation_a")), right_text=last_reply(record.get("conversation_b")),
            at=instant(record.get("tstamp")), slices=slices_of(record), raw=record,
        )  # fmt: skip
        repeats[key] += 1
        num_battles += 1
        num_not_anonymous += record.get("anony") is False
    if num_not_anonymous:
        notes.append(
            Note(kind="odd", text=f"{rate(num_not_anonymous, num_battles)} battles were not anonymous (anony is false)")
        )


def problem_of(record: dict[str, Any], place: int) -> str:
    """The id of the question or conversation, else a digest of what was asked, else the place in the file."""
    for key in ("question_id", "uid", "id", "conversation_id"):
        if record.get(key) not in (None, ""):
            return identity(record[key])
    asked = [
        mapping(each).get("content")
        for each in sequence(record.get("conversation_a"))
        if mapping(each).get("role") == "user"
    ]
    return digest(text(asked)) if asked else f"battle {place}"


def slices_of(record: dict[str, Any]) -> dict[str, str]:
    found = {key: text(record.get(key)) for key in ("language", "turn", "anony")}
    return {key: value for key, value in found.items() if value}


def last_reply(conversation: Any) -> str:
    replies = [mapping(each) for each in sequence(conversation)]
    return next((text(each.get("content")) for each in reversed(replies) if each.get("role") == "assistant"), "")


# --- Arena-Hard ---


def judgments(path: Path, notes: list[Note]) -> Iterator[Battle]:
    repeats: Counter[tuple[str, ...]] = Counter()
    num_pairs = num_without = num_unnamed = 0
    for where, record in rows.records(path):
        problem = identity(record.get("uid") or record.get("question_id"))
        model = identity(record.get("model"))
        if not problem or not model:
            raise Unreadable("a judgment names uid (or question_id) and model", where=where)
        winner, preference = verdict_of(record, where=where)
        key = (problem, identity(record.get("baseline")) or OLD_BASELINE, model, identity(record.get("judge")))
        yield Battle(
            problem=problem, left=key[1], right=key[2], winner=winner, by="judge", rater=key[3], repeat=repeats[key],
            preference=preference, at=instant(record.get("tstamp")),
            slices={"category": text(record["category"])} if record.get("category") else {}, raw=record,
        )  # fmt: skip
        repeats[key] += 1
        num_pairs += 1
        num_without += preference is None
        num_unnamed += not record.get("baseline")
    if num_without:
        notes.append(
            Note(
                kind="missing",
                text=f"{rate(num_without, num_pairs)} pairs lack a game or its verdict: no verdict, as for Arena-Hard",
            )
        )
    if num_unnamed:
        notes.append(
            Note(
                kind="assumed", text=f"records without a baseline: {num_unnamed}; taken as {OLD_BASELINE}, that of v0.1"
            )
        )


def verdict_of(record: dict[str, Any], *, where: str) -> tuple[Winner, float | None]:
    """Who won both games taken together, and the model's weighted share of them."""
    games = sequence(record.get("games"))
    if len(games) < 2 or not all(isinstance(game, dict) for game in games[:2]):
        return "error", None
    labels = [game.get("score") for game in games[:2]]
    if None in labels:
        return "invalid", None
    shares = []
    for label, is_model_a in zip(labels, (False, True), strict=True):
        if not isinstance(label, str) or label not in LABELS:
            raise Unreadable(f"a game's score is {text(label)!r}; it must be one of {', '.join(LABELS)}", where=where)
        a_wins, weight = LABELS[label]
        shares += [a_wins if is_model_a else 1 - a_wins] * weight
    preference = sum(shares) / len(shares)
    return ("right" if preference > 0.5 else "left" if preference < 0.5 else "tie"), preference
