"""Two policies in one project: each page with the switcher shows the chosen one, and the choice is in its address."""

import asyncio
import html
import json
import re
from datetime import timedelta

import pytest
from django.test import AsyncClient
from django.utils import timezone

from feedback.services.rollups import count_all_dirty
from registry.models import Checkpoint, Deployment
from registry.tenancy import tenant
from tests.console import factories

PAGES = ("overview", "updates", "updates/new", "checkpoints", "deployments")
FRAGMENTS = ("updates/next", "updates/corrections")
EDITOR_TURNS, WRITER_TURNS = 40, 18  # settled turns of what serves: 20 of editor@2, 18 of writer@1


@pytest.fixture
def two(project, loop):
    """Beside the loop of `editor`: `writer`, which serves its first checkpoint and has one update that was held."""
    with tenant(project.id):
        writer = factories.make_policy("writer", every_turns=77)
        first = Checkpoint.objects.get(policy=writer)
        now = timezone.now()
        turns = [
            factories.make_turn(f"w-{i}", policy="writer", at=now - timedelta(minutes=i + 1), outcome="reject")
            for i in range(WRITER_TURNS)
        ]
        second = factories.make_checkpoint(writer, 2, first, state="candidate")
        run = factories.make_update(
            writer, factories.make_batch(writer, turns[:3]), parent=first, version=2, checkpoint=second, state="held"
        )
        factories.make_report(second, first, run=run)
        count_all_dirty(project.id)
    return {"editor": loop.policy, "writer": writer}


def get(client, path: str) -> str:
    response = client.get(f"/p/editor/{path}")
    assert response.status_code == 200, (path, response.status_code)
    return response.content.decode()


def content(page: str) -> str:
    """What the page shows of its own: without the switcher, what other pages are offered, and other policies' links."""
    main = page.partition('<main id="content"')[2].partition("</main>")[0] or page
    return re.sub(r'<nav class="tabs" aria-label="Policy">.*?</nav>', "", main, flags=re.DOTALL)


@pytest.mark.parametrize("path", (*PAGES, *FRAGMENTS))
@pytest.mark.parametrize(("chosen", "other"), [("editor", "writer"), ("writer", "editor")])
def test_a_page_shows_checkpoints_and_numbers_of_the_chosen_policy_only(as_owner, two, path, chosen, other):
    shown = content(get(as_owner, f"{path}?policy={chosen}"))
    assert f"{other}@" not in shown, f"{path} of {chosen} speaks of {other}"
    if path in PAGES:
        assert f"{chosen}@" in shown


@pytest.mark.parametrize("path", PAGES)
def test_the_switcher_marks_the_choice_and_its_links_hold_it(as_owner, two, path):
    for chosen in two:
        page = get(as_owner, f"{path}?policy={chosen}")
        switcher = re.search(r'<nav class="tabs" aria-label="Policy">(.*?)</nav>', page, re.DOTALL)[1]
        assert re.findall(r'aria-current="true">(\w+)<', switcher) == [chosen]
        links = {re.search(r">(\w+)$", one)[1]: one for one in re.findall(r"<a [^>]*>\w+", switcher)}
        assert all(f"policy={name}" in links[name] for name in two)


def test_without_a_choice_the_first_policy_is_shown(as_owner, two):
    for path in PAGES:
        assert re.search(r'aria-current="true">editor</a>', get(as_owner, path))


@pytest.mark.parametrize("path", (*PAGES, *FRAGMENTS))
def test_a_policy_that_is_not_there_is_not_found(as_owner, two, path):
    assert as_owner.get(f"/p/editor/{path}?policy=nobody").status_code == 404


def test_the_numbers_are_those_of_the_chosen_policy(as_owner, two):
    editor, writer = (content(get(as_owner, f"overview?policy={name}")) for name in ("editor", "writer"))
    assert "n 18 turns" in writer and "0.0 %" in writer  # all of writer's were rejected
    assert "n 18 turns" not in editor and "n 20 turns" in editor
    assert "of 77 turns" in writer and "of 96 turns" in editor
    assert "every 77 labelled turns" in get(as_owner, "updates?policy=writer")
    checkpoints = content(get(as_owner, "checkpoints?policy=writer"))
    assert "writer@2" in checkpoints and ", n 18</span>" in checkpoints


def test_the_live_stream_of_the_overview_is_of_the_chosen_policy(transactional_db, project, member):
    user = member(project, "owner")
    with tenant(project.id):
        factories.make_loop()
        writer = factories.make_policy("writer")

    async def first(url: str) -> str:
        client = AsyncClient()
        await client.aforce_login(user)
        response = await client.get(url)
        async for chunk in response.streaming_content:
            if chunk.startswith(b"event: parts"):
                return "".join(json.loads(chunk.decode().split("data: ")[1])["parts"].values())
        return ""

    shown = asyncio.run(first(f"/p/editor/overview/live?policy={writer.name}"))
    assert "writer@1" in shown and "editor@" not in shown


def test_further_pages_of_updates_keep_the_choice(as_owner, project, two):
    with tenant(project.id):
        writer = two["writer"]
        first, turn = Deployment.objects.get(policy=writer).checkpoint, []
        for version in range(3, 63):
            batch = factories.make_batch(writer, turn)
            factories.make_update(writer, batch, parent=first, version=version, state="held", steps=0)
    page = get(as_owner, "updates?policy=writer")
    older = html.unescape(re.search(r'rel="next" href="([^"]+)"', page)[1])
    second = get(as_owner, f"updates{older}")
    assert "writer learns" in second and "editor@" not in content(second)
