"""Review in Chromium: ten sessions by keyboard alone, two browsers at once, both themes, a phone, hostile text."""

import re

import pytest

from feedback.models import Flag, ReviewDraft, ReviewReservation, ReviewResponse, Turn
from feedback.services.review import Answer, respond
from registry.services import change_project_settings
from registry.tenancy import tenant
from tests.browser.looks import faults_of, violations
from tests.console import factories
from tests.console.test_pages import HOSTILE

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

RULES = ["tests_disagree", "malformed_output", "repeated_retry", "length_change", "tests_disagree"]


@pytest.fixture
def flags(project) -> list[Flag]:
    """Ten flagged sessions, the last of them a chat of several turns."""
    with tenant(project.id):
        factories.make_policy()
        made = []
        for i in range(10):
            for earlier in range(2 if i == 9 else 0):
                factories.make_turn(f"edit-{i}", index=earlier, completion=f"    first try {earlier}")
            turn = factories.make_turn(
                f"edit-{i}", index=2, user=f"u-{i}", asked=f"def task_{i}(a):", completion=f"    return a + {i}",
                outcome="reject" if i % 2 else "accept", edited_to="    return a - 1" if i == 9 else None,
            )  # fmt: skip
            factories.make_score(turn, float(i % 2))
            made.append(factories.make_flag(turn, rule=RULES[i % 5]))
        return made


class Keyboard:
    """A reviewer without a mouse."""

    def __init__(self, visitor) -> None:
        self.visitor, self.page = visitor, visitor.page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def go(self, *keys: str) -> int | None:
        """Press keys that lead to another page; the flag it shows, None for the queue."""
        with self.page.expect_navigation(wait_until="load"):
            self.press(*keys)
        return self.shown

    @property
    def shown(self) -> int | None:
        found = re.search(r"/review/(\d+)", self.page.url)
        return int(found[1]) if found else None

    def clean(self) -> None:
        assert violations(self.page) == [] and self.visitor.complaints == []


def test_ten_flagged_sessions_are_reviewed_by_keyboard_alone_undo_included(visit, reviewer, flags, project):
    visitor = visit("reviewer")
    visitor.open("/p/editor/overview")
    keys = Keyboard(visitor)
    keys.go("g", "r")
    visitor.page.wait_for_selector("button:focus:has-text('Start')")
    first = keys.go("Enter")
    keys.clean()
    keys.press("1")
    second = keys.go("Control+Enter")
    assert second != first

    keys.press("2", "a")
    keys.press("n")
    visitor.page.keyboard.type("secret in the prompt, jk")  # j and k are letters here
    third = keys.go("Control+Enter")

    assert keys.go("u") == second  # taken back, and open again with nothing filled in
    visitor.page.wait_for_selector(".toast:has-text('taken back')")
    with tenant(project.id):
        assert Flag.objects.get(pk=second).state == "open" and not Turn.objects.filter(is_excluded=True).exists()
    keys.press("2", "r")
    keys.go("Control+Enter")

    keys.press("e")
    visitor.page.keyboard.type("-0.25")
    fourth = keys.go("Meta+Enter")
    skipped = fourth
    fifth = keys.go("s")
    assert fifth != skipped

    keys.press("8", "6")
    sixth = keys.go("Control+Enter")
    keys.press("f")
    visitor.page.keyboard.type("is this sarcasm?")
    assert keys.go("Enter") == sixth
    visitor.page.wait_for_selector(".toast:has-text('waits for review')")
    seventh = keys.go("j")
    assert seventh not in (None, sixth) and keys.go("k") is not None
    keys.press("?")
    visitor.page.wait_for_selector("dialog[open] >> text=complete and go on")
    keys.press("Escape")

    for _ in range(12):
        if keys.shown is None:
            break
        keys.press("4")
        keys.go("Control+Enter")
    visitor.page.wait_for_selector("text=Look again at the 1 you skipped")
    keys.clean()
    visitor.page.focus("text=Look again at the 1 you skipped")
    keys.go("Enter")
    visitor.page.wait_for_selector("button:focus:has-text('Start')")
    assert keys.go("Enter") == skipped
    keys.press("3")
    keys.go("Control+Enter")
    # What the reviewer raised for somebody else is offered last; it is the only one left.
    if keys.shown is not None:
        keys.press("1")
        keys.go("Control+Enter")
    visitor.page.wait_for_selector("text=Nothing waits for review")
    visitor.shoot("review-done-light-1280")
    keys.clean()
    with tenant(project.id):
        assert Flag.objects.filter(state="open").count() == 0
        by_flag = {one.flag_id: one for one in ReviewResponse.objects.filter(withdrawn_at=None)}
        assert {by_flag[flag.pk].reviewer for flag in flags} == {"reviewer"}
        assert by_flag[first].resolution == "fine"
        assert (by_flag[second].resolution, by_flag[second].gold, by_flag[second].note) == ("excluded", "reject", "")
        assert (by_flag[third].resolution, by_flag[third].reward) == ("overridden", -0.25)
        assert by_flag[fifth].reward == 0.5 and by_flag[fifth].problem.startswith("reviewed-turns@1/turn-")
        assert by_flag[skipped].reward == -1.0


def test_two_reviewers_in_two_browsers_are_given_different_items(visit, reviewer, member, project, flags):
    member(project, "reviewer", username="second")
    first, second = Keyboard(visit("reviewer")), Keyboard(visit("second"))
    for keys in (first, second):
        keys.visitor.open("/p/editor/review")
    seen: dict[str, list[int]] = {"first": [first.go("Enter")], "second": [second.go("Enter")]}
    for _ in range(4):
        for name, keys in (("first", first), ("second", second)):
            keys.press("1")
            seen[name].append(keys.go("Control+Enter"))
    assert len(set(seen["first"]) | set(seen["second"])) == 10
    second.page.reload()
    assert second.page.locator(".review-rows .state-held:has-text('reviewer')").count() == 1
    second.visitor.open(f"/p/editor/review/{seen['first'][-1]}")
    second.page.wait_for_selector("[data-taken]:visible:has-text('reviewer looks at this right now')")
    second.visitor.shoot("review-taken-light-1280")
    second.clean()


