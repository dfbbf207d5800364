"""Every figure a page draws, under one name: the modules of console.charts, one an idea."""

from console.charts.colours import (
    BAD_COLOUR,
    CHECKPOINT_COLOURS,
    GOOD_COLOUR,
    KIND_COLOURS,
    OTHER_COLOUR,
    OTHER_WIDTH,
    RULE_COLOUR,
    SERVING_WIDTH,
    STAGE_COLOURS,
    colour,
)
from console.charts.drawing import Mark
from console.charts.estimates import Estimate, differences, shares
from console.charts.over_time import Line, Point, shares_over_time
from console.charts.signals import rates
from console.charts.updates import Series, curve, overlay, stages

__all__ = [
    "BAD_COLOUR",
    "CHECKPOINT_COLOURS",
    "GOOD_COLOUR",
    "KIND_COLOURS",
    "OTHER_COLOUR",
    "OTHER_WIDTH",
    "RULE_COLOUR",
    "SERVING_WIDTH",
    "STAGE_COLOURS",
    "Estimate",
    "Line",
    "Mark",
    "Point",
    "Series",
    "colour",
    "curve",
    "differences",
    "overlay",
    "rates",
    "shares",
    "shares_over_time",
    "stages",
]
