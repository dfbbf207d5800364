"""Inspect's logs: `.eval` archives (deflate or Zstandard, finished or not) and `.json`.

Every sample has one result for each scorer; a scorer whose value is an object gives one for each key, `scorer/key`. An
epoch is a repeat, counted from 0. NaN and null are Inspect's mark for unscored. Of letters C is 1, P 1/2, I and N 0;
another text is a category and stays unscored. The header alone tells what a run says of itself: samples are read only
when `results` is.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from evals.importers import reading
from evals.importers.archive import Archive
from evals.importers.errors import Unreadable
from evals.importers.fields import cost, identity, listed, text
from evals.importers.reading import count_of, mapping, number_of, sequence, time_of
from evals.importers.record import Claim, Note, Result, Run, Source, Usage

FORMAT = "inspect"
START, HEADER, SAMPLES = "_journal/start.json", "header.json", "samples/"
MAX_HEADER_BYTES = reading.MAX_DOCUMENT_BYTES
LEFT_IN_THE_FILE = ("events", "events_data", "message_pool", "transcript", "store")  # most of a log's bytes
SMALL_BYTES = 4 * 1024**2  # a sample that is decoded at once; a larger one is scanned past its events
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
NO_SCORER = "score"
MAX_SLICE = 60  # characters of a metadata value that may stand for a slice
MAX_SLICES = 12

Samples = Callable[["Counter[str]"], Iterator[dict[str, Any]]]


def recognises(path: Path) -> bool:
    if not path.is_file():
        return False
    start = reading.head(path)
    if start.startswith(b"PK"):
        return path.suffix == ".eval" or START.encode() in start or b"header.json" in start
    marks = (b'"eval"', b'"run_id"', b'"task"')
    return start.lstrip().startswith(b"{") and all(mark in start for mark in marks)


def read(path: Path) -> Iterator[Run]:
    not_finite: Counter[str] = Counter()
    if reading.head(path, 2) == b"PK":
        header, present = _header_of_archive(path, not_finite)
        samples: Samples = lambda odd: _samples_of_archive(path, odd)  # noqa: E731
    else:
        header, present = _header_of_json(path, not_finite), None
        samples = lambda odd: _samples_of_json(path, odd)  # noqa: E731
    yield _run(path, header, present, samples)


def _header_of_archive(path: Path, not_finite: "Counter[str]") -> tuple[dict[str, Any], int]:
    """(header, number of samples). An unfinished log has no header yet: its journal says how it began."""
    with Archive(path) as archive:
        member = archive.last(HEADER) or archive.last(START)
        if member is None:
            raise Unreadable(f"neither {HEADER} nor {START}; give a log that Inspect wrote", where=path.name)
        data = archive.read(member, MAX_HEADER_BYTES)
        header = reading.parse(data, where=archive.where(member), not_finite=not_finite)
        present = sum(_is_sample(each.filename) for each in archive.members)
        return _checked(header, path), present


def _header_of_json(path: Path, not_finite: "Counter[str]") -> dict[str, Any]:
    with reading.open_file(path) as file:
        header = reading.outline_of(
            file, where=path.name, without=[("samples",), ("reductions",)], not_finite=not_finite
        )
    return _checked(header, path)


def _checked(header: Any, path: Path) -> dict[str, Any]:
    spec = mapping(mapping(header).get("eval"))
    if not text(spec.get("task")):
        raise Unreadable("there is no eval.task; give a log that Inspect wrote", where=path.name)
    return dict(header)


def _is_sample(name: str) -> bool:
    return name.startswith(SAMPLES) and name.endswith(".json")


def _samples_of_archive(path: Path, not_finite: "Counter[str]") -> Iterator[dict[str, Any]]:
    with Archive(path) as archive:
        for member in archive.members:  # not by name: two samples of one id have one name
            if _is_sample(member.filename):
                where = archive.where(member)
                if member.file_size <= SMALL_BYTES:
                    sample = reading.parse(archive.read(member, SMALL_BYTES), where=where, not_finite=not_finite)
                    yield _without_heavy(_object(sample, where))
                    continue
                with archive.open(member) as stream:
                    sample = reading.outline_of(stream, where=where, without=_heavy(), not_finite=not_finite)
                    while stream.read(1024**2):  # to the end, where the checksum is
                        pass
                yield _object(sample, where)


def _samples_of_json(path: Path, not_finite: "Counter[str]") -> Iterator[dict[str, Any]]:
    for number, sample in enumerate(
        reading.elements_at(path, "samples", without=_heavy(), not_finite=not_finite), start=1
    ):
        yield _object(sample, f"{path.name}, sample {number}")


def _heavy() -> list[tuple[str, ...]]:
    return [(name,) for name in LEFT_IN_THE_FILE]


def _without_heavy(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name not in LEFT_IN_THE_FILE}


def _object(sample: Any, where: str) -> dict[str, Any]:
    if not isinstance(sample, dict) or "id" not in sample:
        raise Unreadable("a sample is an object with an id", where=where)
    return sample


def _run(path: Path, header: dict[str, Any], present: int | None, samples: Samples) -> Run:
    spec, stats, plan = (mapping(header.get(name)) for name in ("eval", "stats", "plan"))
    notes = list(_notes_on_header(header))
    run = Run(
        benchmark=text(spec["task"]),
        benchmark_version=text(spec.get("task_version")),
        source=Source(
            format=FORMAT,
            writer_version=text(mapping(spec.get("packages")).get("inspect_ai")) or None,
            sha256=reading.digest(path),
        ),
        results=(),
        model=text(spec.get("model")) or None,
        run_id=text(spec.get("eval_id")) or text(spec.get("run_id")) or None,
        claims=list(_claims(header, notes)),
        notes=notes,
        settings={
            "config": mapping(spec.get("config")),
            "generate": mapping(spec.get("model_generate_config")) or mapping(plan.get("config")),
            "task_args": mapping(spec.get("task_args")),
            "dataset": {key: value for key, value in mapping(spec.get("dataset")).items() if key != "sample_ids"},
        },
        raw=header,
    )
    began = stats.get("started_at") or spec.get("created")
    run.started_at, is_assumed = time_of(began)
    if is_assumed:
        notes.append(Note(kind="assumed", text=f"the time {began} has no zone; it is taken as UTC"))
    if present != 0:
        run.results = _results(header, samples, notes)
    else:
        notes.append(Note(kind="missing", text="the log has no samples"))
    return run


def _notes_on_header(header: Mapping[str, Any]) -> Iterator[Note]:
    status = text(header.get("status")) or "started"
    if status == "started":
        yield Note(kind="missing", text="the log is unfinished: import it again when the run is over")
    elif status != "success":
        why = text(mapping(header.get("error")).get("message"))
        yield Note(kind="missing", text=f"the run ended as {status}{f': {why}' if why else ''}")
    if header.get("invalidated") is True:
        yield Note(kind="odd", text="its writer marked the log as invalidated")
    spec = mapping(header.get("eval"))
    dataset, config = mapping(spec.get("dataset")), mapping(spec.get("config"))
    size, asked = count_of(dataset.get("samples")), sequence(dataset.get("sample_ids"))
    if size and asked and len(asked) < size:
        limit = f" (limit {config['limit']})" if config.get("limit") is not None else ""
        yield Note(kind="missing", text=f"{len(asked):,} of the data set's {size:,} samples were asked{limit}")


def _claims(header: Mapping[str, Any], notes: list[Note]) -> Iterator[Claim]:
    """A scorer is there once for each reducer of its epochs."""
    results = mapping(header.get("results"))
    for one in map(mapping, sequence(results.get("scores"))):
        metrics = {name: mapping(value).get("value") for name, value in mapping(one.get("metrics")).items()}
        scored = count_of(one.get("scored_samples"))
        n = scored if scored is not None else count_of(results.get("completed_samples"))
        scorer = claimed_scorer(text(one.get("name")), text(one.get("scorer")))
        error = number_of(metrics.get("stderr"))
        if n == 1 and error == 0:
            notes.append(Note(kind="odd", text=f"{scorer}: the log states a standard error of 0 for one sample"))
            error = None
        for name, value in metrics.items():
            for part, number in value.items() if isinstance(value, dict) else [("", value)]:
                if name != "stderr" or len(metrics) == 1:
                    yield Claim(
                        metric=f"{name}.{part}" if part else name,
                        scorer=scorer,
                        value=number_of(number),
                        stderr=error if not part else None,
                        n=n,
                        where=f"reducer {one['reducer']}" if one.get("reducer") else "",
                    )


def claimed_scorer(name: str, scorer: str) -> str:
    """How the results name what a header calls (name, scorer).

    (match, match) and (match1, match) are scorers of their own; (safety, rubric) is the key `safety` of `rubric`.
    """
    return f"{scorer}/{name}" if scorer and name and not name.startswith(scorer) else name or scorer or NO_SCORER


def _results(header: Mapping[str, Any], samples: Samples, notes: list[Note]) -> Iterator[Result]:
    spec = mapping(header.get("eval"))
    model, scorers = text(spec.get("model")), _scorers(header)
    seen: Counter[tuple[str, int]] = Counter()
    repeated: list[str] = []
    not_finite: Counter[str] = Counter()
    left_out, unbalanced, present = 0, 0, 0
    for sample in samples(not_finite):
        present += 1
        name, repeat = identity(sample["id"]), max((count_of(sample.get("epoch")) or 1) - 1, 0)
        seen[name, repeat] += 1
        if seen[name, repeat] > 1:
            repeated.append(name)
            name = identity(f"{name}#{seen[name, repeat]}")
        usage = _usage(sample, model)
        unbalanced += not _adds_up(usage)
        left_out += "messages" in sample
        for place, (scorer, score) in enumerate(_scores(sample, scorers)):
            yield _result(sample, name, repeat, scorer, score, usage, is_first=not place)
    notes.extend(_notes_on_samples(header, present, repeated, not_finite, left_out, unbalanced))


def _scorers(header: Mapping[str, Any]) -> list[str]:
    """Those the header names, for samples that ended without a score."""
    scores = [mapping(one) for one in sequence(mapping(header.get("results")).get("scores"))]
    named = [claimed_scorer(text(one.get("name")), text(one.get("scorer"))) for one in scores]
    named = named or [text(mapping(one).get("name")) for one in sequence(mapping(header.get("eval")).get("scorers"))]
    return list(dict.fromkeys(name for name in named if name)) or [NO_SCORER]


def _scores(sample: Mapping[str, Any], scorers: Sequence[str]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """(scorer, its score), keys of an object apart; (scorer, None) for every known scorer where there is none."""
    scores = mapping(sample.get("scores")) or ({scorers[0]: sample["score"]} if sample.get("score") else {})
    if not scores:
        yield from ((scorer, None) for scorer in scorers)
    for name, score in scores.items():
        found = mapping(score)
        values = found.get("value")
        if isinstance(values, dict) and values:
            yield from ((f"{name}/{key}", found | {"value": value}) for key, value in values.items())
        else:
            yield name, found


def _result(
    sample: dict[str, Any],
    name: str,
    repeat: int,
    scorer: str,
    score: dict[str, Any] | None,
    usage: Mapping[str, Any],
    *,
    is_first: bool,
) -> Result:
    value, why = _value(score, sample)
    stated = score.get("value") if score else None
    failed = score is None and sample.get("error")
    return Result(
        problem=name,
        scorer=scorer,
        repeat=repeat,
        status="scored" if value is not None else "error" if failed else "unscored",
        score=value,
        raw_score=None if value is not None and value == stated and not isinstance(stated, bool) else stated,
        explanation=why or text(mapping(score).get("explanation")),
        **_asked(sample),
        reference=_target(sample.get("target")),
        output=_resolved(_answer(sample), sample),
        slices=_slices(sample),
        usage=_counted(usage),
        cost_usd=_cost(usage),
        latency_ms=_latency_ms(sample),
        raw=sample if is_first else {},
    )


def _value(score: Mapping[str, Any] | None, sample: Mapping[str, Any]) -> tuple[float | None, str]:
    """(value in [0, 1], why there is none)."""
    if score is None:
        error = text(mapping(sample.get("error")).get("message"))
        return None, error or "the log has no score for this sample"
    value = score.get("value")
    if value is None:
        return None, text(score.get("explanation")) or "unscored: the value is NaN or null"
    if isinstance(value, bool):
        return float(value), ""
    if isinstance(value, str):
        found = LETTERS.get(value, WORDS.get(value.lower()))
        if found is None:
            found = number_of(value)
        if found is None:
            return None, f"{value[:60]!r} is a category, not a number"
    else:
        found = number_of(value)
        if found is None:
            return None, "the value is not one number"
    return (found, "") if 0 <= found <= 1 else (None, f"{found:g} is outside 0 to 1, and its scale is not known")


def _asked(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt, or the messages where the input is a chat of more than one plain text."""
    asked = sample.get("input")
    if isinstance(asked, str):
        return {"prompt": _resolved(asked, sample)}
    chat = [mapping(message) for message in sequence(asked)]
    kept = [{"role": text(m.get("role")) or "user", "content": _resolved(_content(m), sample)} for m in chat if m]
    return {"messages": kept} if kept else {}


