"""Two walls between tenants: managers that refuse, and row-level security under the app's own role."""

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction

from registry.models import ApiKey, AuditEvent, Policy, Project
from registry.services import audit, create_policy
from registry.tenancy import TenantMissing, TenantModel, directory, tenant

pytestmark = pytest.mark.django_db


def test_a_query_outside_a_tenant_is_refused():
    with pytest.raises(TenantMissing):
        Policy.objects.count()


def test_rows_of_another_project_are_seen_neither_by_the_manager_nor_by_sql(project, other_project):
    with tenant(project.id):
        create_policy("editor", source="", actor="t")
    with tenant(other_project.id):
        assert Policy.objects.count() == 0
        assert Policy._base_manager.count() == 0
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM registry_policy")
            assert cursor.fetchone() == (0,)


def test_a_row_cannot_be_written_into_another_project(project, other_project):
    with tenant(other_project.id), pytest.raises(DatabaseError, match="row-level security"), transaction.atomic():
        Policy._base_manager.create(project_id=project.id, name="stolen")


def test_leaving_an_inner_tenant_brings_the_outer_back(project, other_project):
    with tenant(project.id):
        with tenant(other_project.id):
            pass
        create_policy("editor", source="", actor="t")
        assert Policy._base_manager.count() == 1


def test_an_error_in_an_inner_tenant_brings_the_outer_back(project, other_project):
    with tenant(project.id):
        create_policy("editor", source="", actor="t")
        with pytest.raises(RuntimeError), tenant(other_project.id):
            raise RuntimeError
        assert Policy._base_manager.count() == 1


def test_the_directory_shows_projects_and_keys_but_no_tenant_rows(project):
    with tenant(project.id):
        create_policy("editor", source="", actor="t")
    with directory():
        assert Project.objects.filter(id=project.id).exists()
        assert ApiKey._base_manager.count() >= 0
        assert Policy._base_manager.count() == 0


def test_the_app_role_can_neither_bypass_row_level_security_nor_own_tables():
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False, False)
        cursor.execute("SELECT count(*) FROM pg_tables WHERE tableowner = current_user AND schemaname = 'public'")
        assert cursor.fetchone() == (0,)


def test_every_table_with_a_project_has_forced_row_level_security():
    named_exemptions = {"jobs_job"}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity FROM pg_class c "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'project_id' AND NOT a.attisdropped "
            "WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace"
        )
        unprotected = {name for name, is_forced in cursor.fetchall() if not is_forced}
    assert unprotected == named_exemptions


def test_every_model_with_a_project_goes_through_the_door():
    rooms = {"registry", "feedback", "evals", "rl_online"}
    loose = {
        model.__name__
        for model in apps.get_models()
        if model._meta.app_label in rooms and not issubclass(model, TenantModel)
    }
    assert loose == {"Project", "TurnPayload"}  # the tenant itself; COPY-only rows read by SQL inside a tenant


@pytest.mark.parametrize("sql", ["UPDATE registry_auditevent SET verb = 'x'", "DELETE FROM registry_auditevent"])
def test_the_audit_trail_refuses_changes(project, sql):
    with tenant(project.id):
        audit("promote", "checkpoint", "editor@2", actor="owner")
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
        assert AuditEvent.objects.filter(verb="promote").count() == 1
