"""MT-bench (FastChat's llm_judge): single marks, pairs judged in both orders, and votes of people.

A mark from 1 to 10 becomes (mark - 1) / 9; -1 means that the judge's words could not be parsed: unscored. A pair is won
when both orders say so, else it is a tie, as FastChat counts; an order that ended in an error makes the pair an error.
A turn is a problem of its own ("81, turn 2").
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import identity, instant, number, rate, text
from evals.importers.reading import sequence
from evals.importers.record import Battle, Battles, Note, Result, Run, Source, Winner

FORMAT = "mt_bench"
BENCHMARK = "mt_bench"
LOW, HIGH, UNPARSED = 1, 10, -1
GAMES: dict[str, Winner] = {"model_1": "left", "model_2": "right", "tie": "tie", "error": "error"}
VOTES: dict[str, Winner] = {"model_a": "left", "model_b": "right", "tie": "tie"}


def recognises(path: Path) -> bool:
    start = reading.head(path)
    return is_single(start) or is_pair(start) or is_human(start)


def is_single(start: bytes) -> bool:
    return all(key in start for key in (b'"question_id"', b'"judge"', b'"judgment"', b'"score"', b'"turn"'))


def is_pair(start: bytes) -> bool:
    return b'"g1_winner"' in start and b'"g2_winner"' in start


def is_human(start: bytes) -> bool:
    """Unlike the Arena's battles these have no `anony`, and their voters are experts and authors."""
    keys = (b'"question_id"', b'"model_a"', b'"winner"', b'"turn"', b'"judge"')
    return all(key in start for key in keys) and (b'"expert_' in start or b'"author_' in start)


def read(path: Path) -> Iterator[Run | Battles]:
    start = reading.head(path)
    source = Source(format=FORMAT, sha256=reading.digest(path))
    if is_pair(start):
        found = Battles(benchmark=BENCHMARK, source=source, battles=())
        found.battles = pairs(path, found.notes)
        yield found
    elif is_human(start):
        yield Battles(benchmark=BENCHMARK, source=source, battles=votes(path))
    elif is_single(start):
        for model in rows.runs_of(path, (text(record.get("model")) for _, record in records(path))):
            run = Run(benchmark=BENCHMARK, source=source, model=model or None, results=())
            run.notes = [Note(kind="assumed", text=f"marks from {LOW} to {HIGH} became (mark - {LOW}) / {HIGH - LOW}")]
            run.results = marks(path, model, run.notes)
            yield run
    else:
        raise Unreadable(
            "neither single marks (judgment, score), nor pairs (g1_winner), nor votes of people (model_a, winner)",
            where=path.name,
        )


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, record in rows.records(path):
        if not text(record.get("question_id")):
            raise Unreadable("a record has a question_id", where=where)
        yield where, record


def problem_of(record: dict[str, Any]) -> str:
    turn = text(record.get("turn"))
    return identity(text(record.get("question_id")) + (f", turn {turn}" if turn else ""))


def slices_of(record: dict[str, Any], *, prompt: str = "") -> dict[str, str]:
    slices = {"turn": text(record.get("turn")), "prompt": prompt}
    return {key: value for key, value in slices.items() if value}


def judge_of(record: dict[str, Any]) -> tuple[str, str]:
    """The judge's model and the name of its prompt; a person has no prompt."""
    judge = record.get("judge")
    parts = [text(each) for each in sequence(judge)] if isinstance(judge, list) else [text(judge)]
    return [*parts, ""][0], [*parts, "", ""][1]


# --- single marks ---


def marks(path: Path, model: str, notes: list[Note]) -> Iterator[Result]:
    repeats: Counter[tuple[str, str]] = Counter()
    num_marks = num_unparsed = num_off_scale = 0
    for _, record in records(path):
        if text(record.get("model")) != model:
            continue
        problem, (judge, prompt) = problem_of(record), judge_of(record)
        mark = number(record.get("score"))
        is_on_scale = mark is not None and LOW <= mark <= HIGH
        num_marks += 1
        num_unparsed += mark == UNPARSED
        num_off_scale += not is_on_scale and mark != UNPARSED
        yield Result(
            problem=problem, scorer=identity(judge) or "judge", status="scored" if is_on_scale else "unscored",
            repeat=repeats[problem, judge], raw_score=record.get("score"),
            score=(mark - LOW) / (HIGH - LOW) if mark is not None and is_on_scale else None,
            explanation=text(record.get("judgment")), slices=slices_of(record, prompt=prompt),
            raw=record,
        )  # fmt: skip
        repeats[problem, judge] += 1
    if num_unparsed:
        notes.append(
            Note(kind="missing", text=f"{rate(num_unparsed, num_marks)} judgments could not be parsed (-1): unscored")
        )
    if num_off_scale:
        notes.append(Note(kind="odd", text=f"marks outside {LOW} to {HIGH}, unscored: {num_off_scale}"))


# --- pairs, and votes of people ---


def pairs(path: Path, notes: list[Note]) -> Iterator[Battle]:
    repeats: Counter[tuple[str, ...]] = Counter()
    verdicts: Counter[str] = Counter()
    num_swaps_matter = 0
    for where, record in records(path):
        games = [winner_in(record, key, GAMES, where=where) for key in ("g1_winner", "g2_winner")]
        winner: Winner = "error" if "error" in games else games[0] if games[0] == games[1] else "tie"
        num_swaps_matter += "error" not in games and games[0] != games[1]
        judge, prompt = judge_of(record)
        left, right = (model_in(record, key, where=where) for key in ("model_1", "model_2"))
        key = (problem_of(record), left, right, identity("/".join(filter(None, (judge, prompt)))))
        yield Battle(
            problem=key[0], left=key[1], right=key[2], rater=key[3], repeat=repeats[key], winner=winner, by="judge",
            at=instant(record.get("tstamp")), slices=slices_of(record), raw=record,
        )  # fmt: skip
        repeats[key] += 1
        verdicts[winner] += 1
    if errors := verdicts["error"]:
        notes.append(Note(kind="missing", text=f"{rate(errors, verdicts.total())} pairs ended in an error: no verdict"))
    if num_swaps_matter:
        judged = verdicts.total() - verdicts["error"]
        notes.append(
            Note(kind="odd", text=f"{rate(num_swaps_matter, judged)} pairs were judged differently when swapped: ties")
        )


def votes(path: Path) -> Iterator[Battle]:
    repeats: Counter[tuple[str, ...]] = Counter()
    for where, record in records(path):
        winner = winner_in(record, "winner", VOTES, where=where)
        left, right = (model_in(record, key, where=where) for key in ("model_a", "model_b"))
        key = (problem_of(record), left, right, identity(judge_of(record)[0]))
        yield Battle(
            problem=key[0], left=key[1], right=key[2], rater=key[3], repeat=repeats[key], winner=winner, by="person",
            at=instant(record.get("tstamp")), slices=slices_of(record), raw=record,
        )  # fmt: skip
        repeats[key] += 1


def model_in(record: dict[str, Any], key: str, *, where: str) -> str:
    name = identity(record.get(key))
    if not name:
        raise Unreadable(f"no {key}", where=where)
    return name


def winner_in(record: dict[str, Any], key: str, known: dict[str, Winner], *, where: str) -> Winner:
    """A label that is not known is an error of the file: taking it for a tie would be a guess."""
    label = record.get(key)
    if not isinstance(label, str) or label not in known:
        raise Unreadable(f"{key} is {text(label)!r}; it must be one of {', '.join(known)}", where=where)
    return known[label]
