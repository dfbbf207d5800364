"""What the command palette finds for a few typed words: pages, acts, policies, checkpoints, saved views, any id."""

from dataclasses import asdict, dataclass

from django.db.models import Q
from django.urls import NoReverseMatch, reverse

from console.context import places
from console.reads.objects import locate
from registry.models import Checkpoint, Member, Policy, Role, SavedView

MOST = 8  # of each kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One line. Exactly one of `url` and `act` says what Enter does."""

    group: str
    title: str
    note: str = ""
    url: str = ""
    act: str = ""  # of palette.js: theme:dark, keys, sidebar


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """Something to do that starts on a page."""

    title: str
    url: str  # name of the address
    role: str = Role.VIEWER
    at: str = ""  # query or fragment


ACTS = (
    Act(title="Trigger an update", url="update-trigger", role=Role.ENGINEER),
    Act(title="Review flagged turns", url="review", role=Role.REVIEWER),
    Act(title="Compare two checkpoints", url="compare"),
    Act(title="Pause or resume learning", url="updates", role=Role.ENGINEER),
    Act(title="Promote or roll back", url="deployments", role=Role.ENGINEER),
    Act(title="Add a member", url="members", role=Role.OWNER),
    Act(title="Create a key", url="keys", role=Role.OWNER),
)
HERE = (
    Item(group="On this page", title="Light theme", act="theme:light"),
    Item(group="On this page", title="Dark theme", act="theme:dark"),
    Item(group="On this page", title="System theme", act="theme:system"),
    Item(group="On this page", title="Show the keys", note="?", act="keys"),
    Item(group="On this page", title="Fold the sidebar", note="[", act="sidebar"),
)


def find_items(text: str, member: Member) -> list[dict[str, str]]:
    """In the order they are shown: an object of exactly this name first."""
    text = text.replace("\x00", "").strip()[:200]
    words = text.lower().split()
    items = [*_exact(text, member), *_pages(member), *_acts(member), *HERE]
    fitting = [item for item in items if item.group == "Found" or _fits(item.title, words)]
    return [asdict(item) for item in [*fitting, *_named(words, member)]]


def _exact(text: str, member: Member) -> list[Item]:
    found = locate(text, member.project.slug) if text else None
    return [Item(group="Found", title=found.title, note=found.kind, url=found.url)] if found else []


def _pages(member: Member) -> list[Item]:
    slug = member.project.slug
    return [
        Item(group="Pages", title=place.title, note=f"g {place.key}", url=reverse(f"console:{place.url}", args=[slug]))
        for place in places()
    ]


def _acts(member: Member) -> list[Item]:
    found = []
    for act in ACTS:
        if not Role(member.role).may(Role(act.role)):
            continue
        try:
            url = reverse(f"console:{act.url}", args=[member.project.slug]) + act.at
        except NoReverseMatch:
            continue
        found.append(Item(group="Actions", title=act.title, url=url))
    return found


def _named(words: list[str], member: Member) -> list[Item]:
    """Rows whose name holds every word; without words the newest checkpoints."""
    slug = member.project.slug
    of_views, of_policies = Q(owner_id=member.user_id) | Q(is_shared=True), Q()
    for word in words:
        of_views &= Q(name__icontains=word)
        of_policies &= Q(name__icontains=word)
    views = [
        Item(
            group="Saved views",
            title=view.name,
            note=view.page,
            url=f"{reverse(f'console:{view.page}', args=[slug])}?{view.query}",
        )
        for view in SavedView.objects.filter(of_views).order_by("name")[:MOST]
    ]
    policies = [
        Item(
            group="Policies",
            title=policy.name,
            url=f"{reverse('console:checkpoints', args=[slug])}?policy={policy.name}",
        )
        for policy in Policy.objects.filter(of_policies).order_by("name")[:MOST]
    ]
    checkpoints = [
        Item(group="Checkpoints", title=str(one), note=one.state, url=reverse("console:checkpoint", args=[slug, one]))
        for one in _checkpoints(words)
    ]
    return [*views, *policies, *checkpoints]


def _checkpoints(words: list[str]) -> list[Checkpoint]:
    wanted = Q()
    for word in words:
        name, at, version = word.partition("@")
        wanted &= Q(policy__name__icontains=name) | Q(state__startswith=word)
        if at and version.isascii() and version.isdigit():
            wanted &= Q(version__in=_versions(version))
    return list(Checkpoint.objects.filter(wanted).select_related("policy").order_by("-created_at")[:MOST])


def _versions(beginning: str) -> list[int]:
    """Versions a half-typed number may become: 1 -> 1, 10 to 19."""
    number = int(beginning[:6])
    return [number, *range(number * 10, number * 10 + 10)]


def _fits(title: str, words: list[str]) -> bool:
    return all(word in title.lower() for word in words)
