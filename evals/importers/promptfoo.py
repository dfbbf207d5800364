"""promptfoo: results as JSON (versions 2 and 3), JSONL or CSV.

Each column of promptfoo's table, a prompt with a provider, is a run. `pass` is its verdict, `score` its weighted score,
and each named score a scorer of its own. `error` is also filled where an assertion just failed: failureReason
tells them apart (2 is an error). Repeats that promptfoo answered from its own cache are one call, so one result; the
time that a cache took is nobody's latency. Its prompt tokens include those that the provider read from a cache.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import compact, cost, count, digest, identity, instant, number, rate, text, unit
from evals.importers.reading import mapping, sequence
from evals.importers.record import Claim, Note, Result, Run, Source, Status, Usage

FORMAT = "promptfoo"
BENCHMARK = "promptfoo"
PASS, SCORE = "pass", "score"
SECRET = re.compile(r"api_?-?key|secret|password|authorization|credential|access_?token|auth_?token", re.IGNORECASE)
MAX_DEPTH = 60  # of a configuration or a record
LEFT_OUT = "[left out]"
ERROR = 2  # of failureReason: 0 passed, 1 an assertion failed


class Column(NamedTuple):
    """A prompt with a provider, by its place among the columns."""

    place: int
    provider: str
    prompt: str


class Cell(NamedTuple):
    """One answer, as version 3 has it."""

    column: Column
    problem: str
    record: dict[str, Any]
    raw: dict[str, Any]


def recognises(path: Path) -> bool:
    start = reading.head(path)
    return is_json(start) or is_jsonl(start) or is_csv(start)


def is_json(start: bytes) -> bool:
    top = start.partition(b'"promptIdx"')[0]
    return (
        b'"results"' in top
        and b'"version"' in top
        and any(key in top for key in (b'"evalId"', b'"prompts"', b'"gradingResult"', b'"table"'))
    )


def is_jsonl(start: bytes) -> bool:
    return b'"promptIdx"' in start and b'"testIdx"' in start and not is_json(start)


def is_csv(start: bytes) -> bool:
    return b",Status,Score," in start.split(b"\n", 1)[0] and b"[" in start


def read(path: Path) -> Iterator[Run]:
    start = reading.head(path)
    document: dict[str, Any] = {}
    if is_json(start):
        outline = reading.outline(path, without=[("results", "results"), ("results", "table", "body")])
        document = mapping(without_secrets(outline))
    elif not (is_jsonl(start) or is_csv(start)):
        raise Unreadable(
            "neither promptfoo's JSON (results.version), nor its JSONL (promptIdx), nor its CSV", where=path.name
        )
    results = mapping(document.get("results"))
    source = Source(
        format=FORMAT, sha256=reading.digest(path),
        writer_version=text(mapping(document.get("metadata")).get("promptfooVersion")) or None,
    )  # fmt: skip
    eval_id = text(document.get("evalId")) or source.sha256
    found: dict[int, Column] = {}
    rows.runs_of(path, (found.setdefault(cell.column.place, cell.column).place for cell in cells(path, document)))
    if not found:
        raise Unreadable("it has no result", where=path.name)
    for index, column in sorted(found.items()):
        run = Run(
            benchmark=text(mapping(document.get("config")).get("description")) or BENCHMARK,
            source=source,
            model=column.provider or None,
            run_id=f"{eval_id}, column {index}",
            started_at=instant(results.get("timestamp")),
            claims=claims_of(prompts_of(results), index),
            notes=notes_on(document, start),
            raw=document,
            settings={"prompt": column.prompt, **mapping(document.get("runtimeOptions"))},
            results=(),
        )
        run.results = results_of(path, document, index, run.notes)
        yield run


def without_secrets(value: Any, *, levels: int = MAX_DEPTH) -> Any:
    """Configurations may hold keys of providers; they are none of a run's results."""
    if isinstance(value, dict | list) and not levels:
        return LEFT_OUT
    if isinstance(value, list):
        return [without_secrets(each, levels=levels - 1) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: LEFT_OUT if SECRET.search(key) and isinstance(each, str) else without_secrets(each, levels=levels - 1)
        for key, each in value.items()
    }


