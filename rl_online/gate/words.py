"""How reasons write numbers."""


def points(share: float) -> str:
    """A share or a difference: -.031 -> −3.1."""
    return f"{100 * share:+.1f}".replace("-", "−")


def p_value(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0")
