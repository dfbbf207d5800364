"""Who may call the management API, and the tenant each call runs in.

A key opens its own project only: what belongs to another one is not found. Reading needs the scope `read`, what moves
the loop `train`, and keys, settings and webhooks `admin`, which opens everything.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja.security import HttpBearer

from registry.auth import Caller, authenticate
from registry.errors import Forbidden
from registry.models import Scope
from registry.tenancy import tenant

Operation = Callable[..., Any]


class ApiRequest(HttpRequest):
    """A request that a key let through."""

    caller: Caller
    project_id: UUID
    actor: str  # for the audit trail: key:<prefix>


class Key(HttpBearer):
    """`Authorization: Bearer <key>` with one scope."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> Caller:
        """Raises Unauthorized or Forbidden, so that the answer says which."""
        caller = authenticate(request, self.scope)
        if caller.is_internal or caller.project_id is None:
            raise Forbidden("the management API is for keys")
        request.caller = caller
        request.project_id, request.actor = caller.project_id, caller.name
        return caller

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        raise AssertionError("__call__ does it")


READ, TRAIN, ADMIN = Key(Scope.READ), Key(Scope.TRAIN), Key(Scope.ADMIN)


def in_project(operation: Operation) -> Operation:
    """Run it inside the tenant of the caller's project, in one transaction."""

    @wraps(operation)
    def run(request: ApiRequest, *args: Any, **kwargs: Any) -> Any:
        with tenant(request.project_id):
            return operation(request, *args, **kwargs)

    return run
