"""The OpenAPI document as a page: plain HTML made here, so that it stands under the strict policy without scripts."""

import json
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from strop.api.app import api

METHODS = ("get", "post", "patch", "put", "delete")
TYPES = ("TurnItem", "SignalItem", "Usage")  # what a reader needs whole
ORDER = ("Events", "Gateway", "Weights", "Project", "Loop", "Observed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One parameter, or one field of a body or an answer."""

    name: str
    kind: str
    words: str
    is_required: bool
    place: str = ""  # path | query | header of a parameter


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """One operation."""

    anchor: str
    method: str
    path: str
    summary: str
    scope: str
    parameters: list[Field]
    body: list[Field]
    answers: list[tuple[str, str, list[Field]]]  # status, words, fields
    example: str


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    schema = api.get_openapi_schema()
    groups: dict[str, list[Shown]] = {tag: [] for tag in ORDER}
    for path, operations in schema["paths"].items():
        for method in METHODS:
            if method in operations:
                shown = show(schema, path, method, operations[method])
                groups.setdefault(operations[method]["tags"][0], []).append(shown)
    return render(
        request,
        "api/docs.html",
        {
            "groups": groups,
            "types": [(name, _fields(schema, schema["components"]["schemas"][name])) for name in TYPES],
            "info": schema["info"],
            "server": schema["servers"][0]["url"],
        },
    )


def show(schema: Any, path: str, method: str, operation: dict[str, Any]) -> Shown:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answers = [
        (status, answer.get("description", ""), _fields(schema, _answer_schema(answer)))
        for status, answer in operation["responses"].items()
        if str(status).isdigit()
    ]
    return Shown(
        anchor=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        scope=operation["x-scope"],
        parameters=[_parameter(schema, one) for one in operation.get("parameters", [])],
        body=_fields(schema, body) if body else [],
        answers=[(str(status), words, fields) for status, words, fields in answers],
        example=_example(schema, path, method, body),
    )


def _parameter(schema: Any, one: dict[str, Any]) -> Field:
    words = one.get("description") or one["schema"].get("description", "")
    kind = _kind(schema, one["schema"])
    return Field(name=one["name"], kind=kind, words=words, is_required=one["required"], place=one["in"])


def _answer_schema(answer: dict[str, Any]) -> dict[str, Any]:
    return answer.get("content", {}).get("application/json", {}).get("schema", {})


def _fields(schema: Any, found: dict[str, Any]) -> list[Field]:
    """Of an object, or of the objects of a list."""
    found = _resolve(schema, found)
    if found.get("type") == "array":
        found = _resolve(schema, found["items"])
    required = found.get("required", [])
    return [
        Field(
            name=name,
            kind=_kind(schema, part),
            words=part.get("description", ""),
            is_required=name in required,
        )
        for name, part in found.get("properties", {}).items()
    ]


def _kind(schema: Any, found: dict[str, Any]) -> str:
    """`text`, `number or null`, `list of SignalItem`."""
    options = found.get("anyOf") or found.get("oneOf")
    if options:
        return " or ".join(_kind(schema, one) for one in options)
    if "$ref" in found:
        return found["$ref"].rpartition("/")[2]
    if "enum" in found:
        return " or ".join(str(one) for one in found["enum"])
    kind = found.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(_kind(schema, {"type": one}) for one in kind)
    if "prefixItems" in found:
        return f"[{', '.join(_kind(schema, one) for one in found['prefixItems'])}]"
    if kind == "array":
        return f"list of {_kind(schema, found.get('items', {}))}"
    return {"string": found.get("format", "text"), "integer": "whole number"}.get(kind, kind)


def _resolve(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in found:
        return schema["components"]["schemas"][found["$ref"].rpartition("/")[2]]
    return found


def _example(schema: Any, path: str, method: str, body: dict[str, Any] | None) -> str:
    server = schema["servers"][0]["url"]
    verb = "" if method == "get" else f"-X {method.upper()} "
    lines = [f'curl {verb}"{server}{path}" -H "Authorization: Bearer $STROP_KEY"']
    if body is not None:
        required = {one.name: _sample(one.kind) for one in _fields(schema, body) if one.is_required}
        lines.append(f"""-H "Content-Type: application/json" -d '{json.dumps(required)}'""")
    return " \\\n  ".join(lines)


def _sample(kind: str) -> Any:
    if kind.startswith("list"):
        return []
    return {"whole number": 1, "number": 1.0, "boolean": True, "object": {}}.get(kind, "...")