def test_an_item_that_is_opened_is_held_and_a_draft_survives_leaving(visit, reviewer, project, flags):
    keys = Keyboard(visit("reviewer"))
    keys.visitor.open(f"/p/editor/review/{flags[0].pk}")
    keys.page.wait_for_load_state("networkidle")
    with tenant(project.id):
        assert [one.turn_id for one in ReviewReservation.objects.all()] == [flags[0].turn_id]
    keys.press("2", "n")
    keys.page.keyboard.type("half a thought")
    keys.page.wait_for_selector("text=Draft kept")
    keys.page.keyboard.type(", and more")
    keys.press("Escape")
    keys.go("j")
    keys.visitor.open(f"/p/editor/review/{flags[0].pk}")
    assert keys.page.input_value("#note") == "half a thought, and more"
    assert keys.page.is_checked("input[name=choice][value=excluded]")
    with tenant(project.id):
        assert ReviewDraft.objects.get().reviewer == "reviewer"


def test_auto_advance_is_remembered_and_off_keeps_the_item(visit, reviewer, flags):
    keys = Keyboard(visit("reviewer"))
    keys.visitor.open(f"/p/editor/review/{flags[0].pk}")
    keys.page.uncheck("[data-advance]")
    keys.press("1")
    assert keys.go("Control+Enter") == flags[0].pk
    keys.page.wait_for_selector("button:focus:has-text('Next')")
    keys.go("Enter")
    assert keys.shown != flags[0].pk and not keys.page.is_checked("[data-advance]")


def test_many_are_ticked_and_settled_at_once(visit, reviewer, flags):
    visitor = visit("reviewer")
    visitor.open("/p/editor/flagged")
    visitor.page.check("[data-pick] >> nth=0")
    visitor.page.check("[data-pick] >> nth=1")
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.click("[data-bulk] >> text=Exclude from training")
    visitor.page.wait_for_selector(".toast:has-text('2 taken out of training')")
    assert visitor.page.locator("tr[data-peek]").count() == 8 and visitor.complaints == []


def test_the_peek_panel_shows_the_item_and_takes_an_answer(visit, reviewer, flags):
    visitor = visit("reviewer")
    visitor.open("/p/editor/flagged")
    visitor.page.keyboard.press("j")
    visitor.page.wait_for_selector("[data-peek-body] .said-model:visible")
    visitor.shoot("flagged-peek-light-1280")
    assert violations(visitor.page) == []
    visitor.page.check("[data-peek-body] input[value=fine]")
    visitor.page.click("[data-peek-body] button:has-text('Complete')")
    visitor.page.wait_for_selector(".toast:has-text('Marked as fine')")
    assert visitor.complaints == []


@pytest.fixture
def pages(project, flags):
    """Every state of the pages: queue, item, one of two answers, settled, alone, retired rule, hostile, agreement."""
    with tenant(project.id):
        change_project_settings(
            project, actor="test", review_instructions="Exclude what holds secrets.\nOverride what is wrong but polite."
        )
        respond(
            flags[0], Answer(resolution="overridden", reward=-0.5, gold="reject", note="wrong sign"), reviewer="ann"
        )
        respond(flags[0], Answer(resolution="fine", gold="accept", note=HOSTILE), reviewer="bob")
        retired = factories.make_flag(factories.make_turn("old"), rule="profanity")
        hostile = factories.make_flag(
            factories.make_turn("a/b ?#<x>", asked=HOSTILE, completion=HOSTILE + "x" * 1_000_000, edited_to=HOSTILE)
        )
        gone = factories.make_flag(factories.make_turn("gone"))
        Turn.objects.filter(pk=gone.turn_id).delete()
    return {
        "flagged": "/p/editor/flagged?q=",
        "flagged-none": "/p/editor/flagged?q=rule:sample",
        "review": "/p/editor/review",
        "review-item": f"/p/editor/review/{flags[9].pk}",
        "review-settled": f"/p/editor/review/{flags[0].pk}",
        "review-retired": f"/p/editor/review/{retired.pk}",
        "review-hostile": f"/p/editor/review/{hostile.pk}",
        "review-focus": f"/p/editor/review/{flags[8].pk}/focus",
        "review-narrowed": "/p/editor/review?rule=sample",
        "review-agreement": "/p/editor/review/agreement",
        "review-gone": f"/p/editor/review/{gone.pk}",
    }


def test_every_state_is_clean_in_each_theme_and_on_a_phone(visit, engineer, pages):
    faults = faults_of(
        visit, "engineer", pages,
        ready=lambda _, page: page.wait_for_load_state("networkidle"),
        forgive=lambda name, said: name == "review-gone" and "404" in said,
    )  # fmt: skip
    assert faults == {}


def test_empty_and_single_pages_are_clean(visit, engineer, project):
    for rows in ("empty", "one"):
        paths = {"review": "review", "flagged": "flagged", "review-agreement": "review/agreement"}
        paths = {f"{name}-{rows}": f"/p/editor/{path}" for name, path in paths.items()}
        assert faults_of(visit, "engineer", paths, looks=["light"]) == {}
        if rows == "empty":
            with tenant(project.id):
                factories.make_policy()
                factories.make_flag(factories.make_turn("only"))
