"""Every page in Chromium: both themes, a phone's width, axe, the console's silence; and the loop's buttons."""

import pytest
from django.conf import global_settings

from registry.tenancy import tenant
from tests.browser.looks import faults_of, violations
from tests.console import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def paths(loop):
    return {
        "overview": "/p/editor/overview",
        "sessions": "/p/editor/sessions",
        "session": "/p/editor/sessions/edit-0",
        "turns": "/p/editor/turns",
        "signals": "/p/editor/signals",
        "flagged": "/p/editor/flagged",
        "updates": "/p/editor/updates",
        "update-trigger": "/p/editor/updates/new",
        "update-live": f"/p/editor/updates/{loop.updates[-1].id}",
        "update": f"/p/editor/updates/{loop.updates[0].id}",
        "checkpoints": "/p/editor/checkpoints",
        "checkpoint": "/p/editor/checkpoints/editor@2",
        "checkpoint-held": "/p/editor/checkpoints/editor@3",
    }


def test_every_page_is_clean_in_each_theme_and_on_a_phone(visit, owner, paths):
    assert faults_of(visit, "owner", paths) == {}


def test_empty_pages_are_clean(visit, owner, project):
    names = ("overview", "sessions", "turns", "signals", "flagged", "updates", "checkpoints")
    assert faults_of(visit, "owner", {f"{name}-empty": f"/p/editor/{name}" for name in names}, looks=["light"]) == {}


def test_sign_in_and_errors_are_clean(browser, site, owner):
    page = browser.new_page()
    for path in ("/sign-in", "/no/such/page"):
        page.goto(site + path)
        assert violations(page) == []
    page.close()


def test_a_person_signs_in_with_a_password_and_out_again(browser, site, project, member, settings):
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS  # the web process' own
    member(project, "owner")
    page = browser.new_page()
    page.goto(site + "/sign-in")
    page.fill("#id_username", "owner")
    page.fill("#id_password", "owner-password")
    page.click("text=Sign in >> nth=-1")
    page.wait_for_url("**/p/editor/overview")
    page.click("text=Sign out")
    page.wait_for_url("**/sign-in")
    page.close()


def test_the_theme_switch_repaints_and_is_remembered(visit, owner, paths):
    visitor = visit("owner")
    visitor.open(paths["overview"])
    visitor.page.select_option("#theme", "dark")
    assert visitor.page.evaluate("document.documentElement.dataset.bsTheme") == "dark"
    buttons = (
        "[...document.querySelectorAll('.plot-box')].map(box => box.querySelectorAll(':scope > .plot-csv').length)"
    )
    assert set(visitor.page.evaluate(buttons)) == {1}, "drawing a chart anew gives it no second button"
    visitor.open(paths["sessions"])
    assert visitor.page.evaluate("document.documentElement.dataset.bsTheme") == "dark"


def test_a_filter_changes_the_rows_and_the_address(visit, viewer, paths):
    visitor = visit("viewer")
    visitor.open(paths["sessions"])
    visitor.page.fill("[data-query]", "outcome:unsettled")
    visitor.page.press("[data-query]", "Enter")
    visitor.page.wait_for_url("**q=outcome%3Aunsettled**")
    visitor.page.wait_for_function("document.querySelectorAll('#results tbody tr').length === 1")
    assert visitor.complaints == []


def test_an_update_is_followed_live_to_its_end(visit, engineer, loop, paths, project):
    visitor = visit("engineer")
    visitor.open(paths["update-live"])
    visitor.page.wait_for_selector("text=live")
    with tenant(project.id):
        run = loop.updates[-1]
        factories.UpdateMetric.objects.create(run=run, step=5, values=factories.metrics(5))
        run.step, run.state = 5, "held"
        run.save()
    visitor.page.wait_for_selector("[data-live-state]:text('finished')")
    assert "5 of 6" in visitor.page.inner_text("#update-progress")
    points = visitor.page.evaluate("document.querySelector('[data-figure=\"curve-loss\"]').data[0].x.length")
    assert points == 5 and visitor.page.query_selector("[data-while-live]") is None and visitor.complaints == []


def test_the_trigger_button_seals_a_batch_and_opens_the_update(visit, engineer, project):
    with tenant(project.id):
        factories.make_policy(min_turns=4, every_turns=500)
        for i in range(6):
            factories.make_turn(f"s{i}", outcome="accept" if i % 2 else "reject")
    visitor = visit("engineer")
    visitor.open("/p/editor/updates")
    visitor.page.click("text=Trigger update")
    visitor.page.fill("#set-learning_rate", "0.00002")
    visitor.page.click("text=Seal the batch and train")
    visitor.page.wait_for_url("**/updates/*-*")
    with tenant(project.id):
        run = factories.UpdateRun.objects.select_related("batch").get()
    assert (run.state, run.trigger, run.requested_by) == ("queued", "person", "engineer")
    assert run.config["learning_rate"] == 2e-5 and run.batch.num_samples == 6
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.click("text=Cancel update")
    visitor.page.wait_for_selector(".state-cancelled")
    assert visitor.complaints == []


def test_the_gate_is_overruled_only_with_a_reason(visit, engineer, paths):
    visitor = visit("engineer")
    visitor.open(paths["checkpoint-held"])
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.click("text=Promote against the gate")
    assert visitor.page.locator("#promote-reason:invalid").count() == 1
    visitor.page.fill("#promote-reason", "the tests are wrong")
    visitor.page.click("text=Promote against the gate")
    visitor.page.wait_for_selector("text=promote against the gate")
    assert "the tests are wrong" in visitor.page.content() and visitor.complaints == []


def test_a_viewer_is_offered_no_button_that_changes_anything(visit, viewer, paths):
    visitor = visit("viewer")
    for path in paths.values():
        if path.endswith("/new"):
            continue
        visitor.open(path)
        posts = visitor.page.eval_on_selector_all("form[method=post]", "forms => forms.map(form => form.action)")
        own = ("/sign-out", "/views/save")  # of the visitor's own session and views
        assert [action for action in posts if not action.endswith(own)] == []
