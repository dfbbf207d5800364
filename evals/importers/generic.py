"""Any CSV, JSONL or JSON list of results or of battles, with a mapping that says which column is what.

The mapping is a JSON file beside the data, `<name of the data>.mapping.json`, or handed over. Without one the columns
bear Strop's own names (`problem`, `score`, `model` ...; for battles `problem`, `left`, `right`, `winner`). A column is
named by its header, or in JSON by a dotted path ("response.text"); {"value": "gpt-5"} is a constant.

    {"benchmark": "vibes", "problem": "id", "model": {"value": "gpt-5"}, "score": "stars", "scale": [1, 5]}
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import compact, cost, count, digest, identity, instant, is_naive, rate, text
from evals.importers.record import Battle, Battles, Note, Result, Run, Source, Status, Usage, Winner

FORMAT = "generic"
SIDECAR = ".mapping.json"


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same for every row."""

    value: str


Column = str | Constant | None


class Mapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which column is what. Both kinds need `problem`; results `score` or `attempts`, battles `left` and `right`."""

    kind: Literal["results", "battles"] = "results"
    benchmark: str = ""  # "": the file's name
    benchmark_version: str = ""
    problem: Column = "problem"
    slices: dict[str, Column] = {}
    cost_usd: Column = "cost_usd"

    # results
    model: Column = "model"
    checkpoint: Column = "checkpoint"
    scorer: Column = "scorer"
    score: Column = "score"
    scale: tuple[float, float] = (0.0, 1.0)  # what becomes 0, what becomes 1; the other way round where less is better
    labels: dict[str, float] = {}  # e.g. {"pass": 1, "fail": 0}, in [0, 1]
    attempts: Column = None  # instead of `score`: one character for each repeat, 1, 0 or anything else for no verdict
    status: Column = "status"
    repeat: Column = "repeat"
    explanation: Column = "explanation"
    prompt: Column = "prompt"
    reference: Column = "reference"
    output: Column = "output"
    input_tokens: Column = "input_tokens"
    cache_read_tokens: Column = "cache_read_tokens"
    cache_write_tokens: Column = "cache_write_tokens"
    output_tokens: Column = "output_tokens"
    reasoning_tokens: Column = "reasoning_tokens"
    latency_ms: Column = "latency_ms"

    # battles
    left: Column = "left"
    right: Column = "right"
    winner: Column = "winner"
    winners: dict[str, Winner] = {}  # e.g. {"model_a": "left"}; what is not here must be one of ours
    preference: Column = None  # instead of `winner`: how much the right one is preferred, on `preference_scale`
    preference_scale: tuple[float, float] = (0.0, 1.0)
    by: Literal["judge", "person", "tests"] = "judge"
    rater: Column = "rater"
    left_text: Column = "left_text"
    right_text: Column = "right_text"
    at: Column = "at"


BATTLES = Mapping(kind="battles")
RESULTS = Mapping()


def recognises(path: Path) -> bool:
    """By a mapping beside it, or by columns with our own names."""
    if path.name.endswith(SIDECAR) or rows.file_in(path.parent, path.name) is None:
        return False
    return rows.file_in(path.parent, path.name + SIDECAR) is not None or by_our_names(path) is not None


def by_our_names(path: Path) -> Mapping | None:
    names = first_names(path) if b"problem" in reading.head(path) else set()
    if {"problem", "left", "right", "winner"} <= names:
        return BATTLES
    return RESULTS if {"problem", "score"} <= names else None


def first_names(path: Path) -> set[str]:
    """The columns of a CSV, or the keys of a JSON file's first record; empty where it is neither. Never raises."""
    try:
        if not is_json(path):
            return set(next(rows.csv_cells(path), []))
        return set(next((record for _, record in rows.records(path)), {}))
    except Unreadable:
        return set()


def is_json(path: Path) -> bool:
    return reading.head(path, 4096).lstrip().startswith((b"{", b"["))


def read(path: Path, mapping: Mapping | None = None) -> Iterator[Run | Battles]:
    """Raises Unreadable: no mapping and no names of ours, one that does not fit, or a row without what it needs."""
    mapping = mapping or mapping_for(path)
    check(mapping, path)
    source = Source(format=FORMAT, sha256=reading.digest(path))
    benchmark = mapping.benchmark or path.name.partition(".")[0]
    meant = msgspec.to_builtins(mapping)
    run_id = f"{source.sha256}, mapping {digest(compact(meant))}"  # another mapping makes another run of the same file
    if mapping.kind == "battles":
        found = Battles(
            benchmark=benchmark, benchmark_version=mapping.benchmark_version, source=source, run_id=run_id, battles=()
        )
        found.battles = battles_of(path, mapping, found.notes)
        yield found
        return
    measured = rows.runs_of(path, (who(mapping, row) for _, row in table(path)))
    if not measured:
        raise Unreadable("it has no row", where=path.name)
    for model, checkpoint in measured:
        run = Run(
            benchmark=benchmark, benchmark_version=mapping.benchmark_version, source=source, model=model or None,
            checkpoint=checkpoint or None, results=(), run_id=run_id, settings={"mapping": meant},
        )  # fmt: skip
        run.results = results_of(path, mapping, (model, checkpoint), run.notes)
        yield run


