"""Bradley-Terry against evalica, a clustered bootstrap against a plain loop, and the price of looking at any time.

Each pair runs in one process and on one thread, on the same data, ours and the peer's in turns, best of ten. evalica
and ours start from the same columns of names and results; equal means equal centred strengths. The loop draws whole
clusters and takes the mean of their items; it is run on fewer resamples and its time scaled, since each resample takes
the same. The last part simulates streams of paired differences, looked at after every pair, and prints how often an
effect is found, and when.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Without this folder, whose statistics.py would stand before the standard library's.
sys.path[0] = str(Path(__file__).resolve().parents[1])
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import evalica  # noqa: E402
import numpy as np  # noqa: E402

from evals.statistics.battles import battles  # noqa: E402
from evals.statistics.bootstrap import bootstrap_mean  # noqa: E402
from evals.statistics.bradley_terry import rank_battles  # noqa: E402
from evals.statistics.power import power_of  # noqa: E402
from evals.statistics.sequential import MIN_N, half_width, likelihood_ratio  # noqa: E402

BATTLES, MODELS = 1_000_000, 200
ITEMS, USERS, RESAMPLES, LOOP_RESAMPLES = 100_000, 10_000, 10_000, 100
STREAMS, LENGTH, TAU = 1_000, 5_000, 0.1
EFFECTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1)
REPEATS = 10
RESULTS = Path(__file__).parent / "results"


def in_turns(*works: Callable[[], object]) -> list[float]:
    """Seconds of the best run of each: noise only ever adds time."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(REPEATS):
        for work, seen in zip(works, times, strict=True):
            started = time.perf_counter()
            work()
            seen.append(time.perf_counter() - started)
    return [min(seen) for seen in times]


def against_evalica() -> dict[str, float]:
    rng = np.random.default_rng(0)
    strength = rng.normal(size=MODELS)
    left, right = rng.integers(0, MODELS, BATTLES), rng.integers(0, MODELS - 1, BATTLES)
    right += right >= left
    won = rng.random(BATTLES) < 1 / (1 + np.exp(strength[right] - strength[left]))
    tied = rng.random(BATTLES) < 0.2
    names = [f"model-{number:03}" for number in range(MODELS)]
    sides = [names[one] for one in left], [names[one] for one in right]
    results = np.where(tied, 0.5, won).tolist()
    words = {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y, 0.5: evalica.Winner.Draw}
    winners = [words[result] for result in results]
    users = rng.integers(0, 20_000, BATTLES).tolist()

    def theirs() -> np.ndarray:
        found = np.log(evalica.bradley_terry(*sides, winners, tolerance=1e-10, limit=10_000).scores[names].to_numpy())
        return found - found.mean()

    def ours() -> np.ndarray:
        found = {row.name: row.strength for row in rank_battles(battles(*sides, results)).rows}
        return np.array([found[name] for name in names])

    difference = float(np.abs(ours() - theirs()).max())
    assert difference < 1e-6, f"strengths differ by {difference}"
    ours_s, theirs_s, default_s, clustered_s = in_turns(
        ours,
        theirs,
        lambda: evalica.bradley_terry(*sides, winners),
        lambda: rank_battles(battles(*sides, results, cluster=users)),
    )
    return {
        "bradley_terry_vs_evalica": ours_s / theirs_s,
        "bradley_terry_vs_evalica_default_tolerance": ours_s / default_s,
        "bradley_terry_s": ours_s,
        "bradley_terry_clustered_s": clustered_s,
        "evalica_s": theirs_s,
        "evalica_default_tolerance_s": default_s,
        "bradley_terry_largest_difference": difference,
    }


