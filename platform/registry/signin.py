"""Sign-in links: a signed token that opens one account once, within a day, without a password.

The token holds when its user last signed in; signing in moves that time on, so a used link opens nothing. A link that
owners of a project made opens its account only while that project is the only one the account belongs to.
"""

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core import signing

from registry.models import Member, Project
from registry.tenancy import directory

SALT = "strop.sign-in.2"
MAX_AGE_S = 24 * 3600


def sign_in_token(user: AbstractUser, *, made_by: Project | None = None) -> str:
    """`made_by` is the project whose owners asked for the link; None: whoever runs Strop."""
    project = str(made_by.pk) if made_by is not None else None
    return signing.dumps({"user": user.pk, "last": _last_login(user), "project": project}, salt=SALT)


def redeem(token: str) -> AbstractUser | None:
    """The user whom this link signs in; None when it is old, used, changed, or its user may not sign in with it.

    The caller must call `django.contrib.auth.login`, which is what uses the link up.
    """
    try:
        claim = signing.loads(token, salt=SALT, max_age=MAX_AGE_S)
    except signing.BadSignature:
        return None
    user = get_user_model().objects.filter(pk=claim["user"], is_active=True).first()
    if user is None or _last_login(user) != claim["last"]:
        return None
    return user if claim["project"] is None or _projects(user) == {claim["project"]} else None


def _projects(user: AbstractUser) -> set[str]:
    with directory():
        found = Member._base_manager.filter(user=user).values_list("project_id", flat=True)
        return {str(project_id) for project_id in found}


def _last_login(user: AbstractUser) -> str:
    return user.last_login.isoformat() if user.last_login else ""