def _answer(sample: Mapping[str, Any]) -> str:
    output = mapping(sample.get("output"))
    choice = mapping(next(iter(sequence(output.get("choices"))), None))
    return _content(mapping(choice.get("message"))) or text(output.get("completion"))


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(text(mapping(part).get("text")) for part in sequence(content) if mapping(part).get("text"))


def _resolved(value: str, sample: Mapping[str, Any]) -> str:
    """What a reference `attachment://<hash>` stands for."""
    if not value.startswith("attachment://"):
        return value
    return text(mapping(sample.get("attachments")).get(value.removeprefix("attachment://"))) or value


def _target(target: Any) -> str | None:
    if target is None:
        return None
    return "\n".join(map(text, target)) if isinstance(target, list) else text(target)


def _slices(sample: Mapping[str, Any]) -> dict[str, str]:
    """Short texts of the metadata, and the limit that ended the sample."""
    short = {
        key: value
        for key, value in mapping(sample.get("metadata")).items()
        if isinstance(value, str) and 0 < len(value) <= MAX_SLICE and len(key) <= MAX_SLICE
    }
    found = dict(list(short.items())[:MAX_SLICES])
    limit = text(mapping(sample.get("limit")).get("type"))
    return found | {"limit": limit} if limit else found


def _usage(sample: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Of the model that is measured, not of judges."""
    by_model = mapping(sample.get("model_usage"))
    found = by_model.get(model)
    if found is None and len(by_model) == 1:
        found = next(iter(by_model.values()))
    return mapping(found) or mapping(mapping(sample.get("output")).get("usage"))


def _counted(usage: Mapping[str, Any]) -> Usage | None:
    """Inspect's input leaves cache reads and writes out already."""
    if not usage:
        return None
    return Usage(
        input=count_of(usage.get("input_tokens")),
        cache_read=count_of(usage.get("input_tokens_cache_read")),
        cache_write=count_of(usage.get("input_tokens_cache_write")),
        output=count_of(usage.get("output_tokens")),
        reasoning=count_of(usage.get("reasoning_tokens")),
    )


def _adds_up(usage: Mapping[str, Any]) -> bool:
    total = count_of(usage.get("total_tokens"))
    names = ("input_tokens", "output_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    return total is None or total == sum(count_of(usage.get(name)) or 0 for name in names)


def _cost(usage: Mapping[str, Any]) -> Decimal | None:
    return cost(usage.get("total_cost"))


def _latency_ms(sample: Mapping[str, Any]) -> float | None:
    """Time at work, without waiting for rate limits and retries; old logs have the total only."""
    seconds = number_of(sample.get("working_time"))
    seconds = number_of(sample.get("total_time")) if seconds is None else seconds
    return seconds * 1000 if seconds is not None and 0 <= seconds < 1e9 else None


def _notes_on_samples(
    header: Mapping[str, Any],
    present: int,
    repeated: Sequence[str],
    not_finite: "Counter[str]",
    left_out: int,
    unbalanced: int,
) -> Iterator[Note]:
    stated = count_of(mapping(header.get("results")).get("total_samples"))
    if stated is not None and stated != present:
        yield Note(kind="missing", text=f"the log's results are of {stated:,} samples; here: {present:,}")
    if repeated:
        names = listed(dict.fromkeys(repeated))
        yield Note(kind="odd", text=f"ids that more than one sample has, kept apart as id#2, id#3: {names}")
    if not_finite:
        told = ", ".join(f"{times:,} × {name}" for name, times in sorted(not_finite.items()))
        yield Note(kind="odd", text=f"the log has {told}; they count as no value")
    if unbalanced:
        yield Note(kind="odd", text=f"the tokens of {unbalanced:,} samples do not add up to their total")
    if left_out:
        yield Note(kind="missing", text="events and stores of the samples stay in the log; messages are here")
