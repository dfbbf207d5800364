"""Who belongs to a project: invited by link, changed, removed; never without an owner."""

import threading

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from registry import members
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import AuditEvent, Member
from registry.signin import redeem
from registry.tenancy import tenant


def member_of(project, user) -> Member:
    with tenant(project.id):
        return Member.objects.get(user=user)


def test_a_person_without_an_account_gets_one_and_a_link_that_opens_it(project):
    with tenant(project.id):
        invited = members.invite("ann@example.org", "reviewer", actor="owner")
    user = redeem(invited.token)
    assert user.username == "ann@example.org" and not user.has_usable_password()
    assert member_of(project, user).role == "reviewer"


def test_an_account_that_is_there_already_is_not_for_owners_to_invite(project, stranger):
    with tenant(project.id), pytest.raises(Conflict, match="strop members add stranger"):
        members.invite("stranger", "viewer", actor="owner")
    with tenant(project.id):
        assert not Member.objects.exists()


def test_who_set_an_account_up_in_one_project_does_not_enter_another_with_it(project, other_project, client):
    with tenant(project.id):
        squatted = redeem(members.invite("bob@example.org", "viewer", actor="owner").token)
    squatted.set_password("known to the squatter")
    squatted.save()
    client.force_login(squatted)
    assert client.get("/p/editor/overview").status_code == 200
    with tenant(other_project.id), pytest.raises(Conflict):
        members.invite("bob@example.org", "owner", actor="stranger")
    assert client.get("/p/other/overview").status_code == 404

    with tenant(other_project.id):
        link = members.add("bob@example.org", "owner", actor="cli").token
    assert client.get("/p/other/overview").status_code == 302  # the session has ended
    assert not client.login(username="bob@example.org", password="known to the squatter")
    assert redeem(link) == squatted


def test_a_link_made_before_its_account_joined_another_project_opens_nothing(project, other_project):
    with tenant(project.id):
        first = members.invite("bob@example.org", "viewer", actor="owner")
        again = members.new_sign_in_link(first.member.pk, actor="owner")
    assert redeem(first.token) == redeem(again.token) == first.member.user
    with tenant(other_project.id):
        members.add("bob@example.org", "viewer", actor="cli")
    assert redeem(first.token) is None and redeem(again.token) is None


def test_a_link_of_somebody_who_was_removed_opens_nothing(project, owner):
    with tenant(project.id):
        invited = members.invite("bob@example.org", "viewer", actor="owner")
        members.remove(invited.member.pk, actor="owner")
    assert redeem(invited.token) is None


def test_nobody_is_invited_twice(project, viewer):
    with tenant(project.id), pytest.raises(Conflict, match="viewer already"):
        members.invite("viewer", "owner", actor="owner")
    assert member_of(project, viewer).role == "viewer"


@pytest.mark.parametrize("name", ["", " ", "a b", "<script>", "x" * 151, "a\0b"])
def test_a_name_that_cannot_be_is_refused_with_the_field(project, name):
    with tenant(project.id), pytest.raises(InvalidInput) as refusal:
        members.invite(name, "viewer", actor="owner")
    assert refusal.value.field == "username" and not get_user_model().objects.exists()


def test_the_last_owner_stays_an_owner(project, owner, engineer):
    last = member_of(project, owner)
    with tenant(project.id):
        for act in (
            lambda: members.change_role(last.pk, "viewer", actor="owner"),
            lambda: members.remove(last.pk, actor="owner"),
        ):
            with pytest.raises(Conflict, match="only owner"):
                act()
        members.change_role(member_of(project, engineer).pk, "owner", actor="owner")
        assert members.change_role(last.pk, "viewer", actor="owner").role == "viewer"


@pytest.mark.django_db(transaction=True)
def test_two_owners_who_step_down_at_once_leave_one(project, member):
    pks = [member_of(project, member(project, "owner", username=name)).pk for name in ("ann", "bob")]
    started, ends = threading.Barrier(2), []

    def step_down(pk: int) -> None:
        started.wait()
        try:
            with tenant(project.id):
                members.change_role(pk, "viewer", actor="x")
        except Conflict:
            ends.append(pk)
        finally:
            connection.close()

    threads = [threading.Thread(target=step_down, args=(pk,)) for pk in pks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 1
    with tenant(project.id):
        assert Member.objects.filter(role="owner").count() == 1


def test_who_is_removed_finds_nothing_any_more(project, owner, viewer, client):
    client.force_login(viewer)
    with tenant(project.id):
        members.remove(member_of(project, viewer).pk, actor="owner")
    assert client.get("/p/editor/overview").status_code == 404


def test_a_member_of_another_project_is_not_found(project, stranger, other_project):
    pk = member_of(other_project, stranger).pk
    with tenant(project.id), pytest.raises(NotFound):
        members.remove(pk, actor="owner")


def test_a_lost_link_is_made_again_but_never_into_an_account_of_another_project(project, owner, viewer, other_project):
    with tenant(project.id):
        assert redeem(members.new_sign_in_link(member_of(project, viewer).pk, actor="owner").token) == viewer
    with tenant(other_project.id):
        Member.objects.create(user=viewer, role="viewer")
    with tenant(project.id), pytest.raises(Conflict, match="another project"):
        members.new_sign_in_link(member_of(project, viewer).pk, actor="owner")


def test_each_step_is_in_the_audit_trail(project, owner):
    with tenant(project.id):
        made = members.invite("ann", "viewer", actor="owner").member
        members.change_role(made.pk, "reviewer", actor="owner")
        members.remove(made.pk, actor="owner")
        steps = AuditEvent.objects.filter(object_kind="member").order_by("pk").values_list("verb", "object_id", "actor")
        assert list(steps) == [(verb, "ann", "owner") for verb in ("invite", "change role", "remove")]
