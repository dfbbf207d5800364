"""Saved views: a person's own or the project's, never another tenant's; who may share and delete them."""

import pytest

from registry.errors import Forbidden, InvalidInput, NotFound
from registry.models import AuditEvent, Member, SavedView
from registry.saved_views import MAX_VIEWS, delete_view, save_view, saved_views
from registry.tenancy import tenant


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield project


def membership(user):
    return Member.objects.get(user=user)


def save(user, name="rejected", *, query="q=outcome:reject", page="turns", is_shared=False):
    return save_view(membership(user), page=page, name=name, query=query, is_shared=is_shared)


def names(user, page="turns"):
    return [view.name for view in saved_views(user, page)]


def test_a_view_is_its_owners_alone_until_it_is_shared(inside, viewer, reviewer):
    save(reviewer)
    assert names(reviewer) == ["rejected"] and names(viewer) == []
    save(reviewer, is_shared=True)
    assert names(viewer) == ["rejected"]


def test_saving_under_the_same_name_replaces_it(inside, viewer):
    first = save(viewer)
    again = save(viewer, query="q=has:error")
    assert again.pk == first.pk and SavedView.objects.get().query == "q=has:error"


def test_each_list_has_its_own_views(inside, viewer):
    save(viewer, page="turns")
    assert names(viewer, "sessions") == []


@pytest.mark.parametrize(("name", "query"), [("", "q=x"), ("  ", "q=x"), ("x" * 81, "q=x"), ("x", "q=" + "y" * 4000)])
def test_a_view_without_a_name_or_too_long_is_refused(inside, viewer, name, query):
    with pytest.raises(InvalidInput):
        save(viewer, name, query=query)


def test_a_viewer_may_not_share(inside, viewer):
    with pytest.raises(Forbidden, match="needs the role reviewer"):
        save(viewer, is_shared=True)


def test_a_person_keeps_a_bounded_number_of_views(inside, viewer):
    SavedView.objects.bulk_create(
        SavedView(page="turns", name=f"v{i}", query="", owner=viewer) for i in range(MAX_VIEWS)
    )
    with pytest.raises(InvalidInput, match="delete one first"):
        save(viewer)
    save(viewer, "v0", query="q=still")


def test_a_shared_view_is_deleted_by_its_owner_or_an_owner_of_the_project(inside, viewer, reviewer, owner):
    view = save(reviewer, is_shared=True)
    with pytest.raises(Forbidden):
        delete_view(view.pk, membership(viewer))
    delete_view(view.pk, membership(owner))
    assert not SavedView.objects.exists()


def test_another_persons_own_view_is_not_there_for_anyone_else(inside, viewer, owner):
    view = save(viewer)
    with pytest.raises(NotFound):
        delete_view(view.pk, membership(owner))


def test_views_of_another_project_are_not_seen(inside, viewer, other_project):
    view = save(viewer)
    with tenant(other_project.id):
        assert SavedView.objects.count() == 0 and not SavedView._base_manager.filter(pk=view.pk).exists()


def test_saving_and_deleting_are_in_the_audit_trail(inside, viewer):
    delete_view(save(viewer).pk, membership(viewer))
    verbs = AuditEvent.objects.filter(object_kind="view").order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["save", "delete"]
