"""AlpacaEval: the outputs of models, the annotations of a judge, and the leaderboards.

An annotation is a battle: the baseline is left, the model right. Its preference lies in [1, 2] (1: the baseline, 2: the
model, 1.5 or, in old files, 0: a draw); minus 1 it is P(right wins). Null means that the annotation failed, which
AlpacaEval keeps in its cache: no tie, not a loss, and worth asking again. The order shown to the judge was random, but
is stored un-swapped.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import cost, count, digest, identity, number, text
from evals.importers.record import Battle, Battles, Claim, Note, Result, Run, Source, Winner

FORMAT = "alpaca_eval"
BENCHMARK = "alpaca_eval"
LEADERBOARD = ("win_rate", "n_total")
DRAWS = (1.5, 0.0)  # 0 in files of the first version


def recognises(path: Path) -> bool:
    start = reading.head(path)
    return is_annotations(start) or is_outputs(start) or is_leaderboard(start)


def is_annotations(start: bytes) -> bool:
    return b'"output_1"' in start and b'"output_2"' in start and (b'"preference"' in start or b'"annotator"' in start)


def is_outputs(start: bytes) -> bool:
    return all(key in start for key in (b'"instruction"', b'"output"', b'"generator"'))


def is_leaderboard(start: bytes) -> bool:
    header = start.split(b"\n", 1)[0].rstrip(b"\r").split(b",")
    return all(column.encode() in header for column in LEADERBOARD)


def read(path: Path) -> Iterator[Run | Battles]:
    start = reading.head(path)
    source = Source(format=FORMAT, sha256=reading.digest(path))
    if is_annotations(start):
        yield battles_of(path, source)
    elif is_outputs(start):
        yield from runs_of_outputs(path, source)
    elif is_leaderboard(start):
        yield from runs_of_leaderboard(path, source)
    else:
        raise Unreadable(
            "neither annotations (output_1, output_2, preference), nor outputs (instruction, output, generator), nor a "
            "leaderboard (win_rate, n_total)",
            where=path.name,
        )


def records(path: Path) -> Iterator[dict[str, Any]]:
    for where, record in rows.records(path):
        if "instruction" not in record:
            raise Unreadable("a record has an instruction", where=where)
        yield record


def problem_of(record: dict[str, Any]) -> str:
    """A digest of the instruction: AlpacaEval has no ids."""
    return digest(text(record.get("instruction")))


# --- annotations ---


def battles_of(path: Path, source: Source) -> Battles:
    found = Battles(benchmark=BENCHMARK, source=source, battles=())
    found.battles = annotations(path, found.notes)
    return found


def annotations(path: Path, notes: list[Note]) -> Iterator[Battle]:
    asked: Counter[tuple[str, ...]] = Counter()
    verdicts: Counter[str] = Counter()
    num_off_scale = 0
    for record in records(path):
        stored = record.get("preference")
        winner, preference = verdict_of(record)
        num_off_scale += stored is not None and preference is None
        left, right = identity(record.get("generator_1")) or "baseline", identity(record.get("generator_2")) or "model"
        place = (problem_of(record), left, right, identity(record.get("annotator")))
        yield Battle(
            problem=place[0], left=left, right=right, winner=winner, by="judge", rater=place[3], repeat=asked[place],
            preference=preference, left_text=text(record.get("output_1")), right_text=text(record.get("output_2")),
            slices={"dataset": text(record["dataset"])} if record.get("dataset") else {},
            cost_usd=cost(record.get("price_per_example")), raw=record,
        )  # fmt: skip
        asked[place] += 1
        verdicts[winner] += 1
    notes += notes_on(verdicts, num_off_scale)


def verdict_of(record: dict[str, Any]) -> tuple[Winner, float | None]:
    """Who won, and P(right wins). Without a preference: `invalid` where the judge answered, else `error`."""
    preference = number(record.get("preference"))
    if preference in DRAWS:
        return "tie", 0.5
    if preference is None or not 1 <= preference <= 2:
        return ("invalid" if record.get("raw_completion") else "error"), None
    return ("right" if preference > 1.5 else "left"), preference - 1


def notes_on(verdicts: Counter[str], num_off_scale: int) -> Iterator[Note]:
    asked = verdicts.total()
    if not asked:
        yield Note(kind="missing", text="no data: the file has no annotation")
    elif without := verdicts["error"] + verdicts["invalid"]:
        yield Note(kind="missing", text=(
            f"{without} of {asked} annotations have no preference (AlpacaEval keeps that in its cache): "
            f"n {asked - without}, coverage {100 * (asked - without) / asked:.0f} %; they can be asked again"
        ))  # fmt: skip
    if num_off_scale:
        yield Note(kind="odd", text=f"preferences outside [1, 2]: {num_off_scale}")


# --- outputs ---


def runs_of_outputs(path: Path, source: Source) -> Iterator[Run]:
    generators = rows.runs_of(path, (text(record.get("generator")) for record in records(path)))
    for generator in generators:
        yield Run(
            benchmark=BENCHMARK, source=source, model=generator or None, results=outputs(path, generator),
            notes=[Note(kind="missing", text="outputs only: there is no verdict until annotations are imported")],
        )  # fmt: skip


def outputs(path: Path, generator: str) -> Iterator[Result]:
    repeats: Counter[str] = Counter()
    for record in records(path):
        if text(record.get("generator")) != generator:
            continue
        problem = problem_of(record)
        yield Result(
            problem=problem, scorer="annotation", status="unscored", repeat=repeats[problem],
            prompt=text(record.get("instruction")), output=text(record.get("output")),
            slices={"dataset": text(record["dataset"])} if record.get("dataset") else {}, raw=record,
        )  # fmt: skip
        repeats[problem] += 1


# --- leaderboards: numbers about models, without their results ---


def runs_of_leaderboard(path: Path, source: Source) -> Iterator[Run]:
    """One run without results for each row. A model may stand in two rows (one folder was nested in itself)."""
    named: Counter[str] = Counter()
    for place, (_, row) in enumerate(rows.csv_rows(path), start=1):
        model = row.get("") or row.get("name") or next(iter(row.values()), "")
        named[model] += 1
        notes = [Note(kind="missing", text="a leaderboard's row: numbers without the results they come from")]
        if named[model] > 1:
            notes.append(Note(kind="odd", text=f"row {named[model]} of the same name in this file"))
        claims, odd = claims_of(row)
        yield Run(
            benchmark=BENCHMARK, source=source, model=model or None, run_id=f"{source.sha256}, row {place}",
            results=(), claims=claims, notes=[*notes, *odd], settings={key: value for key, value in row.items() if key},
        )  # fmt: skip


def claims_of(row: dict[str, str]) -> tuple[list[Claim], list[Note]]:
    """Shares are per cent in the file, and shares here; one that cannot be a share is left out and said so."""
    n = count(number_in(row.get("n_total")))
    claims, notes = [], []
    for metric, stderr in {
        "win_rate": "standard_error",
        "discrete_win_rate": "",
        "length_controlled_winrate": "lc_standard_error",
    }.items():
        value, error = number_in(row.get(metric)), number_in(row.get(stderr))
        if value is None:
            continue
        if not 0 <= value <= 100:
            notes.append(Note(kind="odd", text=f"{metric} is {row[metric]}: no share, left out"))
            continue
        claims.append(Claim(
            metric=metric, scorer="annotation", value=value / 100, stderr=None if error is None else error / 100, n=n,
            higher_is_better=True,
        ))  # fmt: skip
    return claims, notes


def number_in(cell: str | None) -> float | None:
    try:
        return number(float(cell)) if cell else None
    except ValueError:
        return None
