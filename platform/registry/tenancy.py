"""The one door to a tenant's rows.

`with tenant(project_id):` opens a transaction, tells PostgreSQL whose rows may be seen (row-level security is forced on
every tenant table) and makes TenantModel managers filter by that project too. Outside, a manager refuses and PostgreSQL
shows nothing. `with directory():` is the named exemption: looking up projects, members and keys before the tenant is
known.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from django.db import connection, models, transaction
from django.db.migrations import RunSQL

_project: ContextVar[UUID | None] = ContextVar("strop_project", default=None)


class TenantMissing(RuntimeError):
    """Tenant rows were asked for outside `with tenant(project_id)`."""


def current_project_id() -> UUID:
    project_id = _project.get()
    if project_id is None:
        raise TenantMissing("wrap the query in `with tenant(project_id):`")
    return project_id


def project_of_new_row() -> UUID | None:
    """The current tenant; None outside one, which the column's NOT NULL then refuses."""
    return _project.get()


@contextmanager
def tenant(project_id: UUID) -> Iterator[None]:
    """A transaction that sees one project's rows. May be nested; the outer project is back afterwards."""
    with _setting("app.project_id", str(project_id)):
        token = _project.set(project_id)
        try:
            yield
        finally:
            _project.reset(token)


@contextmanager
def directory() -> Iterator[None]:
    """A transaction that may read projects, members and keys of every tenant, to find out which one is meant."""
    with _setting("app.directory", "on"):
        yield


@contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    is_outermost = not connection.in_atomic_block
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting(%s, true), set_config(%s, %s, true)", [name, name, value])
            previous = cursor.fetchone()[0]
        yield
        # The end of the transaction, or on an error of the savepoint, restores the outer value by itself.
        if not is_outermost:
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config(%s, %s, true)", [name, previous or ""])


class TenantManager(models.Manager):
    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(project_id=current_project_id())


class TenantModel(models.Model):
    """A row that belongs to one project: filled in from the current tenant, seen only inside it."""

    project = models.ForeignKey(
        "registry.Project", on_delete=models.CASCADE, default=project_of_new_row, related_name="+"
    )

    objects = TenantManager()

    class Meta:
        abstract = True


TENANT_SQL = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON {table}
  USING (project_id = NULLIF(current_setting('app.project_id', true), '')::uuid);
"""
DIRECTORY_SQL = """
CREATE POLICY directory ON {table} USING (current_setting('app.directory', true) = 'on');
"""


def protect(*tables: str, in_directory: bool = False) -> list[RunSQL]:
    """Migration operations that force row-level security on tables with a `project_id` column."""
    sql = TENANT_SQL + (DIRECTORY_SQL if in_directory else "")
    return [RunSQL(sql.format(table=table), RunSQL.noop) for table in tables]
