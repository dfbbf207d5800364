"""How long to wait before a program that ended is started again. Pure: the caller brings the clock."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Backoff:
    first_s: float = 0.5
    most_s: float = 30.0
    stable_s: float = 30.0  # a run this long wipes the slate clean

    def failures_after(self, num_failures: int, *, ran_s: float) -> int:
        """Failures in a row, after a run of `ran_s` seconds that ended by itself."""
        return 1 if ran_s >= self.stable_s else num_failures + 1

    def delay_s(self, num_failures: int) -> float:
        """0.5, 1, 2, 4 ... seconds after 1, 2, 3, 4 ... failures in a row, 30 at most."""
        return min(self.first_s * 2.0 ** (min(num_failures, 32) - 1), self.most_s)
