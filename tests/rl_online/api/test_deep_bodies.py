"""A body nested deeper than Python recurses is the caller's mistake, told in OpenAI's words."""

import asyncio
import json

import pytest
from django.test import AsyncClient

pytestmark = pytest.mark.django_db(transaction=True)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize(
    "body",
    ["[" * 100_000, f'{{"model": "editor", "messages": [{{"role": "user", "content": {nested(500)}}}]}}'],
    ids=["brackets", "message"],
)
def test_a_body_nested_too_deeply_is_a_bad_request(project, api_key, path, body):
    async def ask():
        headers = {"authorization": f"Bearer {api_key_text}"}
        return await AsyncClient().post(f"/v1/{path}", body, content_type="application/json", headers=headers)

    api_key_text = api_key("infer")
    response = asyncio.run(ask())
    error = json.loads(response.content)["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == "the body is nested too deeply"
