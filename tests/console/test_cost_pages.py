"""Costs, cost against quality, budgets and price cards as pages."""

import json
import re
from datetime import timedelta
from decimal import Decimal as D

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from evals.models import Score
from registry.models import AuditEvent, Budget, PriceCard
from registry.tenancy import tenant
from rl_online.services import price_lists
from tests.console import evaluate, factories
from tests.console.test_bounds import unbounded

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def text(client, page: str) -> str:
    html = client.get(f"/p/editor/{page}").content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_list_prices_of_models_in_use_come_with_their_source_and_date(as_owner, project):
    with tenant(project.id):
        factories.make_turn("s", version=None, model="o3", input_tokens=1_000_000, output_tokens=0, at=NOW)
        evaluate.count_hours()
    price_lists.look_all()
    with tenant(project.id):
        assert price_lists.models_to_ask(project.id) == []
        assert PriceCard.objects.filter(model="o3").count() > 1 and price_lists.copy_lists(["o3"]) == 0
        assert AuditEvent.objects.filter(object_kind="price list", object_id="o3", actor="strop").exists()
    page = text(as_owner, "costs/prices")
    assert "genai-prices" in page and "openai/o3" in page and "2025-06-10" in page and "batch" in page
    assert "$2 " in text(as_owner, "costs")


def test_beside_the_points_stand_the_list_prices_of_what_others_measure_themselves_against(as_owner, project):
    price_lists.look_all()
    page = text(as_owner, "costs/quality")
    assert re.search(r"composer-2.5 \$0.5 \$0.2 as input \$2.5", page)
    assert re.search(r"composer-2.5-fast \$3 \$0.5 as input \$15", page)
    assert "claude-opus-4-7" in page and "gpt-5.5" in page
    assert "not what a solved problem costs" in page


def test_without_a_card_a_model_is_unpriced_on_the_page_and_no_price_is_made_up(as_owner, project):
    assert re.search(r"gpt-5.5 unpriced no price card and not in the list", text(as_owner, "costs/quality"))


def test_imported_runs_are_drawn_beside_own_ones_and_free_or_unpriced_ones_are_only_named(as_owner, project):
    with tenant(project.id):
        gate = evaluate.make_benchmark(size=8)
        evaluate.make_run(gate, "gpt-5", solves=0.8, cost=D("0.01"))
        imported = evaluate.make_run(gate, "claude", solves=0.6, cost=D("0.02"), source_key="k" * 64)
        Score.objects.filter(run=imported, problem__problem_id="add/0").update(cost_usd=D("0.09"))
        evaluate.make_run(gate, "free", solves=0.9, cost=D(0))
        evaluate.make_run(gate, "gpt-99-preview", solves=0.9)
    html = as_owner.get("/p/editor/costs/quality").content.decode()
    figure = json.loads(re.search(r'<script id="[^"]*pareto[^"]*"[^>]*>(.*?)</script>', html, re.S).group(1))
    drawn = {trace["name"]: trace for trace in figure["data"] if trace["name"] != "frontier"}
    assert set(drawn) == {"gpt-5", "claude"} and figure["layout"]["xaxis"]["type"] == "log"
    assert all(drawn["claude"][bar]["array"][0] > 0 for bar in ("error_x", "error_y"))
    page = text(as_owner, "costs/quality")
    assert "free (costs nothing, which a logarithmic axis cannot show)" in page
    assert "gpt-99-preview ( 8 answers unpriced)" in page.replace("(8", "( 8")
    assert "as its file tells" in page and "imported" in page


def test_a_tier_and_a_batch_rate_are_added_by_the_form_and_shown(as_owner, project):
    sent = {
        "kind": "tokens", "model": "m", "input_usd": "1", "output_usd": "4", "date": "2026-11-01", "hour": "0",
        "above-1": "200000", "input_usd-1": "2", "output_usd-1": "8",
        "processing-3": "batch", "from-3": "16:30", "to-3": "00:30", "input_usd-3": "0.5", "output_usd-3": "2",
    }  # fmt: skip
    assert as_owner.post("/p/editor/costs/prices/add", sent).status_code == 302
    page = text(as_owner, "costs/prices")
    assert "beyond 200,000 prompt tokens $2" in page and "batch, 16:30 to 00:30 UTC $0.5" in page
    refused = as_owner.post("/p/editor/costs/prices/add", sent | {"model": "n", "above-1": "many"})
    assert refused.status_code == 400 and 'value="many"' in refused.content.decode()
    refused = as_owner.post("/p/editor/costs/prices/add", sent | {"model": "n", "hour": "99999999999"})
    assert refused.status_code == 400 and "write a date and an hour" in refused.content.decode()


def test_a_budget_is_set_changed_and_removed_and_an_old_form_overwrites_nothing(as_owner, project):
    new = {"kind": "judging", "period": "month", "usd": "20", "alert_percents": "50 100", "stops": "on"}
    assert as_owner.post("/p/editor/costs/budgets/add", new).status_code == 302
    assert as_owner.post("/p/editor/costs/budgets/add", new).status_code == 409
    with tenant(project.id):
        budget = Budget.objects.get()
    there = f"/p/editor/costs/budgets/{budget.pk}/change"
    seen = re.search(r'name="seen" value="([^"]+)"', as_owner.get("/p/editor/costs/budgets").content.decode()).group(1)
    form = {"seen": seen.replace("&quot;", '"'), "usd": "30", "alert_percents": "90"}
    assert as_owner.post(there, form).status_code == 302
    for sent, is_ticked in ((form, False), (form | {"stops": "on"}, True)):  # what was sent stays, not what is stored
        stale = as_owner.post(there, sent | {"usd": "40"})
        change = stale.content.decode().partition("Another one")[0]
        assert stale.status_code == 409 and "Amount was" in change and ('name="stops" checked' in change) is is_ticked
    with tenant(project.id):
        budget.refresh_from_db()
    assert (budget.usd, budget.alert_percents, budget.stops) == (30, [90], False)
    assert "Judging a month" in text(as_owner, "costs")
    seen = json.dumps({"usd": "30", "alert_percents": "90", "stops": False})
    assert as_owner.post(there, {"seen": seen, "do": "remove"}).status_code == 302
    assert "No budget" in text(as_owner, "costs/budgets")


def test_costs_say_which_tokens_are_left_out_and_what_an_engine_idled(as_owner, project):
    with tenant(project.id):
        factories.make_turn("s", version=None, model="gpt-99-preview", input_tokens=1_200, output_tokens=34, at=NOW)
        evaluate.count_hours()
    page = text(as_owner, "costs")
    assert "1 of 1 calls have no price and are not in it, nor their 1,234 tokens" in page
    assert "no engine reported in this time" in page
    assert text(as_owner, f"costs?from={NOW - timedelta(days=9):%F}&to={NOW - timedelta(days=8):%F}")


def test_turns_that_are_priced_one_by_one_are_read_by_their_time(as_owner, project):
    with tenant(project.id):
        tier = {"above": 200_000, "input_usd": "2", "output_usd": "2"}
        evaluate.make_card("gpt-5.5", input_usd=D(1), output_usd=D(1), variants=[tier])
        factories.make_turn("s", version=None, model="gpt-5.5", input_tokens=300_000, output_tokens=0, at=NOW)
        evaluate.count_hours()
    with CaptureQueriesContext(connection) as queries:
        assert "$0.6" in text(as_owner, "costs")
    assert any("covering" in query["sql"] and "feedback_turn\n" in query["sql"] for query in queries)
    assert unbounded(project, queries) == []
