"""What a judge is made of. Changing any part makes another judge, whose words are never mixed with this one's."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evals.judging import marks, prompt, rubrics, verdict
from evals.judging.marks import Scale

STRUCTURED = "structured"  # a parameter: ask for the reply by its JSON schema, where the endpoint can
MAX_TOP_LOGPROBS = 20


class Protocol(StrEnum):
    """How a judge is asked, and what it answers."""

    PAIRWISE = "pairwise"  # two answers, in both orders -> a verdict
    POINTWISE = "pointwise"  # one answer by a rubric -> a mark
    REFERENCE = "reference"  # one answer beside a right one -> a mark
    WEIGHTED = "weighted"  # one answer by a rubric -> the mean of the marks the model thought of, by their probability

    @property
    def is_pairwise(self) -> bool:
        return self is Protocol.PAIRWISE


TEMPLATES = {
    Protocol.PAIRWISE: prompt.SYSTEM,
    Protocol.POINTWISE: rubrics.POINTWISE,
    Protocol.REFERENCE: rubrics.REFERENCE,
    Protocol.WEIGHTED: rubrics.POINTWISE,
}
REPAIRS = {
    Protocol.PAIRWISE: prompt.REPAIR,
    Protocol.POINTWISE: rubrics.REPAIR,
    Protocol.REFERENCE: rubrics.REPAIR,
    Protocol.WEIGHTED: rubrics.REPAIR,
}
PARSERS = {
    Protocol.PAIRWISE: verdict.PARSER_VERSION,
    Protocol.POINTWISE: marks.PARSER_VERSION,
    Protocol.REFERENCE: marks.PARSER_VERSION,
    Protocol.WEIGHTED: f"{marks.PARSER_VERSION}+weighted-1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rubric:
    """What to judge by, in words, and the scale of its marks. Pairwise judges use the words only."""

    text: str = ""  # empty: the rubric of the template
    scale: Scale = field(default_factory=Scale)


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A judge as it is when it judges; empty template, digest or parser: those of its protocol now."""

    name: str
    model: str  # as it will be asked for, with its snapshot
    sampling: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0, "max_tokens": 300})
    protocol: Protocol = Protocol.PAIRWISE
    rubric: Rubric = field(default_factory=Rubric)
    template: str = ""
    prompt_digest: str = ""
    parser_version: str = ""
    endpoint: str = ""  # where it is asked; empty: as the settings say

    def __post_init__(self) -> None:
        given = object.__setattr__
        given(self, "template", self.template or TEMPLATES[self.protocol])
        given(self, "parser_version", self.parser_version or PARSERS[self.protocol])
        given(self, "prompt_digest", self.prompt_digest or digest_of(self))

    @property
    def system(self) -> str:
        """The template with the rubric in it. Plain replacement: nothing in a rubric is a command here."""
        if self.protocol.is_pairwise:
            return f"{self.template}\nRubric: {self.rubric.text}" if self.rubric.text else self.template
        scale = self.rubric.scale
        text = self.rubric.text or rubrics.DEFAULT
        return (
            self.template.replace("{low}", f"{scale.low:g}")
            .replace("{high}", f"{scale.high:g}")
            .replace("{rubric}", text)
        )

    @property
    def repair(self) -> str:
        scale = self.rubric.scale
        return REPAIRS[self.protocol].replace("{low}", f"{scale.low:g}").replace("{high}", f"{scale.high:g}")

    @property
    def options(self) -> dict[str, Any]:
        """What is sent beside the messages."""
        sent = dict(self.sampling)
        if sent.pop(STRUCTURED, False):
            sent["response_format"] = schema_of(self)
        if self.protocol is Protocol.WEIGHTED:
            sent |= {"logprobs": True, "top_logprobs": MAX_TOP_LOGPROBS}
        return sent


def digest_of(judge: Judge) -> str:
    """Of all that is said to the judge before an answer: template, repair and rubric."""
    said = [judge.template, REPAIRS[judge.protocol]]
    if not judge.protocol.is_pairwise:
        said.append(json.dumps([judge.rubric.text, judge.rubric.scale.low, judge.rubric.scale.high]))
    elif judge.rubric.text:
        said.append(judge.rubric.text)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def schema_of(judge: Judge) -> dict[str, Any]:
    """The reply as OpenAI's `response_format`: the rationale comes first, so that the judge thinks before it says."""
    answer: dict[str, Any]
    if judge.protocol.is_pairwise:
        name, answer = "verdict", {"type": "string", "enum": ["A", "B", "tie", "both_bad"]}
    else:
        scale = judge.rubric.scale
        name, answer = "score", {"type": "number", "minimum": scale.low, "maximum": scale.high}
    return {
        "type": "json_schema",
        "json_schema": {
            "name": name,
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"rationale": {"type": "string"}, name: answer},
                "required": ["rationale", name],
                "additionalProperties": False,
            },
        },
    }
