"""Finding things: any id leads to its page and only for members, and the palette offers what a role may do."""

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

from console.context import SIDEBAR
from evals.models import Comparison
from feedback.models import UserSignal
from jobs.models import Job
from registry.models import Checkpoint, Member, Policy
from registry.tenancy import tenant
from rl_online.models import RewardBatch, UpdateRun
from tests.console import factories


def target(client, reference, *, slug=None):
    """Where the address of a name leads, with its query; None when it is not found."""
    response = client.get(f"/p/{slug}/id/{reference}" if slug else f"/id/{reference}")
    return response.url if response.status_code == 302 else None


@pytest.fixture
def names(project, loop):
    """Kind -> a name of one such object, and the end of its page's address."""
    turn = loop.turns[0]
    with tenant(project.id):
        signal = UserSignal.objects.filter(turn=turn).first()
        checkpoint = Checkpoint.objects.get(version=2)
        batch = RewardBatch.objects.first()
        run = UpdateRun.objects.first()
        pair = Comparison.objects.create(left="editor@1", right="editor@2", by="tests", verdict="left")
        job = Job.objects.create(kind="feedback.label", project_id=project.id, run_at=turn.at)
        policy = Policy.objects.get()
    return {
        "session": ("edit-0", "/sessions/edit-0"),
        "turn": (turn.turn_id, turn.turn_id),
        "signal": (signal.signal_id, turn.turn_id),
        "checkpoint": ("editor@2", "/checkpoints/editor@2"),
        "checkpoint id": (str(checkpoint.id), "/checkpoints/editor@2"),
        "checkpoint digest": (checkpoint.tree_digest, "/checkpoints/editor@2"),
        "beginning of a digest": (checkpoint.tree_digest[:8], "/checkpoints/editor@2"),
        "batch": (batch.digest, ""),
        "update": (str(run.id), f"/updates/{run.id}"),
        "policy": ("editor", "/checkpoints?policy=editor"),
        "policy id": (str(policy.id), "/checkpoints?policy=editor"),
        "flag": (f"flag:{loop.flags[0].pk}", f"#flag-{loop.flags[0].pk}"),
        "comparison": (f"comparison:{pair.pk}", ""),
        "job": (f"job:{job.pk}", ""),
    }


KINDS = [
    "session", "turn", "signal", "checkpoint", "checkpoint id", "checkpoint digest", "beginning of a digest", "batch",
    "update", "policy", "policy id", "flag", "comparison", "job",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_any_name_leads_to_its_page(as_owner, names, kind):
    name, end = names[kind]
    for slug in (None, "editor"):
        url = target(as_owner, name, slug=slug)
        assert url is not None and url.startswith("/p/editor/") and url.endswith(end)
    assert as_owner.get(url, follow=True).status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_another_project_are_found_by_nobody_else(client, stranger, names, kind):
    client.force_login(stranger)
    name, _ = names[kind]
    assert target(client, name) is None and target(client, name, slug="other") is None
    assert target(client, name, slug="editor") is None


@pytest.mark.parametrize("name", ["nope", "editor@999", "flag:999999", "a" * 200, "%00", "~", "flag:x", "deadbeef"])
def test_a_name_of_nothing_is_not_found(as_owner, loop, name):
    assert as_owner.get(f"/id/{name}").status_code == 404


def test_a_session_whose_id_breaks_paths_is_found_too(as_owner, project):
    with tenant(project.id):
        factories.make_turn("a/b c")
    assert as_owner.get("/id/a/b c", follow=True).status_code == 200


def test_nobody_is_sent_to_sign_in_first(client, loop):
    response = client.get("/id/edit-0")
    assert response.status_code == 302 and response.url.startswith("/sign-in?next=/id/edit-0")


def test_of_two_projects_with_the_same_id_the_one_visited_last_is_meant(as_owner, owner, project, other_project):
    with tenant(other_project.id):
        Member.objects.create(user=owner, role="viewer")
    for one in (project, other_project):
        with tenant(one.id):
            factories.make_turn("same")
    as_owner.get("/p/other/sessions")
    assert target(as_owner, "same") == "/p/other/sessions/same"
    as_owner.get("/p/editor/sessions")
    assert target(as_owner, "same") == "/p/editor/sessions/same"


def test_an_orphan_is_found_on_the_list_of_signals(as_owner, project, loop):
    with tenant(project.id):
        UserSignal.objects.create(signal_id="lost one", turn_ref="never", kind="accept", at=loop.turns[0].at)
    page = as_owner.get("/id/lost one", follow=True)
    assert page.redirect_chain[0][0].startswith("/p/editor/signals?") and "waits for its turn" in page.content.decode()


# --- The palette ---


def found(client, text=""):
    return client.get("/p/editor/palette", {"q": text}).json()["items"]


def titles(items):
    return [item["title"] for item in items]


def test_without_a_word_it_offers_pages_and_the_newest_checkpoints(as_owner, loop):
    offered = titles(found(as_owner))
    assert {"Overview", "Sessions", "Turns", "Signals", "editor", "editor@3"} <= set(offered)


def test_every_word_must_be_in_the_title(as_owner, loop):
    assert "Trigger an update" in titles(found(as_owner, "trig upd"))
    assert "Sessions" not in titles(found(as_owner, "trig upd"))


def test_a_checkpoint_is_found_by_half_its_name(as_owner, loop):
    assert "editor@2" in titles(found(as_owner, "edi@2")) and "editor@3" not in titles(found(as_owner, "edi@2"))


def test_a_pasted_id_comes_first(as_owner, loop):
    first = found(as_owner, loop.turns[0].turn_id)[0]
    assert first["group"] == "Found" and loop.turns[0].turn_id in first["url"]


def test_a_viewer_is_not_offered_what_needs_an_engineer(client, viewer, loop):
    client.force_login(viewer)
    assert "Trigger an update" not in titles(found(client))


def test_a_shared_view_is_offered_and_another_persons_own_is_not(as_owner, project):
    factories.make_view(project, name="everyone's", query="q=has%3Aerror")
    factories.make_view(project, name="private", query="q=has%3Aerror", is_shared=False)
    offered = found(as_owner)
    assert "everyone's" in titles(offered) and "private" not in titles(offered)
    assert "/p/editor/turns?q=has%3Aerror" in [item["url"] for item in offered]


@pytest.mark.parametrize("text", ["<script>", "\x00", "x" * 5000, "'; DROP", "@", "@@@", "editor@99999999999"])
def test_no_text_breaks_it(as_owner, loop, text):
    assert as_owner.get("/p/editor/palette", {"q": text}).status_code == 200


# --- The sidebar ---


def test_every_place_has_a_key_of_its_own():
    keys = [place.key for _, group in SIDEBAR for place in group]
    assert sorted(keys) == sorted(set(keys)) and all(len(key) == 1 and key.isalpha() for key in keys)


def test_every_place_has_an_icon():
    drawn = set(re.findall(r'<symbol id="([a-z-]+)"', Path(finders.find("console/icons.svg")).read_text()))
    assert {place.icon for _, group in SIDEBAR for place in group} <= drawn
