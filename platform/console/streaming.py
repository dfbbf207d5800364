"""A live stream for members: as `member_required`, for a view that outlives its request.

The tenant is opened anew for every reading, and times are written in the zone of the page that opened the stream.
"""

from collections.abc import Callable, Hashable

from asgiref.sync import sync_to_async
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils import timezone

from console.access import member_of
from console.live import Snapshot, follow
from console.timerange import zone_of
from registry.errors import NotFound
from registry.models import Project, Role
from registry.selectors import memberships
from registry.tenancy import tenant


async def stream(
    request: HttpRequest,
    slug: str,
    key: tuple[Hashable, ...],
    read: Callable[[Project], Snapshot],
    *,
    poll_s: float,
    role: str = Role.VIEWER,
) -> HttpResponse:
    """What `read` returns, each time it has changed; readers of one project, key and zone share each reading."""
    if request.method != "GET":
        return HttpResponseNotAllowed(["GET"])
    user = await request.auser()
    if not user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    member = member_of(await sync_to_async(memberships)(user), slug)
    if not Role(member.role).may(Role(role)):
        raise PermissionDenied(f"this needs the role {role}; yours is {member.role}")

    zone = zone_of(request)

    def read_as_tenant() -> Snapshot:
        with timezone.override(zone), tenant(member.project_id):
            return read(member.project)

    try:
        await sync_to_async(_look_once)(read_as_tenant)
    except NotFound as error:
        raise Http404(error.message) from error
    return follow((member.project_id, zone, *key), read_as_tenant, poll_s=poll_s)


def _look_once(read: Callable[[], Snapshot]) -> None:
    """One reading before the stream opens, so that what is not there answers 404. Gives its connection back."""
    try:
        read()
    finally:
        if not connection.in_atomic_block:
            connection.close()
