"""The OpenAPI document is whole, names what the code does, and stands as a page and in docs/api.md."""

import json
import re
from pathlib import Path

import pytest
from django.urls import get_resolver

from strop.api.app import api

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def document():
    return json.loads(json.dumps(api.get_openapi_schema()))


def references(part):
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_it_is_served_without_a_key(client, document):
    reply = client.get("/api/v1/openapi.json")
    assert reply.status_code == 200 and reply.json() == document


def test_every_reference_leads_somewhere(document):
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_it_is_of_the_version_that_it_says(document):
    assert re.fullmatch(r"3\.1\.\d+", document["openapi"])
    assert document["info"]["title"] == "Strop" and document["info"]["version"]


def test_each_operation_has_a_name_of_its_own_a_summary_and_a_scope(document):
    operations = [one for found in document["paths"].values() for one in found.values()]
    names = [one["operationId"] for one in operations]
    assert len(names) == len(set(names)) > 40
    assert all(one["summary"] and one["x-scope"] for one in operations)


def test_each_parameter_of_a_path_is_declared_as_required(document):
    for path, found in document["paths"].items():
        for operation in found.values():
            declared = {
                one["name"] for one in operation.get("parameters", []) if one["in"] == "path" and one["required"]
            }
            assert declared == set(re.findall(r"{(\w+)}", path)), path


def test_each_operation_answers_something_and_says_how_it_refuses(document):
    for path, found in document["paths"].items():
        for operation in found.values():
            codes = set(operation["responses"])
            assert "default" in codes and any(re.fullmatch(r"2\d\d", code) for code in codes), path


def test_every_address_of_the_data_plane_stands_in_it(document):
    def addresses(patterns, prefix=""):
        for one in patterns:
            route = prefix + str(one.pattern)
            if hasattr(one, "url_patterns"):
                yield from addresses(one.url_patterns, route)
            else:
                yield "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)

    served = {path for path in addresses(get_resolver().url_patterns) if path.startswith("/v1/")}
    assert served == {path for path in document["paths"] if path.startswith("/v1/")}


def test_a_turn_in_it_has_the_fields_that_the_door_reads(document):
    from feedback.wire import TurnItem

    described = document["components"]["schemas"]["TurnItem"]["properties"]
    assert set(described) == {*TurnItem.__struct_fields__, "type"}


def test_docs_api_names_every_path(document):
    text = (CHECKOUT / "docs" / "api.md").read_text()
    assert [path for path in document["paths"] if f"{path}`" not in text] == []


def test_the_page_shows_every_operation_and_needs_no_script(client, document):
    reply = client.get("/api/v1/docs")
    page = reply.content.decode()
    for found in document["paths"].values():
        for operation in found.values():
            assert f'id="{operation["operationId"]}"' in page
    assert "unsafe-eval" not in reply["content-security-policy"] and "<script>" not in page
    assert not re.search(r'(?:src|href)="https?://', page)
