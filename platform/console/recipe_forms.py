"""The forms of label recipes and reward specs: fields to show, and what was posted as a body to check.

A field is named by the path of its value in the body, so that what a check says is wrong finds its field. Not here:
what may stand in a body (feedback.labels, rl_online.rewards.composite).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feedback.labels import RANGES, Recipe
from registry.errors import InvalidInput

LABEL_WORDS = {
    "partial_threshold": ("Partial accept from", "share kept from which a partial accept is an accept"),
    "edit_value": ("Value of an edit", "an accept that was changed afterwards"),
    "correction_value": ("Value of a correction", "a rejection that says what it should have been"),
    "retry_at_once_s": ("Retry at once within, s", "a retry so soon after the answer is a rejection"),
}
OUTCOME_WORDS = {
    "label.accept": ("Accept", "what an accepted turn pays"),
    "label.reject": ("Reject", "what a rejected turn pays"),
    "label.silence": ("Silence", "what a turn pays that nobody reacted to"),
    "label.weight": ("Weight of the label", "multiplies the three above; 0 leaves users out"),
    "clip.0": ("Lowest reward", "no turn pays less"),
    "clip.1": ("Highest reward", "no turn pays more"),
}
GATE = re.compile(r"gates\.(\d+)(\..+)?")
MAX_ROWS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One field of a form."""

    name: str
    title: str
    value: str
    help: str = ""
    is_wrong: bool = False

    @property
    def id(self) -> str:
        return "f-" + re.sub(r"[^A-Za-z0-9]+", "-", self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class GateEntries:
    scorer: Entry
    at_least: Entry
    otherwise: Entry


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecForm:
    """Fields of a reward spec; a scorer or gate whose line is emptied is left out."""

    outcomes: list[Entry]
    scorers: list[Entry]  # one weight each
    gates: list[GateEntries]


def label_entries(values: Mapping[str, Any], wrong: str = "") -> list[Entry]:
    defaults = Recipe().to_json()
    return [
        Entry(
            name=name,
            title=title,
            value=_shown(values.get(name, defaults[name])),
            help=f"{help}; from {RANGES[name][0]:g} to {RANGES[name][1]:g}",
            is_wrong=wrong == name,
        )
        for name, (title, help) in LABEL_WORDS.items()
    ]


def label_body(post: Mapping[str, str]) -> dict[str, float]:
    """Raises InvalidInput naming the field that is no number."""
    return {name: _number(name, post.get(name, "")) for name in LABEL_WORDS}


def spec_form(body: Mapping[str, Any], scorers: list[str], wrong: str = "") -> SpecForm:
    """Of a body as stored."""
    label, clip = body.get("label", {}), body.get("clip", ["", ""])
    values: dict[str, Any] = {f"label.{name}": value for name, value in label.items()}
    values |= {"clip.0": clip[0], "clip.1": clip[1]}
    for name, part in body.get("scorers", {}).items():
        values[f"scorers.{name}.weight"] = part.get("weight", "")
    for index, gate in enumerate(body.get("gates", [])):
        values |= {f"gates.{index}.{key}": value for key, value in gate.items()}
    return sent_form(values, scorers, wrong)


def sent_form(values: Mapping[str, Any], scorers: list[str], wrong: str = "") -> SpecForm:
    """Of what was posted, with the field that is wrong marked; one empty gate is offered."""
    where = _form_path(values, wrong)
    filled = [index for index in range(MAX_ROWS) if any(values.get(f"gates.{index}.{key}") for key in _GATE_KEYS)]
    gates = [*filled, min(max(filled, default=-1) + 1, MAX_ROWS - 1)]

    def entry(name: str, title: str, help: str = "", default: object = "") -> Entry:
        is_wrong = bool(where) and (name == where or name.startswith(f"{where}."))
        return Entry(name=name, title=title, value=_shown(values.get(name, default)), help=help, is_wrong=is_wrong)

    return SpecForm(
        outcomes=[entry(name, title, help) for name, (title, help) in OUTCOME_WORDS.items()],
        scorers=[entry(f"scorers.{name}.weight", name, "0 shows it; empty leaves it out") for name in scorers],
        gates=[
            GateEntries(
                scorer=entry(f"gates.{index}.scorer", "Scorer"),
                at_least=entry(f"gates.{index}.at_least", "must reach"),
                otherwise=entry(f"gates.{index}.otherwise", "or the reward is"),
            )
            for index in dict.fromkeys(gates)
        ],
    )


_GATE_KEYS = ("scorer", "at_least", "otherwise")


def spec_body(post: Mapping[str, str], scorers: list[str], before: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Beside its weight, a scorer keeps what `before` says of it. Raises InvalidInput naming the wrong field."""
    kept = before.get("scorers", {})
    label = {name: _number(f"label.{name}", post.get(f"label.{name}", "")) for name in _LABEL_KEYS}
    weights = {name: post.get(f"scorers.{name}.weight", "").strip() for name in scorers}
    return {
        "label": label,
        "scorers": {
            name: {**kept.get(name, {}), "weight": _number(f"scorers.{name}.weight", text)}
            for name, text in weights.items()
            if text
        },
        "gates": [_gate(post, index) for index in _filled(post)],
        "clip": [_number("clip.0", post.get("clip.0", "")), _number("clip.1", post.get("clip.1", ""))],
    }


_LABEL_KEYS = ("weight", "accept", "reject", "silence")


def _gate(post: Mapping[str, str], index: int) -> dict[str, Any]:
    return {
        "scorer": post.get(f"gates.{index}.scorer", "").strip(),
        "at_least": _number(f"gates.{index}.at_least", post.get(f"gates.{index}.at_least", "")),
        "otherwise": _number(f"gates.{index}.otherwise", post.get(f"gates.{index}.otherwise", "")),
    }


def _filled(post: Mapping[str, Any]) -> list[int]:
    """Lines of the form that name a gate, wholly or in part."""
    return [
        index
        for index in range(MAX_ROWS)
        if any(str(post.get(f"gates.{index}.{key}", "")).strip() for key in _GATE_KEYS)
    ]


def _form_path(values: Mapping[str, Any], wrong: str) -> str:
    """A check counts gates from 0 in the body; the form may have left lines out."""
    match = GATE.fullmatch(wrong)
    if match is None:
        return wrong
    lines = _filled(values)
    place = int(match[1])
    return f"gates.{lines[place]}{match[2] or ''}" if place < len(lines) else wrong


def _number(name: str, text: str) -> float:
    text = text.strip().replace("\u2212", "-")
    try:
        return float(text)
    except ValueError:
        found = f"found {text[:40]!r}" if text else "is empty"
        raise InvalidInput(f"{found}; give a number", field=name) from None


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