def prompts_of(results: dict[str, Any]) -> list[Any]:
    """The columns as the document describes them: at the top in version 3, in the table's head in version 2."""
    return sequence(results.get("prompts")) or sequence(
        mapping(mapping(results.get("table")).get("head")).get("prompts")
    )


def claims_of(prompts: list[Any], index: int) -> list[Claim]:
    metrics = mapping(mapping(prompts[index]).get("metrics")) if index < len(prompts) else {}
    passed, failed, errors = (count(metrics.get(f"test{each}Count")) for each in ("Pass", "Fail", "Error"))
    if passed is None or failed is None or not (n := passed + failed + (errors or 0)):
        return []
    claims = [
        Claim(
            metric="pass_rate",
            scorer=PASS,
            value=passed / n,
            n=n,
            higher_is_better=True,
            where="errors count as failed",
        )
    ]
    if (total := number(metrics.get("score"))) is not None:
        claims.append(Claim(metric="score", scorer=SCORE, value=total / n, n=n, higher_is_better=True))
    if (total := number(metrics.get("cost"))) is not None:
        claims.append(Claim(metric="cost_usd", scorer="usage", value=total))
    return claims


def notes_on(document: dict[str, Any], start: bytes) -> list[Note]:
    notes = []
    if is_csv(start):
        notes.append(Note(kind="missing", text=(
            "promptfoo's CSV has scores to two places, and no tokens, costs or times; repeats and tests with the same "
            "variables look alike"
        )))  # fmt: skip
    elif not document:
        notes.append(
            Note(kind="missing", text="promptfoo's JSONL does not name the evaluation, its settings or its time")
        )
    repeat = count(mapping(document.get("runtimeOptions")).get("repeat"))
    if repeat and repeat > 1:
        notes.append(
            Note(
                kind="assumed",
                text=f"run with --repeat {repeat}: answers to the same variables and assertions are repeats",
            )
        )
    return notes


# --- answers ---


def results_of(path: Path, document: dict[str, Any], index: int, notes: list[Note]) -> Iterator[Result]:
    repeats: Counter[str] = Counter()
    calls: dict[str, set[str]] = {}  # the answers kept for each problem, as digests
    seen: Counter[str] = Counter()
    for cell in cells(path, document):
        if cell.column.place != index:
            continue
        seen["answers"] += 1
        answer = digest(output_of(cell.record))
        if is_cached(cell.record):
            seen["cached"] += 1
            if answer in calls.get(cell.problem, ()):
                seen["repeated from the cache"] += 1
                continue
        calls.setdefault(cell.problem, set()).add(answer)
        for result in measured(cell, repeat=repeats[cell.problem]):
            seen["off scale"] += result.raw_score is not None
            yield result
        seen["errors"] += is_error(cell.record)
        seen["unasserted"] += is_unasserted(cell.record)
        repeats[cell.problem] += 1
    notes += notes_at_end(seen)


def notes_at_end(seen: Counter[str]) -> Iterator[Note]:
    if again := seen["repeated from the cache"]:
        yield Note(kind="odd", text=(
            f"{again} of {seen['answers']} answers are repeats that promptfoo took from its cache: "
            "the same call, counted once"
        ))  # fmt: skip
    if cached := seen["cached"]:
        yield Note(kind="missing", text=f"answers from promptfoo's cache, whose latency is not known: {cached}")
    if errors := seen["errors"]:
        yield Note(kind="missing", text=f"{rate(errors, seen['answers'])} answers could not be had (failureReason 2)")
    if seen["unasserted"]:
        yield Note(
            kind="missing",
            text=f"answers without an assertion, passed by promptfoo and unscored here: {seen['unasserted']}",
        )
    if seen["off scale"]:
        yield Note(kind="odd", text=f"scores outside [0, 1], kept raw and not scored: {seen['off scale']}")


