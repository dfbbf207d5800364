"""`Idempotency-Key`: a POST sent again with the same key gets the first answer and does nothing a second time.

Effect and answer are kept in one transaction; a twin that comes meanwhile waits for it. The same key with another body
is a conflict. Refusals are not kept, since nothing was done; the rest is forgotten after a day (`registry.calls`). What
is told once, a key's text or a webhook's secret, is left out of the second answer.
"""

import hashlib
import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse

from registry.errors import Conflict, InvalidInput, StropError
from registry.models import IdempotentCall
from registry.tenancy import tenant
from strop.api.access import Key
from strop.api.errors import answer

HEADER = "idempotency-key"
MAX_KEY = 255
TOLD_ONCE = ("key", "secret")

Run = Callable[..., HttpResponse]


def idempotent(auth: Key) -> Callable[[Run], Run]:
    """`auth`: the operation's own. ninja asks it later; asked here, who may not call hears nothing that was kept."""

    def decorate(run: Run) -> Run:
        @wraps(run)
        def once(request: HttpRequest, **kwargs: Any) -> HttpResponse:
            key = request.headers.get(HEADER)
            if key is None:
                return run(request, **kwargs)
            try:
                project_id = auth(request).project_id
                assert project_id is not None
                with tenant(project_id):
                    return _answer_once(key, request, lambda: run(request, **kwargs))
            except StropError as error:
                return answer(request, error)

        return once

    return decorate


def _answer_once(key: str, request: HttpRequest, run: Callable[[], HttpResponse]) -> HttpResponse:
    """Raises InvalidInput for a key that cannot be, Conflict for one that was used for another request."""
    if not (0 < len(key) <= MAX_KEY and key.isprintable()):
        raise InvalidInput(f"give 1 to {MAX_KEY} printable characters", field="Idempotency-Key")
    content = b"\0".join((str(request.method).encode(), request.get_full_path().encode(), request.body))
    digest = hashlib.sha256(content).hexdigest()
    call, is_first = IdempotentCall.objects.get_or_create(key=key, defaults={"request_hash": digest})
    if not is_first:
        if call.request_hash != digest:
            raise Conflict("this key was used for another request", field="Idempotency-Key")
        return _again(call)
    with transaction.atomic():
        response = run()
        if response.status_code >= 400:
            transaction.set_rollback(True)
    if response.status_code >= 400:
        call.delete()
        return response
    call.status, call.body = response.status_code, _without_what_is_told_once(response.content)
    call.save(update_fields=["status", "body"])
    return response


def _again(call: IdempotentCall) -> HttpResponse:
    assert call.status is not None
    response = HttpResponse(call.body, status=call.status, content_type="application/json; charset=utf-8")
    response["Idempotent-Replayed"] = "true"
    return response


def _without_what_is_told_once(content: bytes) -> str:
    if not content:
        return ""
    body = json.loads(content)
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in TOLD_ONCE}
    return json.dumps(body)
