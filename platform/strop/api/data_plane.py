"""The data plane's part of the OpenAPI document. Its item types are the ones that the door itself reads."""

import re
from typing import Any

import msgspec

from evals.api.wire import RunItem
from feedback.wire import SignalItem, TurnItem

REF = "#/components/schemas/{name}"
SECURITY: list[dict[str, list[str]]] = [{"Key": []}]
REFUSED = {
    "description": "Refused; `error.field` names what is wrong",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
}
OPENAI_REFUSED = {"description": "Refused, in OpenAI's shape: `error.message`, `type`, `param`, `code`"}
ANSWER = {"type": "object", "description": "OpenAI's shape; each choice carries its turn in `strop_turn`"}


def template(path: str) -> str:
    """Django's path as OpenAPI writes it: `{path:id}` is `{id}`."""
    return re.sub(r"\{[a-z]+:([^}]+)\}", r"{\1}", path)


def components() -> dict[str, Any]:
    """Schemas of a turn, a signal and a run, from the types that parse them."""
    _, found = msgspec.json.schema_components([TurnItem, SignalItem, RunItem], ref_template=REF)
    return found


def paths() -> dict[str, Any]:
    return {
        "/v1/events": {
            "post": _operation(
                "sendEvents",
                "Send turns and signals",
                "ingest",
                tag="Events",
                body={
                    "type": "object",
                    "required": ["items"],
                    "properties": {
                        "items": {
                            "type": "array",
                            "maxItems": 10_000,
                            "items": {"oneOf": [_ref("TurnItem"), _ref("SignalItem")]},
                        }
                    },
                },
                responses={"202": _json("What became of every item; sent after the commit", _receipt())},
            )
        },
        "/v1/runs": {
            "post": _operation(
                "sendRun",
                "Send a benchmark run that was made elsewhere; again with the same run_id for more of its results",
                "ingest",
                tag="Runs",
                body=_ref("RunItem"),
                responses={
                    "201": _json("It is stored", _run_receipt()),
                    "200": _json("It was there already: unchanged, or extended by what is new", _run_receipt()),
                },
            )
        },
        "/v1/chat/completions": {"post": _openai("chatCompletions", "Ask with a chat", ["model", "messages"])},
        "/v1/completions": {"post": _openai("completions", "Ask with raw text", ["model", "prompt"])},
        "/v1/models": {
            "get": _operation(
                "models",
                "What answers",
                "infer",
                tag="Gateway",
                responses={"200": _json("OpenAI's list", {"type": "object"})},
            )
        },
        "/v1/weights/policies": {
            "get": _operation(
                "weightsPolicies",
                "Which policies serve",
                "infer",
                tag="Weights",
                responses={"200": _json("Ids of policies", _object(policies={"type": "array", "items": _uuid()}))},
            )
        },
        "/v1/weights/head": {
            "get": _operation(
                "weightsHead",
                "What an engine should hold; waits for a change",
                "infer",
                tag="Weights",
                parameters=[
                    _query("policy", _uuid(), required=True),
                    _query("after", {"type": "string"}, words="`etag` of the answer before"),
                    _query("wait", {"type": "number", "maximum": 60}, words="seconds to wait for another answer"),
                ],
                responses={"200": _json("Versions, digests and where their files are", {"type": "object"})},
            )
        },
        "/v1/weights/objects/{policy}/{path}": {
            "get": _operation(
                "weightsObject",
                "One file of a checkpoint, or one delta",
                "infer",
                tag="Weights",
                parameters=[_place("policy", _uuid()), _place("path", {"type": "string"})],
                responses={"200": {"description": "Its bytes", "content": {"application/octet-stream": {}}}},
            )
        },
        "/v1/weights/held": {
            "post": _operation(
                "weightsHeld",
                "What an engine holds; Strop's own engines only",
                "infer",
                tag="Weights",
                body={"type": "object", "required": ["engine", "policy", "held"]},
                responses={"200": _json("How many rows were recorded", _object(recorded={"type": "integer"}))},
            )
        },
    }


def _openai(name: str, summary: str, required: list[str]) -> dict[str, Any]:
    body = {
        "type": "object",
        "required": required,
        "description": "OpenAI's request; `model` is <policy> or <policy>@<version>",
        "properties": {"model": {"type": "string"}, "stream": {"type": "boolean"}, "user": {"type": "string"}},
    }
    responses = {"200": _json("The answer, or a stream of server-sent events", ANSWER), "default": OPENAI_REFUSED}
    header = {
        "name": "x-strop-session",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "maxLength": 128},
        "description": "the session its turns belong to",
    }
    return _operation(name, summary, "infer", tag="Gateway", body=body, responses=responses, parameters=[header])


def _operation(
    name: str,
    summary: str,
    scope: str,
    *,
    tag: str,
    responses: dict[str, Any],
    body: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": [tag],
        "security": SECURITY,
        "x-scope": scope,
        "parameters": parameters or [],
        "responses": {"default": REFUSED} | responses,
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found


def _receipt() -> dict[str, Any]:
    item = _object(
        index={"type": "integer"},
        id={"type": ["string", "null"]},
        outcome={"type": "string"},
        field={"type": ["string", "null"]},
        message={"type": "string"},
    )
    return _object(
        received={"type": "integer"},
        outcomes={"type": "object", "additionalProperties": {"type": "integer"}},
        orphans={"type": "integer"},
        items={"type": "array", "items": item},
    )


def _run_receipt() -> dict[str, Any]:
    counts = {name: {"type": "integer"} for name in ("new", "known", "conflicts")}
    outcome = {"type": "string", "enum": ["imported", "extended", "unchanged"]}
    return _object(id=_uuid(), benchmark={"type": "string"}, outcome=outcome, results=_object(**counts))


def _json(words: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": REF.format(name=name)}


def _uuid() -> dict[str, str]:
    return {"type": "string", "format": "uuid"}


def _query(name: str, schema: dict[str, Any], *, required: bool = False, words: str = "") -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": words}


def _place(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}