def against_a_loop(scores: np.ndarray, users: np.ndarray) -> tuple[float, float, float]:
    """(loop / ours in time, ours in seconds, SE / the loop's)."""
    order = np.argsort(users, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(users[order])) + 1)

    def loop() -> np.ndarray:
        rng, means = np.random.default_rng(1), np.empty(LOOP_RESAMPLES)
        for index in range(LOOP_RESAMPLES):
            drawn = rng.integers(len(members), size=len(members))
            means[index] = scores[np.concatenate([members[place] for place in drawn])].mean()
        return means

    def ours() -> float:
        found = bootstrap_mean(scores, clusters=users, resamples=RESAMPLES).estimate.se
        assert found is not None
        return found

    loop_s, ours_s = in_turns(loop, ours)
    return loop_s * RESAMPLES / LOOP_RESAMPLES / ours_s, ours_s, ours() / float(loop().std(ddof=1))


def looking_at_any_time() -> dict[str, float]:
    """Pairs of right answers, .5 + effect against .5: found at some look, after how many pairs (all where never)."""
    found: dict[str, float] = {}
    n = np.arange(1, LENGTH + 1)
    for effect in EFFECTS:
        rng = np.random.default_rng(7)
        streams = (rng.random((STREAMS, LENGTH)) < 0.5 + effect).astype(float) - (rng.random((STREAMS, LENGTH)) < 0.5)
        mean = streams.cumsum(axis=1) / n
        se = np.sqrt(np.maximum((streams**2).cumsum(axis=1) / n - mean**2, 1e-12) / np.maximum(n - 1, 1))
        decided = likelihood_ratio(mean[:, MIN_N - 1 :], se[:, MIN_N - 1 :], tau=TAU) >= 20
        is_found = decided.any(axis=1)
        if effect == 0:
            naive = np.abs(mean[:, MIN_N - 1 :]) > 1.959964 * se[:, MIN_N - 1 :]
            missed = np.abs(mean[:, MIN_N - 1 :]) > half_width(se[:, MIN_N - 1 :], tau=TAU, alpha=0.05)
            found["peeking.false_alarms"] = float(is_found.mean())
            found["peeking.false_alarms_of_the_usual_test"] = float(naive.any(axis=1).mean())
            found["peeking.sequence_misses_the_truth"] = float(missed.any(axis=1).mean())
            continue
        stops = np.where(is_found, decided.argmax(axis=1) + MIN_N, LENGTH)
        sd = float(np.sqrt((0.5 + effect) * (0.5 - effect) + 0.25))
        name = f"peeking.power_at_{effect:.2f}"
        found[name] = float(is_found.mean())
        found[f"{name}_median_pairs"] = float(np.median(stops))
        found[f"{name}_of_one_look_at_the_end"] = power_of(effect, sd=sd, n=LENGTH) or 0.0
    return found


def main() -> None:
    rng = np.random.default_rng(2)
    users = rng.integers(0, USERS, ITEMS)
    soft = rng.normal(size=USERS)[users] + rng.normal(size=ITEMS)
    binary = (rng.random(ITEMS) < rng.random(USERS)[users]).astype(float)
    results = against_evalica()
    for name, scores in (("", soft), ("_binary", binary)):
        ratio, ours_s, same = against_a_loop(scores, users)
        results |= {
            f"bootstrap_vs_loop{name}": ratio,
            f"bootstrap{name}_s": ours_s,
            f"bootstrap{name}_se_to_loop": same,
        }
    results |= looking_at_any_time()
    print(f"{BATTLES:,} battles of {MODELS} models; {ITEMS:,} items of {USERS:,} users, {RESAMPLES:,} resamples")
    print(f"the loop ran {LOOP_RESAMPLES} resamples; its time is scaled to {RESAMPLES:,}")
    print(f"peeking: {STREAMS:,} streams of {LENGTH:,} pairs, a look after each from {MIN_N} on, tau {TAU}, alpha .05")
    for name, value in results.items():
        print(f"RESULT statistics.{name}={value:.4g}")
    RESULTS.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    (RESULTS / "statistics.json").write_text(json.dumps({**results, "machine": machine}, indent=1))


if __name__ == "__main__":
    main()
