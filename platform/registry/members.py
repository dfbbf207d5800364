"""Who belongs to a project and as what: invite, change a role, remove, give a new sign-in link. Inside a tenant.

A project always keeps an owner. Its owners make accounts and links into them, so they never get hold of an account that
is there already: whoever runs Strop adds such a person, and what opened the account before opens it no more.
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
    token: str  # of a sign-in link to hand over


def members() -> list[Member]:
    return list(Member.objects.select_related("user").order_by("created_at", "pk"))


def invite(username: str, role: str, *, actor: str) -> Invited:
    """Make the account and its membership.

    Raises InvalidInput naming the field, Conflict for somebody who is a member or has an account already.
    """
    username, wanted = _user_name(username), _role(role)
    user, is_new = get_user_model().objects.get_or_create(username=username)
    if not is_new:
        _refuse_a_member(user)
        raise Conflict(
            f"{username} has an account already; whoever runs Strop adds them: strop members add {username}",
            field="username",
        )
    member = _add(user, wanted)
    audit("invite", "member", username, actor=actor, after={"role": wanted})
    return Invited(member=member, token=sign_in_token(user, made_by=member.project))


def add(username: str, role: str, *, actor: str) -> Invited:
    """For whoever runs Strop: also somebody with an account. Its password and sessions end, so that nobody who set the
    account up under this name comes along; the link is the way in.

    Raises InvalidInput naming the field, Conflict for somebody who is a member already.
    """
    username, wanted = _user_name(username), _role(role)
    user, _ = get_user_model().objects.get_or_create(username=username)
    _refuse_a_member(user)
    member = _add(user, wanted)
    audit("add", "member", username, actor=actor, after={"role": wanted})
    return Invited(member=member, token=sign_in_token(user))


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
        raise Conflict(
            f"{member.user} belongs to another project too; whoever runs Strop makes their link: "
            f"strop members link {member.user}"
        )
    user = member.user
    assert isinstance(user, AbstractUser)
    audit("make sign-in link", "member", user, actor=actor)
    return Invited(member=member, token=sign_in_token(user, made_by=member.project))


def _user_name(text: str) -> str:
    username = text.strip()
    if not USER_NAME.fullmatch(username):
        raise InvalidInput("use up to 150 letters, digits and @ . + - _, e.g. an e-mail address", field="username")
    return username


def _refuse_a_member(user: AbstractUser) -> None:
    member = Member.objects.filter(user=user).first()
    if member is not None:
        raise Conflict(f"{user} is {member.role} already; change the role instead", field="username")


def _add(user: AbstractUser, role: Role) -> Member:
    """The membership, of an account that no password and no session opens any more."""
    user.set_unusable_password()
    user.save(update_fields=["password"])
    return Member.objects.create(user=user, role=role)


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
