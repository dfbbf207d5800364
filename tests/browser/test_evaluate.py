"""Compare, Win rates, Judges and Costs in Chromium: both themes, a phone's width, axe, and their buttons."""

from decimal import Decimal
from urllib.parse import quote

import pytest

from evals.models import CanaryRun, Problem
from registry.models import PriceCard
from registry.tenancy import tenant
from tests.browser.looks import faults_of
from tests.console import evaluate, factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egnp.exe\u200b"


@pytest.fixture
def evaluated(loop, project):
    with tenant(project.id):
        return evaluate.make_evaluated(loop)


@pytest.fixture
def paths(evaluated):
    return {
        "compare": "/p/editor/compare?a=editor@1&b=editor@2",
        "compare-model": "/p/editor/compare?a=editor@2&b=gpt-5",
        "compare-nothing": "/p/editor/compare?a=editor@1&b=nobody-ran-this",
        "compare-choose": "/p/editor/compare",
        "compare-problem": f"/p/editor/compare/problems/{evaluated['problems'][0].pk}?a=editor@1&b=editor@2",
        "win-rates": "/p/editor/win-rates",
        "win-rates-people": "/p/editor/win-rates?by=people",
        "judges": "/p/editor/judges",
        "judge": f"/p/editor/judges/{evaluated['base'].pk}",
        "judge-blocked": f"/p/editor/judges/{evaluated['outside'].pk}",
        "costs": "/p/editor/costs",
        "prices": "/p/editor/costs/prices",
    }


def test_every_page_is_clean_in_each_theme_and_on_a_phone(visit, owner, paths):
    assert faults_of(visit, "owner", paths) == {}


def test_empty_pages_are_clean(visit, owner, project):
    names = ("compare", "win-rates", "judges", "costs", "costs/prices")
    empty = {f"{name.replace('/', '-')}-empty": f"/p/editor/{name}" for name in names}
    assert faults_of(visit, "owner", empty, looks=["light"]) == {}


def test_one_of_everything_is_clean(visit, owner, project):
    with tenant(project.id):
        factories.make_policy()
        gate = evaluate.make_benchmark(size=1)
        evaluate.make_run(gate, "editor@1", solves=0.0), evaluate.make_run(gate, "gpt-5", solves=1.0)
        evaluate.make_judgement(evaluate.make_judge(), Problem.objects.get(), "left", left="gpt-5", right="editor@1")
        factories.make_turn("one")
        evaluate.count_hours()
    paths = {
        "compare-one": "/p/editor/compare?a=editor@1&b=gpt-5", "win-rates-one": "/p/editor/win-rates",
        "judges-one": "/p/editor/judges", "costs-one": "/p/editor/costs",
    }  # fmt: skip
    assert faults_of(visit, "owner", paths, looks=["light"]) == {}


def test_hostile_names_and_answers_run_nothing(visit, owner, loop, project):
    with tenant(project.id):
        gate = evaluate.make_benchmark(HOSTILE, size=2)
        evaluate.make_run(gate, "editor@1", solves=0.0)
        evaluate.make_run(gate, HOSTILE, solves=1.0, cost=Decimal("0.01"))
        judge, problem = evaluate.make_judge(HOSTILE, HOSTILE), Problem.objects.first()
        for left in (HOSTILE, "editor@3"):
            evaluate.make_judgement(judge, problem, "left", left=left, left_text=HOSTILE * 20_000, raw=HOSTILE)
        evaluate.make_card(HOSTILE, input_usd=Decimal(1))
        factories.make_turn("hostile", version=None, model=HOSTILE)
        evaluate.count_hours()
    paths = {
        "compare-hostile": f"/p/editor/compare?a=editor@1&b={quote(HOSTILE)}",
        "compare-problem-hostile": f"/p/editor/compare/problems/{problem.pk}?a=editor@1&b={quote(HOSTILE)}",
        "win-rates-hostile": "/p/editor/win-rates",
        "judge-hostile": f"/p/editor/judges/{judge.pk}",
        "costs-hostile": "/p/editor/costs",
        "prices-hostile": "/p/editor/costs/prices",
    }
    ran = []

    def watched(username):
        visitor = visit(username)
        visitor.page.on("dialog", lambda dialog: (ran.append(dialog.message), dialog.dismiss()))
        return visitor

    assert (faults_of(watched, "owner", paths, looks=["light"], is_whole=False), ran) == ({}, [])


