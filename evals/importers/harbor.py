"""Harbor: a job's `result.json`, a job's folder with its trials' records, or one trial's `result.json`.

A trial may have ended in an error and have a valid reward: then the reward counts, and errored + completed is more than
the total. A trial without a reward is masked; Harbor's own mean takes it as 0, and a note names both. Input tokens
include those read from a cache, so these are taken off.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import cost, count, elapsed_ms, identity, instant, is_naive, number, rate, text, unit
from evals.importers.reading import mapping, sequence
from evals.importers.record import Claim, Note, Result, Run, Source, Usage

FORMAT = "harbor"
BENCHMARK = "harbor"
AS_HARBOR_COUNTS = "all trials, as Harbor counts"
REWARD = "reward"  # the reward that Harbor's mean is of, and the name a trial without any goes under


class Measured(NamedTuple):
    """What one run of a job is of. Harbor joins the three with "__"."""

    agent: str
    model: str
    dataset: str

    @classmethod
    def from_key(cls, key: str) -> "Measured":
        parts = key.split("__", 2)
        return cls(*parts) if len(parts) == 3 else cls(parts[0], "", parts[-1] if len(parts) == 2 else "")

    @classmethod
    def from_trial(cls, trial: dict[str, Any]) -> "Measured":
        agent = mapping(trial.get("agent_info"))
        return cls(
            text(agent.get("name")), text(mapping(agent.get("model_info")).get("name")), text(trial.get("source"))
        )

    def run(self, source: Source, **fields: Any) -> Run:
        model = " / ".join(each for each in (self.agent, self.model) if each) or None
        return Run(benchmark=self.dataset or BENCHMARK, source=source, model=model, **fields)


def recognises(path: Path) -> bool:
    if path.is_dir():
        result = rows.file_in(path, "result.json")
        return bool(result and recognises(result)) or bool(trial_files(path))
    start = reading.head(path)
    return is_job(start) or is_trial(start)


def is_job(start: bytes) -> bool:
    return b'"stats"' in start and b'"evals"' in start and (b'"n_total_trials"' in start or b'"n_trials"' in start)


def is_trial(start: bytes) -> bool:
    return b'"trial_name"' in start and b'"task_checksum"' in start


def read(path: Path) -> Iterator[Run]:
    """A job with its trials' records: one run for each agent, model and data set. Without them: from its statistics."""
    job_path, files = job_and_trials(path)
    job = load_object(job_path) if job_path else {}
    source = Source(format=FORMAT, sha256=reading.digest(*dict.fromkeys([*([job_path] if job_path else []), *files])))
    found = rows.runs_of(path, (Measured.from_trial(trial) for trial in trials(files)))
    stats = mapping(job.get("stats"))
    if not found and not mapping(stats.get("evals")):
        raise Unreadable(
            "neither a job (stats.evals, trial_results) nor a trial (trial_name, task_checksum)", where=path.name
        )
    by_key = {Measured.from_key(key): mapping(value) for key, value in mapping(stats.get("evals")).items()}
    sole = next(iter(by_key.values())) if len(by_key) == len(found) == 1 else {}
    for measured in found or by_key:
        eval_stats = by_key.get(measured, sole)
        notes = notes_on_job(job)
        yield measured.run(
            source,
            run_id=text(job.get("id")) or None,
            started_at=instant(job.get("started_at")),
            claims=[*claims_of(eval_stats), *claims_on_tokens(stats)],
            notes=notes,
            raw=job,
            results=results_of_trials(files, measured, notes) if found else results_of_stats(eval_stats, notes),
        )


def job_and_trials(path: Path) -> tuple[Path | None, list[Path]]:
    """The file that states the job, and those with trials' records: the job's own, its folders', or one trial's."""
    result = rows.file_in(path, "result.json") if path.is_dir() else path
    if result is not None and is_trial(start := reading.head(result)) and not is_job(start):
        return None, [result]
    return result, (trial_files(path) if path.is_dir() else []) or ([result] if result else [])


def load_object(path: Path) -> dict[str, Any]:
    found = reading.outline(path, without=[("trial_results",)])
    if not isinstance(found, dict):
        raise Unreadable("a result is one JSON object", where=path.name)
    return found


def trial_files(folder: Path) -> list[Path]:
    """result.json of each trial's folder in a job's folder."""
    found = [rows.file_in(each, "result.json") for each in reading.folders_in(folder)]
    return [each for each in found if each and is_trial(reading.head(each))]


