"""The project's settings as a form: what each is called, in which unit, and what it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from registry.errors import InvalidInput
from registry.project_settings import ProjectSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    name: str
    title: str
    unit: str
    help: str
    value: Any = None
    default: Any = None
    sent: str | None = None  # what somebody wrote that could not be saved; None: nothing

    @property
    def kind(self) -> str:
        if isinstance(self.default, bool):
            return "switch"
        return "text" if isinstance(self.default, str) else "number"

    @property
    def text(self) -> str:
        """What stands in its input."""
        if self.sent is not None:
            return self.sent
        return self.value if self.kind == "text" else f"{self.value:.12g}"

    @property
    def is_on(self) -> bool:
        return bool(self.value) if self.sent is None else self.sent == "on"

    @property
    def is_changed(self) -> bool:
        return self.value != self.default


GROUPS: tuple[tuple[str, str, tuple[Field, ...]], ...] = (
    (
        "Labels",
        "when a turn is settled, and what is too old to take",
        (
            Field(
                name="decision_window_s",
                title="Decision window",
                unit="s",
                help="a turn that was shown and heard nothing of for so long is silence",
            ),
            Field(
                name="horizon_days",
                title="Horizon",
                unit="days",
                help="older turns and signals are refused, imports excepted",
            ),
            Field(
                name="orphan_hours",
                title="Orphans wait",
                unit="h",
                help="a signal whose turn has not come by then expires",
            ),
        ),
    ),
    (
        "Review",
        "who must look at a flagged turn",
        (
            Field(
                name="review_responses",
                title="Required reviews",
                unit="people",
                help="answers that settle a flag",
            ),
            Field(
                name="review_instructions",
                title="Instructions",
                unit="",
                help="reviewers read them beside every item",
            ),
        ),
    ),
    (
        "Retention",
        "whose files are kept; rows, digests and lineage always stay",
        (
            Field(
                name="keep_checkpoints", title="Checkpoints", unit="newest", help="of each policy, needed ones apart"
            ),
            Field(
                name="keep_rebuildable",
                title="Rebuildable checkpoints",
                unit="newest",
                help="can be made again from deltas once their files are gone",
            ),
            Field(name="keep_batches", title="Batches", unit="newest", help="of each policy"),
            Field(
                name="collect_weekly",
                title="Collect every week",
                unit="",
                help="else files go only when somebody says so: strop gc, or the System page",
            ),
        ),
    ),
)
TITLES = {field.name: field.title for _, _, named in GROUPS for field in named}


def groups(now: ProjectSettings, sent: Mapping[str, str] | None = None) -> list[tuple[str, str, list[Field]]]:
    """The form filled in, with what was sent in its place. What no group names stands in a last one by its own name."""
    defaults = {field.name: field.default for field in fields(ProjectSettings)}

    def filled(field: Field) -> Field:
        return Field(
            name=field.name,
            title=field.title,
            unit=field.unit,
            help=field.help,
            value=getattr(now, field.name),
            default=defaults[field.name],
            sent=_sent(field.name, sent or {}),
        )

    found = [(title, words, [filled(one) for one in named if one.name in defaults]) for title, words, named in GROUPS]
    rest = [Field(name=name, title=name.replace("_", " "), unit="", help="") for name in defaults if name not in TITLES]
    return found + ([("Other", "", [filled(one) for one in rest])] if rest else [])


def _sent(name: str, sent: Mapping[str, str]) -> str | None:
    return sent.get(name, "off") if f"has-{name}" in sent else sent.get(name)


def changes(now: ProjectSettings, sent: Mapping[str, str]) -> dict[str, Any]:
    """What the form changes. Raises InvalidInput for a number that is none; the settings check the rest."""
    found: dict[str, Any] = {}
    for field in fields(ProjectSettings):
        before = getattr(now, field.name)
        if isinstance(field.default, bool):
            after: Any = sent.get(field.name) == "on" if f"has-{field.name}" in sent else before
        elif field.name not in sent:
            continue
        elif isinstance(field.default, str):
            after = sent[field.name].replace("\r\n", "\n").strip()
        else:
            after = _number(field.name, sent[field.name])
        if after != before:
            found[field.name] = after
    return found


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"found {text[:40]!r}; give a number", field=name) from None
