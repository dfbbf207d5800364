"""What a backup says of itself, beside the list of its members."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from strop.backup.archive import BadArchive
from strop.backup.contents import Level


@dataclass(frozen=True, kw_only=True)
class Facts:
    created_at: str  # RFC 3339, when the snapshot was taken
    code_version: str
    migrations: list[str]  # applied, as <app>.<name>
    postgres_major: int  # of the server that was dumped
    level: str  # of contents.Level
    rows: dict[str, int]  # table -> rows
    missing: list[str]  # rows refer to these and the disk did not have them

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Facts":
        """Raises BadArchive."""
        try:
            return cls(
                created_at=str(values["created_at"]),
                code_version=str(values["code_version"]),
                migrations=[str(name) for name in values["migrations"]],
                postgres_major=int(values["postgres_major"]),
                level=Level(values["level"]),
                rows={str(table): int(count) for table, count in values["rows"].items()},
                missing=[str(name) for name in values["missing"]],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadArchive(f"its manifest lacks something: {error}") from error