def trials(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        start = reading.head(path)
        if is_trial(start) and not is_job(start):
            yield load_object(path)
            continue
        for place, trial in enumerate(reading.elements_at(path, "trial_results"), start=1):
            if not isinstance(trial, dict):
                raise Unreadable("a trial is an object", where=f"{path.name}, trial {place}")
            yield trial


# --- what the job states ---


def claims_of(stats: dict[str, Any]) -> list[Claim]:
    n = count(stats.get("n_trials"))
    means = [
        Claim(metric=name, scorer=REWARD, value=number(value), n=n, higher_is_better=True, where=AS_HARBOR_COUNTS)
        for metric in sequence(stats.get("metrics"))
        for name, value in mapping(metric).items()
    ]  # fmt: skip
    pass_at = mapping(stats.get("pass_at_k")).items()
    return means + [
        Claim(metric=f"pass@{k}", scorer=REWARD, value=number(value), higher_is_better=True) for k, value in pass_at
    ]


def claims_on_tokens(stats: dict[str, Any]) -> list[Claim]:
    totals = {"n_input_tokens": "cached ones included", "n_cache_tokens": "", "n_output_tokens": "", "cost_usd": ""}
    return [
        Claim(metric=key, scorer="usage", value=number(stats[key]), where=", ".join(filter(None, ("whole job", more))))
        for key, more in totals.items()
        if number(stats.get(key)) is not None
    ]


def notes_on_job(job: dict[str, Any]) -> list[Note]:
    notes, stats = [], mapping(job.get("stats"))
    if any(is_naive(job.get(key)) for key in ("started_at", "finished_at")):
        notes.append(Note(kind="assumed", text="the job's times have no zone: taken as UTC"))
    if stats and stats.get("cost_usd") is None:
        notes.append(Note(kind="missing", text="the job's cost is not reported: unpriced, not free"))
    completed, errored = count(stats.get("n_completed_trials")), count(stats.get("n_errored_trials"))
    total = count(job.get("n_total_trials"))
    if completed and errored and total is not None and completed + errored > total:
        notes.append(Note(kind="odd", text=(
            f"{completed} completed and {errored} errored trials are more than {total}: a trial may be both"
        )))  # fmt: skip
    for state in ("running", "pending", "cancelled"):
        if left := count(stats.get(f"n_{state}_trials")):
            notes.append(Note(kind="missing", text=f"trials {state} when the job was written: {left}"))
    return notes


# --- results ---


class Tally:
    """What the notes at the end of a run say."""

    def __init__(self) -> None:
        self.num_trials = 0
        self.rewards: list[float] = []  # of the main reward
        self.failures: Counter[str] = Counter()
        self.num_failed_with_reward = 0
        self.num_off_scale = 0
        self.num_caches_too_large = 0

    def add(self, reward: float | None, failure: str) -> None:
        self.num_trials += 1
        if reward is not None:
            self.rewards.append(reward)
        if failure:
            self.failures[failure] += 1
            self.num_failed_with_reward += reward is not None

    def notes(self) -> Iterator[Note]:
        if not self.num_trials:
            yield Note(kind="missing", text="no data: no trial is named")
            return
        if self.failures:
            kinds = ", ".join(f"{number_of} {kind}" for kind, number_of in self.failures.most_common())
            yield Note(kind="odd", text=(
                f"trials that ended in an error: {self.failures.total()} ({kinds}); "
                f"with a reward all the same, which counts: {self.num_failed_with_reward}"
            ))  # fmt: skip
        if num_without := self.num_trials - len(self.rewards):
            total = sum(self.rewards)
            among = f", of those with a reward {rate(total, len(self.rewards))}" if self.rewards else ""
            yield Note(kind="missing", text=(
                f"{num_without} of {self.num_trials} trials have no reward; Harbor's mean takes them as 0, "
                f"{rate(total, self.num_trials)}{among}"
            ))  # fmt: skip
        if self.num_off_scale:
            yield Note(kind="odd", text=f"rewards outside [0, 1], kept raw and not scored: {self.num_off_scale}")
        if self.num_caches_too_large:
            yield Note(kind="odd", text=(
                f"trials that read more from a cache than they took in, input unknown: {self.num_caches_too_large}"
            ))  # fmt: skip


def results_of_stats(stats: dict[str, Any], notes: list[Note]) -> Iterator[Result]:
    """A job without its trials' records names each trial under its reward and under its exception."""
    failures = {
        text(name): kind for kind, names in mapping(stats.get("exception_stats")).items() for name in sequence(names)
    }
    rewards: dict[str, dict[str, float | None]] = {}
    for reward, by_value in mapping(stats.get("reward_stats")).items():
        for value, names in mapping(by_value).items():
            for name in sequence(names):
                rewards.setdefault(text(name), {}).setdefault(reward, number_written(value))
    tally, attempts = Tally(), Counter[str]()
    for name in dict.fromkeys([*rewards, *failures]):
        problem = identity(name.rpartition("__")[0] or name)
        raw = {"trial_name": name, "rewards": rewards.get(name, {}), "exception": failures.get(name)}
        yield from results_of(
            rewards.get(name, {}), failures.get(name, ""), tally, problem=problem, repeat=attempts[problem], raw=raw
        )
        attempts[problem] += 1
    notes += tally.notes()
    stated = count(stats.get("n_trials"))
    if stated is not None and stated != tally.num_trials:
        notes.append(Note(kind="missing", text=f"n_trials is {stated}, {tally.num_trials} trials are named"))


def results_of_trials(files: list[Path], measured: Measured, notes: list[Note]) -> Iterator[Result]:
    tally, attempts = Tally(), Counter[str]()
    num_naive = 0
    for trial in trials(files):
        if Measured.from_trial(trial) != measured:
            continue
        problem = identity(trial.get("task_name") or trial.get("trial_name"))
        timing = mapping(trial.get("agent_execution"))
        usage, cost_usd = usage_of(trial, tally)
        num_naive += is_naive(trial.get("started_at"))
        yield from results_of(
            mapping(mapping(trial.get("verifier_result")).get("rewards")),
            text(mapping(trial.get("exception_info")).get("exception_type")),
            tally,
            is_valid=trial.get("reward_valid") is not False,
            problem=problem, repeat=attempts[problem], usage=usage, cost_usd=cost_usd,
            latency_ms=elapsed_ms(timing.get("started_at"), timing.get("finished_at")), raw=trial,
        )  # fmt: skip
        attempts[problem] += 1
    notes += tally.notes()
    if num_naive:
        notes.append(Note(kind="assumed", text=f"trials with times without a zone, taken as UTC: {num_naive}"))


def results_of(
    rewards: dict[str, Any], failure: str, tally: Tally, *, is_valid: bool = True, **fields: Any
) -> Iterator[Result]:
    """One result for each reward of a trial; one without a score where it has none."""
    valid = rewards if is_valid else {}
    main = valid.get(REWARD, next(iter(valid.values()), None) if len(valid) == 1 else None)
    tally.add(number(main), failure)
    if not valid:
        by_agent = failure.startswith(("Agent", "NonZeroAgent"))
        why = failure or ("no reward" if is_valid else "Harbor calls the reward invalid")
        yield Result(scorer=REWARD, status="error" if by_agent else "infra", explanation=why, **fields)
    for name, value in valid.items():
        score = unit(value)
        tally.num_off_scale += score is None
        yield Result(
            scorer=identity(name) or REWARD, status="unscored" if score is None else "scored", score=score,
            raw_score=value if score is None else None, explanation=failure, **fields,
        )  # fmt: skip


def usage_of(trial: dict[str, Any], tally: Tally) -> tuple[Usage | None, Any]:
    """Tokens and cost of a trial; those of one with several steps stand in the steps."""
    agent = mapping(trial.get("agent_result"))
    parts = (
        [agent]
        if agent
        else [mapping(mapping(step).get("agent_result")) for step in sequence(trial.get("step_results"))]
    )
    taken, cached, given = (
        total(part.get(key) for part in parts) for key in ("n_input_tokens", "n_cache_tokens", "n_output_tokens")
    )
    costs = [cost(part.get("cost_usd")) for part in parts]
    known = [each for each in costs if each is not None]
    cost_usd = sum(known[1:], known[0]) if known and len(known) == len(costs) else None
    if taken is None and given is None:
        return None, cost_usd
    fresh = None if taken is None else taken - (cached or 0)
    if fresh is not None and fresh < 0:
        tally.num_caches_too_large += 1
        fresh = None
    return Usage(input=fresh, cache_read=cached, output=given), cost_usd


def total(values: Iterable[Any]) -> int | None:
    """The sum of counts; None when one of them is unknown, or there is none."""
    counts = [count(value) for value in values]
    known = [each for each in counts if each is not None]
    return sum(known) if known and len(known) == len(counts) else None


def number_written(value: str) -> float | None:
    try:
        return number(float(value))
    except ValueError:
        return None
