"""Series colours: a checkpoint, a kind of signal and a stage look the same on every chart."""

# Okabe and Ito's set without black and yellow, which vanish on one of the two themes.
CHECKPOINT_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
KIND_COLOURS = {  # of signals; what is not named here is drawn in OTHER_COLOUR
    "shown": "#9aa3af",
    "accept": "#009E73",
    "copy": "#56B4E9",
    "edit": "#E69F00",
    "reject": "#D55E00",
    "retry": "#CC79A7",
    "undo": "#0072B2",
}
OTHER_COLOUR = "#6b7280"
STAGE_COLOURS = {
    "wait": "#8a8f98",
    "seal": "#56B4E9",
    "train": "#0072B2",
    "prove": "#009E73",
    "publish": "#E69F00",
    "swap": "#CC79A7",
}
RULE_COLOUR = "#8a8f98"  # of lines that are no series: zero, promotions
GOOD_COLOUR, BAD_COLOUR = "#009E73", "#D55E00"
SERVING_WIDTH, OTHER_WIDTH = 3.0, 1.5


def colour(version: int) -> str:
    """The same checkpoint has the same colour on every chart."""
    return CHECKPOINT_COLOURS[version % len(CHECKPOINT_COLOURS)]
