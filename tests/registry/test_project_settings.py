"""A project's settings: what one person changes, another does not undo unknowingly."""

from registry.models import AuditEvent, Project
from registry.services import change_project_settings, project_settings
from registry.tenancy import tenant


def test_two_who_read_the_settings_before_either_changed_them_both_keep_their_change(project):
    with tenant(project.id):
        first, second = Project.objects.get(), Project.objects.get()
        change_project_settings(first, actor="ann", decision_window_s=30.0)
        change_project_settings(second, actor="bob", review_responses=2)
        now = project_settings(project.id)
        assert (now.decision_window_s, now.review_responses) == (30.0, 2)
        assert (second.settings["decision_window_s"], second.settings["review_responses"]) == (30.0, 2)
        last = AuditEvent.objects.filter(object_kind="project settings").latest("pk")
        assert (last.before["decision_window_s"], last.before["review_responses"]) == (30.0, 1.0)
