"""How pages are looked at: in light, in dark, on a phone; axe, the console's silence, nothing cut, a picture of each.

Axe's rules are all asked once, in light; in dark the contrast, which is all that a theme changes; on a phone the rest.
Of several pages the sidebar, which they have in common, is asked about its contrast on the first.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

CONTRAST = "color-contrast"  # most of axe's time
ONLY_CONTRAST = {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": [CONTRAST]}}
SIDEBAR = "aside.navbar"
EVERY_LOOK = ("light", "dark", "phone")

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = """() => [...document.querySelectorAll("main .table-box, main .figures, main .panel")]
  .filter((box) => box.offsetParent && box.scrollWidth > box.clientWidth + 1)
  .map((box) => `${box.getAttribute("aria-label") || box.className}: ${box.scrollWidth - box.clientWidth} px cut`)"""
UNFRAMED = """() => [...document.querySelectorAll("main table")]
  .filter((one) => one.offsetParent && !one.closest(".table-box") && one.scrollWidth > one.parentElement.clientWidth)
  .map((one) => `a table of ${one.scrollWidth} px has no frame of its own`)"""


def violations(page) -> list[str]:
    """What axe finds on a whole page."""
    return _all_but_contrast(page) + _contrast(page)


def _all_but_contrast(page) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"], "rules": {CONTRAST: {"enabled": False}}})
    return _said(found.response["violations"])


def _contrast(page, *, without: Sequence[str] = ()) -> list[str]:
    """After the rest, which brings axe into the page. Of a long table the first rows: the others look like them."""
    where = {"exclude": ["tbody tr:nth-child(n+13)", *without]}
    return _said(page.evaluate("([where, options]) => axe.run(where, options)", [where, ONLY_CONTRAST])["violations"])


def _said(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


def faults_of(
    visit: Callable[..., Any],
    username: str,
    paths: Mapping[str, str],
    *,
    looks: Sequence[str] = EVERY_LOOK,
    is_whole: bool = True,
    ready: Callable[[str, Any], None] = lambda name, page: None,
    forgive: Callable[[str, str], bool] = lambda name, said: False,
) -> dict[str, list[str]]:
    """Page -> what is wrong with it. Not `is_whole`: tables may be cut on a desk, as by a name without end. What comes
    after the load is waited for by `ready(name, page)`; `forgive(name, said)` is asked about the browser's complaints.
    """
    faults = defaultdict(list)
    visitor = visit(username)
    page = visitor.page

    def look(name: str, at: str) -> None:
        visitor.shoot(f"{name}-{at}")
        faults[name] += [said for said in visitor.complaints if not forgive(name, said)]
        visitor.complaints.clear()

    for number, (name, path) in enumerate(paths.items()):
        seen = [SIDEBAR] if number else []
        visitor.open(path)
        ready(name, page)
        faults[name] += _all_but_contrast(page) + _contrast(page, without=seen)
        faults[name] += _wider(page) + (page.evaluate(CUT) if is_whole else [])
        look(name, "light-1280")
        if "dark" in looks:
            page.emulate_media(color_scheme="dark")
            page.wait_for_selector("html[data-bs-theme=dark]", state="attached")
            faults[name] += _contrast(page, without=seen)
            look(name, "dark-1280")
            page.emulate_media(color_scheme="light")
    if "phone" in looks:
        visitor.widen(390)
        for name, path in paths.items():
            visitor.open(path)
            ready(name, page)
            faults[name] += _all_but_contrast(page) + page.evaluate(UNFRAMED) + _wider(page)
            look(name, "light-390")
    return {name: found for name, found in faults.items() if found}


def _wider(page) -> list[str]:
    by = page.evaluate(WIDER)
    return [f"{by} px wider than the screen"] if by > 0 else []