# --- the mapping ---


def mapping_for(path: Path) -> Mapping:
    """The mapping beside the file, or the one of our own names."""
    beside = rows.file_in(path.parent, path.name + SIDECAR)
    if beside is not None:
        return mapping_from(reading.document(beside), where=beside.name)
    if found := by_our_names(path):
        return found
    raise Unreadable(
        f"it needs a mapping: write {path.name}{SIDECAR} beside it, e.g. "
        '{"benchmark": "my-set", "problem": "id", "model": {"value": "gpt-5"}, "score": "passed"}',
        where=path.name,
    )


def mapping_from(document: Any, *, where: str = "mapping") -> Mapping:
    """Raises Unreadable, naming the field that is wrong."""
    try:
        return msgspec.convert(document, Mapping)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error), where=where) from None


def check(mapping: Mapping, path: Path) -> None:
    """Raises Unreadable where the mapping names no problem, a scale without length, or a column that the file lacks."""
    for name in ("scale", "preference_scale"):
        low, high = getattr(mapping, name)
        if low == high:
            raise Unreadable(f"{name} runs from {low:g} to {high:g}", where=path.name)
    if any(not 0 <= label <= 1 for label in mapping.labels.values()):
        raise Unreadable("labels are scores in [0, 1]", where=path.name)
    names = first_names(path)
    asked = {
        name: getattr(mapping, name)
        for name in Mapping.__struct_fields__
        if name not in ("benchmark", "benchmark_version", "kind", "by")
    }
    ours = {name: getattr(RESULTS, name) for name in asked}
    columns = {name: column for name, column in asked.items() if isinstance(column, str) and column != ours[name]}
    columns |= {f"slices.{name}": column for name, column in mapping.slices.items() if isinstance(column, str)}
    for name, column in columns.items():
        if names and column not in names and column.partition(".")[0] not in names:
            raise Unreadable(f"{name} is column {column!r}; there are {', '.join(sorted(names))}", where=path.name)


def value_of(column: Column, row: dict[str, Any]) -> Any:
    """What a row holds in a column; None where it has no such column, or an empty cell."""
    if column is None:
        return None
    if isinstance(column, Constant):
        return column.value
    found: Any = row.get(column)
    if found is None and "." in column:
        found = row
        for key in column.split("."):
            found = found.get(key) if isinstance(found, dict) else None
    return None if found == "" else found


def table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of either kind of file."""
    return rows.records(path) if is_json(path) else rows.csv_rows(path)


def figure(value: Any) -> float | None:
    """A finite number, also one written as text."""
    return reading.number_of(value)


def needed(name: str, column: Column, row: dict[str, Any], *, where: str) -> str:
    found = text(value_of(column, row))
    if not found:
        raise Unreadable(f"no {name} in this row", where=where)
    return found


# --- results ---


def who(mapping: Mapping, row: dict[str, Any]) -> tuple[str, str]:
    """The model or the checkpoint that a row is about."""
    return text(value_of(mapping.model, row)), text(value_of(mapping.checkpoint, row))


def results_of(path: Path, mapping: Mapping, measured: tuple[str, str], notes: list[Note]) -> Iterator[Result]:
    repeats: Counter[tuple[str, str]] = Counter()
    statuses: Counter[str] = Counter()
    num_off_scale = 0
    for where, row in table(path):
        if who(mapping, row) != measured:
            continue
        problem = identity(needed("problem", mapping.problem, row, where=where))
        scorer = identity(value_of(mapping.scorer, row)) or "score"
        stated = count(figure(value_of(mapping.repeat, row)))
        for value in values_of(mapping, row):
            status, score = scored(mapping, value, text(value_of(mapping.status, row)), where=where)
            repeat = max(stated or 0, repeats[problem, scorer])
            repeats[problem, scorer] = repeat + 1
            statuses[status] += 1
            num_off_scale += status == "unscored" and value is not None and mapping.attempts is None
            yield result_of(mapping, row, problem, scorer, status, score, value, repeat)
    total = statuses.total()
    for status in ("unscored", "error", "infra"):
        if number_of := statuses[status]:
            notes.append(Note(kind="missing", text=f"{rate(number_of, total)} results are {status}"))
    if num_off_scale:
        low, high = mapping.scale
        notes.append(
            Note(
                kind="odd",
                text=f"scores that are no label and not from {low:g} to {high:g}, kept raw: {num_off_scale}",
            )
        )


def values_of(mapping: Mapping, row: dict[str, Any]) -> list[Any]:
    """The raw scores of a row: one, or one for each attempt."""
    if mapping.attempts is None:
        return [value_of(mapping.score, row)]
    return list(text(value_of(mapping.attempts, row)))


def scored(mapping: Mapping, value: Any, stated: str, *, where: str) -> tuple[Status, float | None]:
    """The status and the score in [0, 1]. A stated status other than "scored" leaves no score."""
    if stated and stated not in get_args(Status):
        raise Unreadable(f"status is {stated!r}; it must be one of {', '.join(get_args(Status))}", where=where)
    if stated and stated != "scored":
        return stated, None  # type: ignore[return-value]  # it is one of them
    score = score_of(mapping, value)
    return ("unscored", None) if score is None else ("scored", score)


def score_of(mapping: Mapping, value: Any) -> float | None:
    label = value.strip() if isinstance(value, str) else value
    if isinstance(label, bool):
        return float(label)
    if label is None:
        return None
    if text(label) in mapping.labels:
        return mapping.labels[text(label)]
    if isinstance(label, str) and label.lower() in ("true", "false"):
        return float(label.lower() == "true")
    return on_scale(figure(label), mapping.scale)


def on_scale(value: float | None, scale: tuple[float, float]) -> float | None:
    """Where a value lies between the scale's ends; None outside of them."""
    low, high = scale
    share = None if value is None else (value - low) / (high - low)
    return share if share is not None and 0 <= share <= 1 else None