def test_two_checkpoints_are_chosen_compared_and_a_problem_is_opened_at_the_side(visit, viewer, paths):
    visitor = visit("viewer")
    visitor.open("/p/editor/compare")
    visitor.page.fill("#side-a", "editor@2")
    visitor.page.fill("#side-b", "editor@3")
    visitor.page.click("button:text('Compare')")
    visitor.page.wait_for_url("**/compare?*b=editor%403*")
    assert "editor@3 against editor@2" in visitor.page.inner_text("h1")
    visitor.page.click("nav[aria-label=Change] a:has-text('regression')")
    visitor.page.wait_for_url("**change=regression**")
    assert set(visitor.page.locator("#problems tbody .state").all_inner_texts()) == {"regression"}
    visitor.page.click("#problems tbody tr >> nth=0 >> td >> nth=1")
    visitor.page.wait_for_selector("[data-peek-panel]:not([hidden]) .said-model")
    visitor.page.keyboard.press("Escape")
    visitor.page.click("text=Swap sides")
    visitor.page.wait_for_url("**a=editor%403**")
    assert visitor.complaints == []


def test_a_bar_of_the_forest_leads_to_the_problems_of_its_slice(visit, viewer, paths):
    visitor = visit("viewer")
    visitor.open(paths["compare"])
    visitor.page.wait_for_selector("[data-figure='forest-1'] .points path")
    point = visitor.page.locator("[data-figure='forest-1'] .points path").nth(1).bounding_box()
    visitor.page.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    visitor.page.wait_for_url("**slice=half*")
    assert visitor.page.locator("#slice").input_value() == "half: seen families" and visitor.complaints == []


def test_canaries_are_started_from_the_judges_page(visit, engineer, evaluated, project):
    visitor = visit("engineer")
    visitor.open(f"/p/editor/judges/{evaluated['base'].pk}")
    visitor.page.click("button:text('Run canaries')")
    visitor.page.wait_for_selector(".toast:has-text('are asked')")
    assert "waits for a worker" in visitor.page.inner_text("#canaries") and visitor.complaints == []
    with tenant(project.id):
        assert CanaryRun.objects.filter(state="running").count() == 1


def test_a_price_card_is_added_and_one_that_is_none_is_refused_in_place(visit, engineer, project):
    visitor = visit("engineer")
    visitor.open("/p/editor/costs/prices?model=gpt-5")
    visitor.page.fill("#input_usd", "-1")
    visitor.page.click("#tokens button:text('Add card')")
    visitor.page.wait_for_selector(".problem:has-text('input usd: found -1')")
    assert visitor.page.input_value("#model") == "gpt-5"
    visitor.page.fill("#input_usd", "1.25")
    visitor.page.click("#tokens button:text('Add card')")
    visitor.page.wait_for_selector(".toast:has-text('gpt-5 has a price from')")
    visitor.page.fill("#device_hour_usd", "2.40")
    visitor.page.click("#hardware button:text('Add card')")
    visitor.page.wait_for_selector(".toast:has-text('own hardware has a price from')")
    with tenant(project.id):
        assert dict(PriceCard.objects.values_list("model", "device_hour_usd"))["own hardware"] == Decimal("2.40")
    assert [said for said in visitor.complaints if "400" not in said] == []


def test_a_viewer_is_offered_no_button_that_changes_anything(visit, viewer, paths):
    visitor = visit("viewer")
    for path in paths.values():
        visitor.open(path)
        posts = visitor.page.eval_on_selector_all("form[method=post]", "forms => forms.map(form => form.action)")
        assert [action for action in posts if not action.endswith("/sign-out")] == []
