"""A project's settings, read from its JSON column with defaults and checked when they are changed."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from registry.errors import InvalidInput

MAX_TEXT = 20_000  # characters of a setting that is text
MAX_RESPONSES = 9


@dataclass(frozen=True, kw_only=True)
class ProjectSettings:
    decision_window_s: float = 120.0  # after this, shown and nothing is silence
    horizon_days: float = 400.0  # items older than this are refused, imports excepted
    orphan_hours: float = 24.0 * 7  # a signal whose turn has not come by then expires
    keep_checkpoints: float = 20.0  # newest ones of each policy whose files retention keeps, needed ones apart
    keep_rebuildable: float = 200.0  # newest ones that can be made again from deltas once their files are gone
    keep_batches: float = 200.0  # newest ones of each policy whose files retention keeps
    collect_weekly: bool = False  # retention runs by itself once a week, not only by `strop gc`
    review_responses: float = 1.0  # reviewers who must answer before a flag is settled; a whole number
    review_instructions: str = ""  # what reviewers read beside every item

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ProjectSettings":
        """Raises InvalidInput naming the first field that is unknown or of the wrong kind."""
        known = {field.name: field.default for field in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise InvalidInput(f"unknown project setting; known are {', '.join(sorted(known))}", field=name)
            if isinstance(known[name], bool):
                if not isinstance(value, bool):
                    raise InvalidInput(f"found {value!r}; give true or false", field=name)
                continue
            if isinstance(known[name], str):
                if not isinstance(value, str) or len(value) > MAX_TEXT or "\x00" in value:
                    raise InvalidInput(f"give text of at most {MAX_TEXT:,} characters", field=name)
                continue
            if name == "review_responses" and value not in range(1, MAX_RESPONSES + 1):
                raise InvalidInput(f"found {value!r}; give a whole number from 1 to {MAX_RESPONSES}", field=name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
                raise InvalidInput(f"found {value!r}; give a positive number", field=name)
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
