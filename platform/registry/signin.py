"""Sign-in links: a signed token that opens one account once, within a day, without a password.

The token holds when its user last signed in; signing in moves that time on, so a used link opens nothing.
"""

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core import signing

SALT = "strop.sign-in"
MAX_AGE_S = 24 * 3600


def sign_in_token(user: AbstractUser) -> str:
    return signing.dumps({"user": user.pk, "last": _last_login(user)}, salt=SALT)


def redeem(token: str) -> AbstractUser | None:
    """The user whom this link signs in; None when it is old, used, changed, or its user may not sign in.

    The caller must call `django.contrib.auth.login`, which is what uses the link up.
    """
    try:
        claim = signing.loads(token, salt=SALT, max_age=MAX_AGE_S)
    except signing.BadSignature:
        return None
    user = get_user_model().objects.filter(pk=claim["user"], is_active=True).first()
    return user if user is not None and _last_login(user) == claim["last"] else None


def _last_login(user: AbstractUser) -> str:
    return user.last_login.isoformat() if user.last_login else ""
