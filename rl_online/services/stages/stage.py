"""What a stage of training is: how it is asked for, what it would seal now, what it seals. Types, and option checks.

Not here: which stages there are (`table`), and what happens to what one gathers (`starting`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from registry.errors import InvalidInput
from registry.models import Policy
from rl_online.collecting import Line
from rl_online.models import BatchSample, LearningPlan, UpdateRun
from rl_online.rewards.batch import Sample, SealedBatch
from rl_online.rewards.update_config import UpdateConfig

Value = str | int | float | bool
Unit = TypeVar("Unit")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One choice about what a stage seals. Its type is that of its default; numbers are 0 to `most`."""

    name: str
    default: Value
    help: str  # half a sentence, for the form and `--help`
    choices: tuple[str, ...] = ()  # of a text; empty: any of MAX_TEXT printable characters
    most: int = 20_000  # of a number

    @property
    def type(self) -> str:
        return type(self.default).__name__

    def parse(self, given: object) -> Value:
        """From JSON, or from text as a form and the command line send it. Raises InvalidInput naming the option."""
        value = _from_text(given, type(self.default)) if isinstance(given, str) else given
        if not self._fits(value):
            wanted = f"one of {', '.join(self.choices)}" if self.choices else self._wanted
            raise InvalidInput(f"{self.name} is {str(given)[:40]!r}; give {wanted}", field=self.name)
        return float(value) if isinstance(self.default, float) else value  # type: ignore[arg-type, return-value]

    @property
    def _wanted(self) -> str:
        return WORDS[type(self.default)].format(most=self.most)

    def _fits(self, value: object) -> bool:
        types = (float, int) if isinstance(self.default, float) else (type(self.default),)
        if type(value) not in types or (self.choices and value not in self.choices):
            return False
        if isinstance(value, str):
            return len(value) <= MAX_TEXT and value.isprintable()
        return 0 <= value <= self.most  # type: ignore[operator]


MAX_TEXT = 500  # characters
WORDS: dict[type, str] = {
    str: f"text of at most {MAX_TEXT} printable characters",
    int: "a whole number of at least 0 and at most {most:,}",
    float: "a number of at least 0 and at most {most:,}",
    bool: "true or false",
}
TRUTHS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def _from_text(text: str, wanted: type) -> object:
    """The text itself where it reads as nothing of the wanted type."""
    text = text.strip()
    if wanted is bool:
        return TRUTHS.get(text.lower(), text)
    try:
        return wanted(text)
    except ValueError:
        return text


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What somebody asks of a stage, checked."""

    policy: Policy
    plan: LearningPlan
    line: Line  # the serving checkpoint, which is trained, and its ancestors
    options: Mapping[str, Any]  # each option of the stage
    config: UpdateConfig


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What a stage would seal now, before tokens are looked at."""

    num_ready: int  # in the stage's unit
    num_needed: int  # fewer are never trained on
    num_excluded: dict[str, int] = field(default_factory=dict)  # reason -> how many are left out
    sources: dict[str, int] = field(default_factory=dict)  # what they are made of -> how many
    num_tokens: int = 0  # of those that were counted
    num_uncounted: int = 0  # whose tokens nobody counted


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What is to be sealed."""

    num_units: int  # in the stage's unit; too few are refused
    samples: list[Sample]  # each row with `stage`, so that no two kinds seal the same bytes
    lineage: list[BatchSample]  # unsaved and without batch and kind: the turns that are spent by it
    dropped: dict[str, int]  # reason -> how many were looked at and left out
    inputs: dict[str, Any] = field(default_factory=dict)  # see UpdateRun.inputs
    seal: Callable[[Path], SealedBatch] | None = None  # writes its folder under a root; None: a batch of the samples


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One kind of update. Every function runs inside a tenant."""

    kind: str  # of UpdateKind
    title: str
    purpose: str  # one sentence: what it is for
    unit: str  # what it counts, in the plural: turns, pairs
    options: tuple[Option, ...]
    settings: tuple[str, ...]  # fields of UpdateConfig that matter to it, in the order of the form
    preset: Mapping[str, Any]  # settings that differ from the plan's unless somebody says otherwise
    look: Callable[[Ask], Ready]
    gather: Callable[[Ask, int | None], Contents]  # at most so many units, None: as many as the options allow
    folders: Callable[[Mapping[str, Any]], dict[str, Path]] = lambda inputs: {}  # where its inputs lie that are folders
    register: Callable[[UpdateRun, Mapping[str, Any]], None] | None = None  # what a kind without a checkpoint made
    fits_as_update: bool = True  # its batch is checked as `run_update` would; a runner of its own checks by itself


def parse_options(stage: Stage, given: Mapping[str, object]) -> dict[str, Any]:
    """Each option, at its default where none is given. Raises InvalidInput naming the one that is wrong."""
    known = {one.name: one for one in stage.options}
    if unknown := sorted(given.keys() - known.keys()):
        raise InvalidInput(
            f"{unknown[0]} is not an option of {stage.kind}; known are {', '.join(known) or 'none'}", field=unknown[0]
        )
    return {name: one.parse(given[name]) if name in given else one.default for name, one in known.items()}


def spread(found: list[Unit], num: int) -> list[Unit]:
    """A few of them, evenly over their order; all where there are no more."""
    return [found[len(found) * place // num] for place in range(num)] if len(found) > num else found
