"""The pages that no other file here walks, of a project with some of everything; and what was cut once."""

import pytest

from registry.tenancy import tenant
from tests.browser.looks import faults_of
from tests.console import evaluate, factories, settings_rows
from tests.console.test_access import TABLE

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NO_PAGES = {  # streams, files, fragments, redirects
    "project", "overview-live", "palette", "resolve", "export", "export-queue", "session-turns", "turn-tokens",
    "update-live", "update-next", "update-corrections", "update-compare", "policies-live", "onboarding-live",
    "compare-problem", "eval-run-live", "eval-uploaded",
}  # fmt: skip
ELSEWHERE = {  # walked with rows of their own beside this file
    "overview", "alerts", "sessions", "session", "turns", "signals", "flagged", "updates", "update", "update-trigger",
    "checkpoints", "checkpoint", "turn", "ingestion", "recipes", "label-recipe", "label-recipe-new", "reward-spec",
    "reward-spec-new", "review", "review-item", "review-focus", "review-agreement", "dry-run", "update-samples",
    "gates", "gate", "gate-problems", "deployments", "engines", "evals", "eval-run", "eval-problem", "leaderboard",
    "compare", "win-rates", "judges", "judge", "costs", "prices", "settings", "members", "keys", "policies",
    "notifications", "channel", "audit", "password", "onboarding", "system", "compare-two", "win-rates-people",
}  # fmt: skip
MORE = {  # the same pages with more to show
    "compare-two": "/p/editor/compare?a=editor@1&b=editor@2",
    "win-rates-people": "/p/editor/win-rates?by=people",
    "checkpoints-second": "/p/editor/checkpoints?policy=writer",
}
LABELS = """() => [...document.querySelectorAll(".review-form .choice")]
  .map((label) => [label.innerText, label.offsetHeight])"""


@pytest.fixture
def paths(loop, project, owner):
    """Every page that answers a GET, of a project with some of everything and two policies."""
    with tenant(project.id):
        evaluated = evaluate.make_evaluated(loop)
        factories.make_heldout(loop.policy, loop.checkpoints[1], right=7, wrong=3)
        for name in ("embedded", "engine-2"):
            factories.make_engine(name)
            factories.EngineHolding.objects.create(
                engine=name, checkpoint=loop.checkpoints[1], tree_digest=loop.checkpoints[1].tree_digest
            )
        factories.make_policy("writer")
        judge = evaluated["base"].pk
    facts = {
        "session": "edit-0", "flag": loop.flags[0].pk, "turn": loop.turns[0].turn_id, "update": loop.updates[-1].id,
        "checkpoint": "editor@2", "alarm": factories.make_alarm(project).pk,
        "job": factories.make_given_up_job(project).pk,
        **settings_rows.make_facts(project), **factories.make_recipes(project),
    }  # fmt: skip
    with tenant(project.id):
        facts |= {"judge": judge, "comparison": evaluate.Comparison.objects.earliest("id").pk}
        facts |= factories.make_train_facts(loop)
    pages = {
        name: row
        for name, row in TABLE.items()
        if row.post is None and name not in NO_PAGES and set(row.kwargs.values()) <= set(facts)
    }
    return {name: row.address(name, facts) for name, row in pages.items()} | MORE


def test_the_rest_of_the_pages_is_clean_in_each_theme_and_on_a_phone(visit, paths):
    assert faults_of(visit, "owner", {name: path for name, path in paths.items() if name not in ELSEWHERE}) == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_label_of_the_review_form_wraps_at_1280(visit, reviewer, loop, theme):
    visitor = visit("reviewer", theme=theme, width=1280)
    visitor.open(f"/p/editor/review/{loop.flags[0].pk}")
    labels = visitor.page.evaluate(LABELS)
    visitor.shoot(f"review-form-{theme}")
    assert labels and {text: height for text, height in labels if height > 34} == {}


def test_the_columns_that_were_cut_are_whole(visit, paths):
    visitor = visit("owner", width=1280)
    for page, column in (("checkpoints", "Engines"), ("updates", "Took")):
        visitor.open(paths[page])
        head = visitor.page.locator(f"main th:text-is('{column}')").bounding_box()
        assert head["x"] + head["width"] <= 1280, f"{column} of {page} is cut"
