"""The lists of what came in, and their rows as a file."""

from asgiref.sync import sync_to_async
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console import exports, snippets
from console.access import MemberRequest, member_of, member_required
from console.exports import Chunk, Export
from console.keyset import Place, ordered_chunk
from console.listing import Asked, ExportOf, Found, show_list
from console.lists.alarms import ALARMS
from console.lists.audit import AUDIT
from console.lists.comparisons import COMPARISONS
from console.lists.evals import EVALS
from console.lists.flags import FLAGS
from console.lists.gates import GATES
from console.lists.gold import GOLD, agreement_of_people
from console.lists.sessions import SESSIONS
from console.lists.signals import SIGNALS
from console.lists.turns import TURNS
from console.lists.updates import UPDATES
from console.page_tables import PageTable
from console.patience import patience
from console.reads import policies
from console.views import compare, costs, judges, win_rates
from registry.errors import InvalidInput
from registry.models import Member
from registry.selectors import memberships
from registry.tenancy import tenant

LISTS = (SESSIONS, TURNS, SIGNALS, FLAGS, UPDATES, GATES, ALARMS, AUDIT, EVALS, COMPARISONS, GOLD)
EXPORTED = {kind.name: kind for kind in LISTS}
PAGE_TABLES = {table.name: table for table in (*compare.TABLES, *costs.TABLES, *win_rates.TABLES, *judges.TABLES)}


@require_safe
@member_required()
def sessions(request: MemberRequest) -> HttpResponse:
    return show_list(request, SESSIONS, context=_first_snippets)


@require_safe
@member_required()
def turns(request: MemberRequest) -> HttpResponse:
    return show_list(request, TURNS, context=_first_snippets)


@require_safe
@member_required()
def signals(request: MemberRequest) -> HttpResponse:
    return show_list(request, SIGNALS, context=_first_snippets)


@require_safe
@member_required()
def comparisons(request: MemberRequest) -> HttpResponse:
    return show_list(request, COMPARISONS)


@require_safe
@member_required()
def gold(request: MemberRequest) -> HttpResponse:
    return show_list(request, GOLD, context=_people_agree, template="gold/gold.html")


def _people_agree(found: Found) -> dict[str, object]:
    return {"people": agreement_of_people()} if found.rows else {}


async def export(request: HttpRequest, project: str, list: str) -> HttpResponse:
    """As `member_required`, for an answer that outlives its request: the tenant is opened anew for every chunk."""
    if request.method != "GET":
        return HttpResponseNotAllowed(["GET"])
    user = await request.auser()
    if not user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    member = member_of(await sync_to_async(memberships)(user), project)
    if list in PAGE_TABLES:
        return _export_table(request, PAGE_TABLES[list], member)
    kind = EXPORTED.get(list)
    if kind is None or kind.export is None:
        raise Http404(f"no list {list!r} to export")
    asked, format = kind.asked(request), request.GET.get("format", "csv")
    if asked.problem or format not in exports.FORMATS:
        return redirect(reverse(f"console:{list}", args=[project]) + asked.link(format=None))
    name = f"{project}-{list}"
    return exports.stream(
        Export(name=name, columns=kind.export.columns, read=_read(kind.export, asked, member)), format
    )


@require_safe
@member_required()
def export_queue(request: MemberRequest) -> HttpResponse:
    """Whether a further export would have to wait; asked for when the menu opens."""
    return render(
        request, "partials/export_queue.html", {"num_open": exports.num_open(), "num_readers": exports.READERS}
    )


def _export_table(request: HttpRequest, table: PageTable, member: Member) -> HttpResponse:
    slug, format = member.project.slug, request.GET.get("format", "csv")
    try:
        read = table.reader(request, member)
        return exports.stream(Export(name=f"{slug}-{table.name}", columns=table.columns, read=read), format)
    except InvalidInput:
        kept = request.GET.copy()
        kept.pop("format", None)
        return redirect(f"{reverse(f'console:{table.page}', args=[slug])}?{kept.urlencode()}")


def _first_snippets(found: Found) -> dict[str, object]:
    """What an empty project offers to copy; asked for only where there are no rows."""
    if found.rows:
        return {}
    policy = policies.chosen(policies.all_policies(), None)
    return {"snippets": snippets.first_signal(policy.name if policy else None)}


def _read(of: ExportOf, asked: Asked, member: Member) -> exports.Read:
    def read(place: Place | None, size: int) -> Chunk:
        with tenant(member.project_id), patience(exports.READ_S):
            found, after = ordered_chunk(of.rows(asked), place, size, order=asked.order, at=of.at)
            return Chunk(rows=of.values(found), next=after)

    return read
