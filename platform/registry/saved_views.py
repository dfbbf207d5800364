"""A list's filter under a name, for one person or for the whole project. Inside a tenant; every change is audited."""

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q

from registry.errors import Forbidden, InvalidInput, NotFound
from registry.models import Member, Role, SavedView
from registry.services import audit

MAX_VIEWS = 100  # of one person


def saved_views(user: AbstractBaseUser, page: str) -> list[SavedView]:
    """The person's own and those shared with the project, by name."""
    mine = SavedView.objects.filter(Q(owner=user) | Q(is_shared=True), page=page)
    return list(mine.select_related("owner").order_by("name", "id")[: 2 * MAX_VIEWS])


def save_view(member: Member, *, page: str, name: str, query: str, is_shared: bool) -> SavedView:
    """Keep a filter, in place of the person's view of the same name. Raises InvalidInput and Forbidden."""
    name = " ".join(name.replace("\x00", "").split())
    if not 0 < len(name) <= 80:
        raise InvalidInput("give the view a name of 1 to 80 characters", field="name")
    if len(query) > 4000 or "\x00" in query:
        raise InvalidInput("this filter is too long to keep", field="query")
    if is_shared and not Role(member.role).may(Role(Role.REVIEWER)):
        raise Forbidden(f"sharing a view needs the role reviewer; yours is {member.role}")
    if SavedView.objects.filter(owner=member.user).exclude(page=page, name=name).count() >= MAX_VIEWS:
        raise InvalidInput(f"at most {MAX_VIEWS} views a person; delete one first", field="name")
    kept = {"query": query, "is_shared": is_shared}
    view, _ = SavedView.objects.update_or_create(page=page, owner=member.user, name=name, defaults=kept)
    audit("save", "view", view.pk, actor=member.user.get_username(), after={"page": page, "name": name, **kept})
    return view


def delete_view(view_id: int, member: Member) -> SavedView:
    """Its owner may, and an owner of the project. Raises NotFound and Forbidden."""
    view = SavedView.objects.filter(pk=view_id).first()
    if view is None or not (view.is_shared or view.owner_id == member.user_id):
        raise NotFound("no such view")
    if view.owner_id != member.user_id and not Role(member.role).may(Role(Role.OWNER)):
        raise Forbidden("only who saved a view, or an owner, may delete it")
    view_id = view.pk
    view.delete()
    audit("delete", "view", view_id, actor=member.user.get_username(), before={"page": view.page, "name": view.name})
    return view
