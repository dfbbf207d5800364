"""Who belongs to a project and as what: invite, change a role, remove, give a new sign-in link. Inside a tenant.

A project always keeps an owner. Nobody is given a way into an account that also belongs to another project.
"""

import re
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser

from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import Member, Role
from registry.services import audit
from registry.signin import sign_in_token
from registry.tenancy import directory

USER_NAME = re.compile(r"[\w.@+-]{1,150}")


@dataclass(frozen=True, kw_only=True)
class Invited:
    member: Member
    token: str | None  # of a sign-in link to hand over; None where the person has an account already


def members() -> list[Member]:
    return list(Member.objects.select_related("user").order_by("created_at", "pk"))


def invite(username: str, role: str, *, actor: str) -> Invited:
    """Make the account if there is none, and its membership.

    Raises InvalidInput naming the field, Conflict for somebody who is a member already.
    """
    username, wanted = username.strip(), _role(role)
    if not USER_NAME.fullmatch(username):
        raise InvalidInput("use up to 150 letters, digits and @ . + - _, e.g. an e-mail address", field="username")
    user, is_new = get_user_model().objects.get_or_create(username=username)
    if is_new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    member, is_added = Member.objects.get_or_create(user=user, defaults={"role": wanted})
    if not is_added:
        raise Conflict(f"{username} is {member.role} already; change the role instead", field="username")
    audit("invite", "member", username, actor=actor, after={"role": wanted})
    return Invited(member=member, token=sign_in_token(user) if is_new else None)


def change_role(member_id: int, role: str, *, actor: str) -> Member:
    """Raises Conflict when the project would be left without an owner."""
    wanted = _role(role)
    member = _locked(member_id)
    if member.role == wanted:
        return member
    _keep_an_owner(member, unless=wanted == Role.OWNER)
    before = member.role
    member.role = wanted
    member.save(update_fields=["role"])
    audit("change role", "member", member.user, actor=actor, before={"role": before}, after={"role": wanted})
    return member


def remove(member_id: int, *, actor: str) -> str:
    """The name of who is out now. The account stays, and so does what it did; its next request finds nothing here."""
    member = _locked(member_id)
    _keep_an_owner(member)
    name = member.user.get_username()
    audit("remove", "member", name, actor=actor, before={"role": member.role})
    member.delete()
    return name


def new_sign_in_link(member_id: int, *, actor: str) -> Invited:
    """For somebody who lost theirs. Raises Conflict for a person who belongs to another project too: its owners would
    be going in under a name that opens more than their own project.
    """
    member = _locked(member_id)
    with directory():
        is_elsewhere = Member._base_manager.filter(user=member.user).exclude(project=member.project_id).exists()
    if is_elsewhere:
        raise Conflict(f"{member.user} belongs to another project too; whoever runs Strop makes their link")
    user = member.user
    assert isinstance(user, AbstractUser)
    audit("make sign-in link", "member", user, actor=actor)
    return Invited(member=member, token=sign_in_token(user))


def _role(role: str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise InvalidInput(f"found {role!r}; choose from {', '.join(Role.values)}", field="role") from None


def _locked(member_id: int) -> Member:
    # All owners, always in the same order: two who step down at once do so one after the other.
    list(Member.objects.select_for_update().filter(role=Role.OWNER).order_by("pk"))
    member = Member.objects.select_related("user").filter(pk=member_id).first()
    if member is None:
        raise NotFound("no such member of this project", field="member")
    return member


def _keep_an_owner(member: Member, *, unless: bool = False) -> None:
    others = Member.objects.filter(role=Role.OWNER).exclude(pk=member.pk)
    if member.role == Role.OWNER and not unless and not others.exists():
        raise Conflict(f"{member.user} is the only owner; make somebody else an owner first")