def measured(cell: Cell, *, repeat: int) -> Iterator[Result]:
    record = cell.record
    grading, metadata = mapping(record.get("gradingResult")), mapping(mapping(record.get("testCase")).get("metadata"))
    failed, unasserted, cached = is_error(record), is_unasserted(record), is_cached(record)
    scores = {PASS: record.get("success"), SCORE: record.get("score"), **mapping(record.get("namedScores"))}
    raw = without_secrets(cell.raw)
    for scorer, value in scores.items():
        if value is None and not failed:
            continue
        score = None if failed or unasserted else unit(value)
        status: Status = "error" if failed else "unscored" if score is None else "scored"
        yield Result(
            problem=cell.problem,
            scorer=identity(scorer) or SCORE,
            status=status,
            repeat=repeat,
            score=score,
            raw_score=value if score is None and not failed and not unasserted else None,
            explanation=text(record.get("error")) if failed else text(grading.get("reason")),
            prompt=text(mapping(record.get("prompt")).get("raw")) or None,
            output=output_of(record),
            slices={
                key: value for key, value in metadata.items() if isinstance(value, str) and not key.startswith("_")
            },
            usage=None if cached else usage_of(record),
            cost_usd=cost(record.get("cost")),
            latency_ms=None if cached else latency_of(record),
            raw=raw,
        )
        raw = {}  # once is enough


def is_error(record: dict[str, Any]) -> bool:
    """failureReason says so; older files only have an error and nothing graded."""
    reason = record.get("failureReason")
    return reason == ERROR if reason is not None else bool(record.get("error")) and not record.get("gradingResult")


def is_unasserted(record: dict[str, Any]) -> bool:
    return text(mapping(record.get("gradingResult")).get("reason")) == "No assertions"


def is_cached(record: dict[str, Any]) -> bool:
    """Whether promptfoo's own cache had the answer. `cached` tokens are hits there, not in the provider's cache."""
    tokens = tokens_of(record)
    return mapping(record.get("response")).get("cached") is True or bool(
        count(tokens.get("cached")) and not count(tokens.get("prompt"))
    )


def output_of(record: dict[str, Any]) -> str:
    return text(mapping(record.get("response")).get("output"))


def latency_of(record: dict[str, Any]) -> float | None:
    latency = number(record.get("latencyMs"))
    return latency if latency is not None and latency >= 0 else None


def tokens_of(record: dict[str, Any]) -> dict[str, Any]:
    return mapping(mapping(record.get("response")).get("tokenUsage")) or mapping(record.get("tokenUsage"))


def usage_of(record: dict[str, Any]) -> Usage | None:
    """No tokens at all is a provider that does not count. Prompt tokens include what the provider's cache had."""
    tokens = tokens_of(record)
    details = mapping(tokens.get("completionDetails"))
    taken, given = count(tokens.get("prompt")), count(tokens.get("completion"))
    if not taken and not given:
        return None
    read, written = count(details.get("cacheReadInputTokens")), count(details.get("cacheCreationInputTokens"))
    fresh = None if taken is None else taken - (read or 0) - (written or 0)
    return Usage(
        input=fresh if fresh is not None and fresh >= 0 else None, cache_read=read, cache_write=written, output=given,
        reasoning=count(details.get("reasoning")),
    )  # fmt: skip


# --- the forms of the format ---


def cells(path: Path, document: dict[str, Any]) -> Iterator[Cell]:
    start = reading.head(path)
    if is_csv(start) and not is_json(start):
        yield from cells_of_csv(path)
    elif "table" in mapping(document.get("results")):
        yield from cells_of_table(path, mapping(mapping(document["results"])["table"]))
    else:
        records = (
            reading.elements_at(path, "results", "results")
            if document
            else (record for _, record in rows.records(path))
        )
        yield from cells_of_records(records, where=path.name)