def result_of(
    mapping: Mapping,
    row: dict[str, Any],
    problem: str,
    scorer: str,
    status: Status,
    score: float | None,
    value: Any,
    repeat: int,
) -> Result:
    def cell(column: Column) -> Any:
        return value_of(column, row)

    tokens = {
        "input": mapping.input_tokens,
        "cache_read": mapping.cache_read_tokens, "cache_write": mapping.cache_write_tokens,
        "output": mapping.output_tokens, "reasoning": mapping.reasoning_tokens,
    }  # fmt: skip
    counts = {name: counted for name, column in tokens.items() if (counted := count(figure(cell(column)))) is not None}
    usage: dict[str, Any] = counts  # `processing`, the one that is no count, is in no column
    latency = figure(cell(mapping.latency_ms))
    return Result(
        problem=problem,
        scorer=scorer,
        status=status,
        repeat=repeat,
        score=score,
        raw_score=value if figure(value) != score else None,
        explanation=text(cell(mapping.explanation)),
        prompt=text(cell(mapping.prompt)) or None,
        reference=text(cell(mapping.reference)) or None,
        output=text(cell(mapping.output)),
        slices=slices_of(mapping, row),
        usage=Usage(**usage) if usage else None,
        cost_usd=cost(figure(cell(mapping.cost_usd))),
        latency_ms=latency if latency is not None and latency >= 0 else None,
        raw=row,
    )


def slices_of(mapping: Mapping, row: dict[str, Any]) -> dict[str, str]:
    found = {name: text(value_of(column, row)) for name, column in mapping.slices.items()}
    return {name: value for name, value in found.items() if value}


# --- battles ---


def battles_of(path: Path, mapping: Mapping, notes: list[Note]) -> Iterator[Battle]:
    repeats: Counter[tuple[str, ...]] = Counter()
    num_battles = num_without = num_naive = 0
    for where, row in table(path):
        problem = identity(needed("problem", mapping.problem, row, where=where))
        left, right = (identity(needed(name, getattr(mapping, name), row, where=where)) for name in ("left", "right"))
        winner, preference = verdict_of(mapping, row, where=where)
        key = (problem, left, right, identity(value_of(mapping.rater, row)))
        at = value_of(mapping.at, row)
        yield Battle(
            problem=problem, left=left, right=right, winner=winner, by=mapping.by, rater=key[3], repeat=repeats[key],
            preference=preference, left_text=text(value_of(mapping.left_text, row)),
            right_text=text(value_of(mapping.right_text, row)), at=instant(at), slices=slices_of(mapping, row),
            cost_usd=cost(figure(value_of(mapping.cost_usd, row))), raw=row,
        )  # fmt: skip
        repeats[key] += 1
        num_battles += 1
        num_without += winner in ("invalid", "error")
        num_naive += is_naive(at)
    if num_without:
        notes.append(Note(kind="missing", text=f"{rate(num_without, num_battles)} battles have no verdict"))
    if num_naive:
        notes.append(Note(kind="assumed", text=f"times without a zone, taken as UTC: {num_naive}"))


def verdict_of(mapping: Mapping, row: dict[str, Any], *, where: str) -> tuple[Winner, float | None]:
    """Who won, and P(right wins) where there is a preference. An unknown label is an error of the file, never a tie."""
    if mapping.preference is not None:
        preference = on_scale(figure(value_of(mapping.preference, row)), mapping.preference_scale)
        if preference is None:
            return "invalid", None
        return ("right" if preference > 0.5 else "left" if preference < 0.5 else "tie"), preference
    label = text(value_of(mapping.winner, row))
    winner = mapping.winners.get(label, label)
    if winner not in get_args(Winner):
        known = ", ".join(sorted({*mapping.winners, *get_args(Winner)}))
        raise Unreadable(f"winner is {label!r}; it must be one of {known}", where=where)
    return winner, None  # type: ignore[return-value]  # it is one of them
