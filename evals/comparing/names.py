"""What can be compared: a checkpoint of ours, or a model somewhere else."""

from dataclasses import dataclass

from registry.errors import InvalidInput
from registry.services import parse_checkpoint_name

MAX_NAME = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Name:
    """A checkpoint of ours (`editor@3`) or an external model (anything else)."""

    text: str
    policy: str | None  # None: an external model
    version: int | None

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, text: str, *, field: str) -> "Name":
        """Raises InvalidInput."""
        text = text.strip()
        if not text or len(text) > MAX_NAME or "\x00" in text:
            wanted = f"write <policy>@<version> or a model's name, at most {MAX_NAME} characters"
            raise InvalidInput(wanted, field=field)
        try:
            policy, version = parse_checkpoint_name(text)
        except InvalidInput:
            return cls(text=text, policy=None, version=None)
        if version >= 2**31:
            return cls(text=text, policy=None, version=None)
        return cls(text=text, policy=policy, version=version)

    @property
    def column(self) -> str:
        """Of EvalRun."""
        return "model" if self.policy is None else "checkpoint"