def cells_of_records(records: Iterable[Any], *, where: str) -> Iterator[Cell]:
    for place, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise Unreadable("a result is an object", where=f"{where}, result {place}")
        provider = mapping(record.get("provider"))
        prompt = mapping(record.get("prompt"))
        column = Column(
            place=count(record.get("promptIdx")) or 0,
            provider=text(provider.get("label") or provider.get("id") or record.get("provider")),
            prompt=text(prompt.get("label")) or text(prompt.get("raw")),
        )  # fmt: skip
        yield Cell(
            column, problem_of(record.get("vars"), mapping(record.get("testCase")).get("assert")), record, record
        )


def cells_of_table(path: Path, table: dict[str, Any]) -> Iterator[Cell]:
    """Version 2: one row for each test, with an output for each prompt."""
    head = mapping(table.get("head"))
    names = [text(each) for each in sequence(head.get("vars"))]
    prompts = [mapping(each) for each in sequence(head.get("prompts"))]
    for place, row in enumerate(reading.elements_at(path, "results", "table", "body"), start=1):
        if not isinstance(row, dict):
            raise Unreadable("a row of the table is an object", where=f"{path.name}, row {place}")
        values = dict(zip(names, sequence(row.get("vars")), strict=False))
        test = mapping(row.get("test"))
        for index, output in enumerate(map(mapping, sequence(row.get("outputs")))):
            prompt = prompts[index] if index < len(prompts) else {}
            column = Column(
                place=index, provider=text(output.get("provider")) or text(prompt.get("provider")),
                prompt=text(prompt.get("label")) or text(prompt.get("display")) or text(prompt.get("raw")),
            )  # fmt: skip
            record = {
                **output,
                "success": output.get("pass"),
                "response": {
                    "tokenUsage": output.get("tokenUsage"),
                    **mapping(output.get("response")),
                    "output": output.get("text"),
                },
                "prompt": {"raw": output.get("prompt")},
                "testCase": test,
            }
            yield Cell(
                column, problem_of(values, test.get("assert")), record, {"output": output, "vars": values, "test": test}
            )


def cells_of_csv(path: Path) -> Iterator[Cell]:
    """One row for each test; for each prompt a column of answers, headed [provider] prompt, and columns about them."""
    lines = rows.csv_cells(path)
    header = next(lines, [])
    blocks = [place for place in range(len(header) - 2) if header[place + 1 : place + 3] == ["Status", "Score"]]
    if not blocks:
        raise Unreadable("no column of answers followed by Status and Score", where=path.name)
    for row in lines:
        cells_in_row = dict(zip(header[: blocks[0]], row, strict=False))
        for index, (start, end) in enumerate(zip(blocks, [*blocks[1:], len(header)], strict=True)):
            about = dict(zip(header[start + 1 : end], row[start + 1 : end], strict=False))
            provider, prompt = provider_and_prompt(header[start])
            status = about.get("Status", "")
            named = {
                name.removeprefix("Metric: "): written(value)
                for name, value in about.items()
                if name.startswith("Metric: ") and value
            }
            record = {
                "success": {"PASS": True, "FAIL": False}.get(status),
                "score": written(about.get("Score", "")),
                "namedScores": named,
                "failureReason": ERROR if status == "ERROR" else 0,
                "response": {"output": row[start] if start < len(row) else ""},
                "gradingResult": {"reason": about.get("Grader Reason", "")},
            }
            raw = {"vars": cells_in_row, "answer": row[start] if start < len(row) else "", **about}
            yield Cell(Column(index, provider, prompt), problem_of(cells_in_row, None), record, raw)


def provider_and_prompt(heading: str) -> tuple[str, str]:
    """ "[openai:gpt-5] Say {{x}}"."""
    found = re.match(r"\[([^\]]*)\] ?(.*)", heading, re.DOTALL)
    return (found[1], found[2]) if found else ("", heading)


def written(cell: str) -> float | None:
    try:
        return number(float(cell))
    except ValueError:
        return None


def problem_of(variables: Any, assertions: Any) -> str:
    """A test has no id of its own: its variables and assertions name it. (A CSV has no assertions.)"""
    return digest(compact(variables), "" if assertions is None else compact(assertions))
