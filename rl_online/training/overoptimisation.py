"""Whether a policy has begun to please its reward model more than people: the proxy rises while gold falls.

Gold is a scorer the policy is not trained against. Gao et al. 2023 (arXiv 2210.10760) draw both over the root of the KL
to the base; so does an update's page. Pure numbers: the updater decides by them, the console draws them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Answers to the watched prompts after an iteration, scored."""

    iteration: int  # 0 before the first
    proxy: float  # mean score of the reward model trained against
    gold: float | None  # None without a gold scorer
    kl: float  # to the base, nats per answer; k1, so a sample's may be below 0

    @property
    def root_kl(self) -> float:
        return math.sqrt(max(self.kl, 0.0))


def curve_of(history: Sequence[Mapping[str, float]]) -> list[Point]:
    """The points of an update's steps, with the one before the first, which the first step tells too."""
    points = []
    for iteration, metrics in enumerate(history, 1):
        for number, prefix in ((0, "start_"), (iteration, "")):
            if f"{prefix}proxy" in metrics:
                points.append(
                    Point(
                        iteration=number,
                        proxy=metrics[f"{prefix}proxy"],
                        gold=metrics.get(f"{prefix}gold"),
                        kl=metrics[f"{prefix}kl_answer"],
                    )
                )
    return points


def best_of(curve: Sequence[Point]) -> Point:
    """Whose weights are kept: the first of those with the highest gold; without gold the last."""
    scored = [one for one in curve if one.gold is not None]
    return max(scored, key=lambda one: one.gold or 0.0) if scored else curve[-1]


def should_stop(curve: Sequence[Point], *, margin: float) -> bool:
    """Whether gold has fallen more than `margin` below its best while the proxy is above what it was there.

    Both falling is a bad step, not over-optimisation: that goes on.
    Example: proxy 0, 1, 2 and gold 0, .5, .3 -> stop at margin .1, not at .3
    """
    scored = [(one.gold, one.proxy) for one in curve if one.gold is not None]
    if not scored:
        return False
    (gold, proxy), (best_gold, best_proxy) = scored[-1], max(scored, key=lambda one: one[0])
    return gold < best_gold - margin and proxy > best_proxy
