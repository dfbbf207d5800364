"""Normal and t distributions and the logistic function, by scipy, which is loaded when first asked.

Loading it takes as long as half of all else at the start of a process, and most processes never ask.
"""

from typing import Any

import scipy  # its parts are loaded when they are named


def ndtr(x: Any) -> Any:
    """P(Z <= x) of a standard normal Z."""
    return scipy.special.ndtr(x)


def ndtri(p: Any) -> Any:
    """The x with P(Z <= x) = p of a standard normal Z."""
    return scipy.special.ndtri(p)


def stdtr(df: Any, t: Any) -> Any:
    """P(T <= t) of Student's T with `df` degrees of freedom."""
    return scipy.special.stdtr(df, t)


def stdtrit(df: Any, p: Any) -> Any:
    """The t with P(T <= t) = p of Student's T with `df` degrees of freedom."""
    return scipy.special.stdtrit(df, p)


def expit(x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow."""
    return scipy.special.expit(x)
