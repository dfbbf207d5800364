"""The management API under /api/v1, and one OpenAPI document for it and the data plane under /v1."""

from typing import Any

from django.conf import settings
from ninja import NinjaAPI
from ninja.decorators import decorate_view
from ninja.openapi.schema import OpenAPISchema

from strop.api import admin, benchmark_runs, data_plane, loop, observed
from strop.api.access import Key
from strop.api.errors import Refusal, add_handlers
from strop.api.idempotency import idempotent

DESCRIPTION = """What the console shows and does, for programs. Send the header Authorization: Bearer KEY. A key belongs
to one project; what belongs to another one is not found. Scopes: read for what is read, train for what moves the loop,
admin for settings, keys and webhooks, and it opens everything. The data plane, /v1, takes ingest and infer."""


class StropAPI(NinjaAPI):
    def get_openapi_operation_id(self, operation: Any) -> str:
        """The function's name: short, and unique among the routers."""
        return operation.view_func.__name__

    def get_openapi_schema(self, *, path_prefix: str | None = None, path_params: Any = None) -> OpenAPISchema:
        schema = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        _name_scopes(self, schema)
        refused = Refusal.model_json_schema(ref_template="#/components/schemas/{model}")
        definitions = refused.pop("$defs", {})
        components = schema["components"]["schemas"]
        components.update({"Refusal": refused, **definitions})
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"]["default"] = data_plane.REFUSED
        schema["paths"].update(data_plane.paths())
        components.update(data_plane.components())
        schema["servers"] = [{"url": settings.PUBLIC_URL}]
        return schema


def _name_scopes(api: NinjaAPI, schema: OpenAPISchema) -> None:
    """Which scope each operation needs, as `x-scope` and in words."""
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                scope = operation.auth_callbacks[0].scope  # type: ignore[attr-defined]
                found = schema["paths"][data_plane.template(f"/api/v1{prefix}{path}")]
                for method in operation.methods:
                    found[method.lower()]["x-scope"] = str(scope)


api = StropAPI(
    title="Strop",
    version=settings.CODE_VERSION,
    description=DESCRIPTION,
    docs_url=None,
    openapi_url="/openapi.json",
    urls_namespace="api-v1",
)
add_handlers(api)
for router in (admin.router, loop.router, benchmark_runs.router, observed.router):
    for view in router.path_operations.values():
        for operation in view.operations:
            if "POST" in operation.methods:
                auth = operation.auth_callbacks[0]
                assert isinstance(auth, Key), f"{operation.path} names no scope"
                decorate_view(idempotent(auth))(operation.view_func)
    api.add_router("", router)
