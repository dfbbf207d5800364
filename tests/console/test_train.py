"""The pages of training: what they show, what their forms do, what they refuse."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console.lists.gates import GATES
from console.lists.updates import UPDATES
from evals.models import Benchmark, EvalRun, Problem, Score
from registry.models import AuditEvent, Checkpoint, Deployment, PriceCard
from registry.tenancy import tenant
from rl_online.models import DryRun, GateReport, LearningPlan, UpdateRun
from tests.console import factories
from tests.console.engines import running_engine
from tests.console.settings_rows import seen_on

HOSTILE = "<script>alert(1)</script>\u202egnp.exe\u200b{{ 7|add:7 }}"


def get(client, name, /, query="", **kwargs):
    response = client.get(reverse(f"console:{name}", kwargs={"project": "editor"} | kwargs) + query)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def post(client, name, data, /, **kwargs):
    return client.post(reverse(f"console:{name}", kwargs={"project": "editor"} | kwargs), data)


@pytest.fixture
def ready(project):
    """A policy with six labelled turns that an update would take."""
    with tenant(project.id):
        policy = factories.make_policy(min_turns=4, every_turns=500)
        for i in range(6):
            factories.make_turn(f"s{i}", outcome="accept" if i % 2 else "reject")
    return policy


class TestUpdates:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("?q=state:held", ["editor@3"]),
            ("?q=-state:held,training", ["editor@2"]),
            ("?q=checkpoint:editor@2", ["editor@2"]),
            ("?q=from:editor@1", ["editor@2"]),
            ("?q=gate:hold", ["editor@3"]),
            ("?q=samples:>1000", []),
            ("?q=nonsense:1", []),
        ],
    )
    def test_the_list_is_narrowed_by_its_query(self, as_owner, loop, query, found):
        html = get(as_owner, "updates", query)
        rows = [run.version for run in loop.updates if f"/updates/{run.id}" in html]
        assert [f"editor@{version}" for version in rows] == found

    def test_a_range_without_updates_differs_from_never_had_one(self, as_owner, project, loop):
        with tenant(project.id):
            UpdateRun.objects.update(created_at=timezone.now() - timedelta(days=60))
        html = get(as_owner, "updates", "?range=1d")
        assert "No update matches" in html and "No update yet" not in html

    def test_an_exported_row_has_a_value_for_every_column(self, project, loop, rf):
        lists = [UPDATES.export, GATES.export]
        with tenant(project.id):
            for of in lists:
                rows = list(of.values(list(of.rows(UPDATES.asked(rf.get("/?range=30d"))))))
                assert rows and all(len(row) == len(of.columns) for row in rows)

    def test_the_next_pages_follow_one_another(self, as_owner, project, loop):
        with tenant(project.id):
            for i in range(60):
                batch, parent = loop.updates[0].batch, loop.checkpoints[1]
                run = factories.make_update(loop.policy, batch, parent=parent, version=10 + i, state="held", steps=0)
                UpdateRun.objects.filter(pk=run.pk).update(created_at=timezone.now() - timedelta(minutes=i))
        first = get(as_owner, "updates")
        older = re.search(r'rel="next" href="([^"]+)"', first)[1].replace("&amp;", "&")
        second = get(as_owner, "updates", older)
        pages = [set(re.findall(r'<tr data-peek="[^"]*/updates/([0-9a-f-]+)"', html)) for html in (first, second)]
        assert [len(found) for found in pages] == [50, 13] and not pages[0] & pages[1]

    def test_the_rhythm_is_changed_and_audited(self, as_engineer, project, ready):
        sent = {"policy": "editor", "every_turns": "200", "min_turns": "50", "max_turns": "400", "every_minutes": "30"}
        seen = seen_on(get(as_engineer, "updates"), "/p/editor/updates/schedule")
        sent |= {"promotion": "by_person", "seen": seen}
        response = as_engineer.post("/p/editor/updates/schedule", sent, follow=True)
        assert "learns every 200 labelled turns or after 30 min" in response.content.decode()
        with tenant(project.id):
            plan = LearningPlan.objects.get()
            assert (plan.every_turns, plan.every_minutes, plan.promotion) == (200, 30, "by_person")
            assert AuditEvent.objects.filter(verb="change", object_kind="learning plan").exists()

    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [
            ("every_turns", "many", "give a whole number"),
            ("min_turns", "600", "must hold"),
            ("promotion", "x", "found"),
        ],
    )
    def test_a_rhythm_that_cannot_be_is_refused_by_name(self, as_engineer, project, ready, field, value, says):
        sent = {
            "policy": "editor",
            "every_turns": "500",
            "min_turns": "4",
            "max_turns": "900",
            "promotion": "automatic",
            "seen": seen_on(get(as_engineer, "updates"), "/p/editor/updates/schedule"),
        }
        html = as_engineer.post("/p/editor/updates/schedule", sent | {field: value}, follow=True).content.decode()
        assert says in html and f'name="{field}"' in html and value in html
        with tenant(project.id):
            assert LearningPlan.objects.get().every_turns == 500


class TestStarting:
    def test_the_form_says_what_it_would_learn_from_and_take(self, as_engineer, ready):
        html = get(as_engineer, "update-trigger")
        assert "<b>6</b> labelled turns" in html and "serves now" in html
        assert "not measured yet" in html and "unpriced" not in html

    def test_a_preset_shows_its_effective_settings_before_the_start(self, as_engineer, ready):
        html = get(as_engineer, "update-trigger", "?preset=careful&loss=rl")
        assert 'name="set-learning_rate" value="5e-06"' in html and html.count(">changed</span>") == 4

    def test_a_preset_of_the_other_loss(self, as_engineer, ready):
        html = get(as_engineer, "update-trigger", "?preset=bold&loss=kto")
        assert 'name="set-kto_beta" value="0.05"' in html and "set-mask_high" not in html

    def test_every_kind_is_offered_with_its_purpose_and_options(self, as_engineer, ready):
        from rl_online.services.stages.table import STAGES

        html = get(as_engineer, "update-trigger")
        for stage in STAGES.values():
            assert f"kind={stage.kind}" in html
            page = get(as_engineer, "update-trigger", f"?kind={stage.kind}")
            assert stage.purpose.replace("'", "&#x27;") in page
            assert all(f'name="opt-{one.name}"' in page for one in stage.options)
            assert all(f'name="set-{name}"' in page for name in stage.settings)

    def test_a_stage_says_what_it_is_made_of_and_how_many_more_it_needs(self, as_engineer, ready):
        html = get(as_engineer, "update-trigger", "?kind=sft")
        assert "<b>3</b> demonstrations" in html and "3 accepted" in html
        assert "Too few: 13 more demonstrations needed." in html

    def test_options_are_counted_again_before_the_start(self, as_engineer, project, ready):
        sent = {"policy": "editor", "kind": "sft", "opt-accepted": "false", "opt-at_least": "2", "look": "1"}
        html = post(as_engineer, "update-trigger", sent).content.decode()
        assert "<b>0</b> demonstrations" in html and "Too few: 2 more" in html and 'value="2"' in html
        with tenant(project.id):
            assert not UpdateRun.objects.exists()

    def test_a_stage_is_started_with_its_options_and_settings(self, as_engineer, project, ready):
        sent = {"policy": "editor", "kind": "sft", "opt-at_least": "2", "set-schedule": "cosine", "set-packing": "true"}
        assert post(as_engineer, "update-trigger", sent).status_code == 302
        with tenant(project.id):
            run = UpdateRun.objects.get()
        assert (run.kind, run.options["at_least"]) == ("sft", 2)
        assert (run.config["schedule"], run.config["packing"]) == ("cosine", True)
        page = get(as_engineer, "update", update=run.id)
        assert "3 accepted" in page and "3 turns of 1 person known by name" in page

    def test_an_option_that_does_not_fit_is_refused_and_stands_as_typed(self, as_engineer, project, ready):
        response = post(as_engineer, "update-trigger", {"policy": "editor", "kind": "sft", "opt-at_least": "many"})
        html = response.content.decode()
        assert response.status_code == 400 and "at_least is &#x27;many&#x27;; give a whole number" in html
        assert re.search(r'name="opt-at_least" value="many"[^>]*aria-invalid', html)

    def test_choices_that_are_no_numbers_are_selects(self, as_engineer, project, ready):
        html = get(as_engineer, "update-trigger", "?loss=rl")
        assert '<select class="form-select" id="set-policy_loss"' in html and '<option value="cispo">' in html
        sent = {"policy": "editor", "loss": "rl", "set-policy_loss": "cispo", "set-correction": "tis"}
        assert post(as_engineer, "update-trigger", sent).status_code == 302
        with tenant(project.id):
            config = UpdateRun.objects.get().config
        assert (config["policy_loss"], config["correction"]) == ("cispo", "tis")

    def test_choices_that_contradict_each_other_are_refused(self, as_engineer, ready):
        sent = {"policy": "editor", "loss": "rl", "set-policy_loss": "gspo", "set-correction": "dppo"}
        html = post(as_engineer, "update-trigger", sent).content.decode()
        assert "which gspo cannot carry" in html and '<option value="gspo" selected>' in html

    def test_the_started_update_has_the_presets_settings_and_those_typed(self, as_engineer, project, ready):
        sent = {"policy": "editor", "preset": "bold", "loss": "rl", "set-minibatch_size": "3"}
        assert post(as_engineer, "update-trigger", sent).status_code == 302
        with tenant(project.id):
            config = UpdateRun.objects.get().config
        assert (config["learning_rate"], config["epochs"], config["minibatch_size"]) == (2e-5, 2, 3)

    def test_too_few_samples_says_how_many_more(self, as_engineer, project, ready):
        with tenant(project.id):
            LearningPlan.objects.update(min_turns=10)
        assert "Too few samples: 4 more labelled turns needed" in get(as_engineer, "update-trigger")
        response = post(as_engineer, "update-trigger", {"policy": "editor", "loss": "rl"})
        assert response.status_code == 409 and "4 more needed" in response.content.decode()

    @pytest.mark.parametrize(
        ("field", "value"), [("learning_rate", "fast"), ("learning_rate", "-1"), ("epochs", "nan")]
    )
    def test_a_setting_that_cannot_be_marks_its_field_and_keeps_what_was_typed(self, as_engineer, ready, field, value):
        response = post(as_engineer, "update-trigger", {"policy": "editor", f"set-{field}": value})
        html = response.content.decode()
        assert response.status_code in (400, 422) and f'value="{value}"' in html and 'aria-invalid="true"' in html

    def test_time_and_cost_come_from_what_was_measured_and_priced(self, as_engineer, project, loop):
        with tenant(project.id):
            UpdateRun.objects.filter(state="training").delete()
            for i in range(6):
                factories.make_turn(f"s{i}", outcome="accept", version=2, input_tokens=10, output_tokens=5)
            PriceCard.objects.create(
                model="own hardware", valid_from=timezone.now() - timedelta(days=1), device_hour_usd=Decimal(2)
            )
        html = get(as_engineer, "update-trigger", "?loss=rl")
        assert "about" in html and "2 runs" in html and "$" in html

    def test_a_dry_run_is_asked_for_and_its_numbers_shown(self, as_engineer, project, ready):
        response = post(as_engineer, "dry-run-start", {"policy": "editor", "loss": "rl", "preset": "careful"})
        with tenant(project.id):
            row = DryRun.objects.get()
        assert response.url.endswith(str(row.id)) and row.config["learning_rate"] == 5e-6
        waiting = get(as_engineer, "dry-run", dry_run=row.id)
        assert "next in the updater" in waiting and 'hx-trigger="every 1s"' in waiting
        with tenant(project.id):
            row.delete()
            done = factories.make_dry_run(ready)
        html = get(as_engineer, "dry-run", dry_run=done.id)
        assert "1.21 GB" in html and "Step 2" in html and "hx-trigger" not in html
        part = as_engineer.get(reverse("console:dry-run", args=["editor", done.id]), HTTP_HX_REQUEST="true")
        assert "<html" not in part.content.decode()

    def test_a_failed_dry_run_says_what_to_do(self, as_engineer, project, ready):
        with tenant(project.id):
            row = factories.make_dry_run(ready, state="failed", error="CUDA out of memory" + HOSTILE)
        html = get(as_engineer, "dry-run", dry_run=row.id)
        assert "Halve micro_batch_tokens" in html and "<script>alert" not in html


class TestOneUpdate:
    def test_held_out_numbers_stand_beside_the_trained_ones(self, as_owner, project, loop):
        with tenant(project.id):
            for row in loop.updates[0].metrics.all():
                row.values |= {"heldout_loss": 0.5, "heldout_kl": 0.001}
                row.save()
        html = get(as_owner, "update", update=loop.updates[0].id)
        assert "held out 0.5" in html and '"name": "held out"' in html
        assert "curve-heldout_loss" not in html

    def test_samples_come_by_the_size_of_their_advantage(self, as_owner, project, loop):
        with tenant(project.id):
            batch = loop.updates[0].batch
            weakest = batch.samples.order_by("id").first()
            batch.samples.filter(pk=weakest.pk).update(reward=0.2, baseline=0.2)
            strongest = batch.samples.order_by("-id").first()
            batch.samples.filter(pk=strongest.pk).update(reward=-3.0)
        html = get(as_owner, "update-samples", update=loop.updates[0].id)
        assert html.index(strongest.turn_ref[:17]) < html.index(weakest.turn_ref[:17])

    def test_changed_settings_come_first_with_their_default(self, as_owner, project, loop):
        with tenant(project.id):
            run = loop.updates[0]
            run.config |= {"learning_rate": 3e-5}
            run.save()
        html = get(as_owner, "update", update=run.id)
        assert "<b>3e-05</b>" in html and "default 1e-05" in html

    def test_a_failed_one_says_why_what_to_do_and_what_became_of_its_turns(self, as_owner, project, loop):
        run = loop.updates[0]
        with tenant(project.id):
            UpdateRun.objects.filter(pk=run.pk).update(
                state="failed", checkpoint=None, error="the gradient was not finite " + HOSTILE
            )
        html = get(as_owner, "update", update=run.id)
        assert "careful preset" in html and "stay with their batch" in html and "<script>alert" not in html
        with tenant(project.id):
            run.batch.samples.all().delete()
        assert "were given back" in get(as_owner, "update", update=run.id)

    def test_a_replay_is_started_marked_and_leads_to_its_page(self, as_engineer, project, loop):
        with tenant(project.id):
            UpdateRun.objects.filter(state="training").update(state="held")
        response = post(as_engineer, "update-replay", {}, update=loop.updates[0].id)
        with tenant(project.id):
            made = UpdateRun.objects.get(is_replay=True)
        assert response.url.endswith(str(made.id)) and made.batch_id == loop.updates[0].batch_id
        assert "replay" in get(as_engineer, "update", update=made.id)

    def test_a_replay_that_cannot_be_says_why(self, as_engineer, loop):
        response = as_engineer.post(f"/p/editor/updates/{loop.updates[0].id}/replay", follow=True)
        assert "is under way" in response.content.decode()

    def test_two_are_compared_by_settings_and_curves(self, as_owner, project, loop):
        with tenant(project.id):
            other = loop.updates[1]
            other.config |= {"learning_rate": 3e-5, "epochs": 2}
            other.save()
        html = get(as_owner, "update-compare", f"?left={loop.updates[0].id}&right={other.id}")
        assert "2 differ" in html and '"name": "editor@2"' in html and '"name": "editor@3"' in html

    @pytest.mark.parametrize("query", ["", "?left=x&right=y", "?left=0199&right="])
    def test_what_is_no_update_cannot_be_compared(self, as_owner, loop, query):
        assert as_owner.get("/p/editor/updates/compare" + query).status_code == 404


class TestGates:
    def test_the_report_has_a_permanent_address_with_every_number_linked(self, as_owner, project, loop):
        with tenant(project.id):
            report = GateReport.objects.order_by("pk").first()
        html = get(as_owner, "gate", report=report.pk)
        assert "data-print" in html and "non-inferiority" in html
        for verdict in ("better", "worse", "same"):
            assert f"/gates/{report.pk}/problems?finding=0&amp;verdict={verdict}" in html
        assert "One-sided" not in html and "margin 10.0 points" in html

    def test_problems_whose_answers_are_gone_are_said_to_be(self, as_owner, project, loop):
        with tenant(project.id):
            report = GateReport.objects.order_by("pk").first()
        assert "are not kept any more" in get(as_owner, "gate-problems", report=report.pk)

    def test_only_the_answers_of_the_page_are_read_whole(self, as_owner, project, loop):
        with tenant(project.id):
            report = GateReport.objects.order_by("pk").first()
            finding = report.evidence["findings"][0] | {"half": "all problems", "suite": "many@1"}
            names = (str(report.checkpoint), finding["checkpoint"])
            benchmark = Benchmark.objects.create(name="many")
            problems = Problem.objects.bulk_create(
                Problem(benchmark=benchmark, problem_id=f"p{n:03d}", prompt=f"task {n}") for n in range(53)
            )
            of = {"benchmark": benchmark, "scorer": "s", "state": "done"}
            runs = [EvalRun.objects.create(checkpoint=name, **of) for name in names]
            Score.objects.bulk_create(
                Score(
                    run=run, problem=problem, scorer="s", status="scored", output=f"answer {n} of {place}",
                    value=float(n >= 51 if place else n < 51),
                )
                for place, run in enumerate(runs) for n, problem in enumerate(problems)
            )  # fmt: skip
            kept = dict(zip(names, (str(run.id) for run in runs), strict=True))
            report.evidence |= {"findings": [finding], "suites": [{"benchmark": "many@1", "runs": kept}]}
            report.save()
        with CaptureQueriesContext(connection) as asked:
            html = get(as_owner, "gate-problems", "?verdict=better&page=2", report=report.pk)
        assert "answer 50 of 0" in html and "answer 50 of 1" in html and "answer 49" not in html
        assert "better 51" in html and "worse 2" in html and "51 to 51 of 51" in html
        texts = [one["sql"] for one in asked if '"output"' in one["sql"] or '"prompt"' in one["sql"]]
        assert len(texts) == 2 and all('"id" IN (' in sql and sql.count(",") < 30 for sql in texts)

    def test_a_finding_that_is_not_there_is_not_found(self, as_owner, project, loop):
        with tenant(project.id):
            report = GateReport.objects.order_by("pk").first()
        url = reverse("console:gate-problems", args=["editor", report.pk])
        assert [as_owner.get(f"{url}?finding={number}").status_code for number in ("99", "x", "-1")] == [404] * 3

    def test_the_list_finds_by_decision_and_by_words(self, as_owner, loop):
        assert "report " in get(as_owner, "gates", "?q=decision:hold")
        assert "No report matches" in get(as_owner, "gates", "?q=decision:canary")
        assert "editor@3" in get(as_owner, "gates", '?q="inferiority is not ruled out"')

    def test_an_empty_list_says_what_a_gate_is(self, as_owner, project):
        assert "No gate report yet" in get(as_owner, "gates")

    def test_a_report_without_evidence_still_opens(self, as_owner, project, loop):
        with tenant(project.id):
            report = GateReport.objects.create(
                checkpoint=loop.checkpoints[2], decision="hold", reasons=[HOSTILE], evidence={}
            )
        html = get(as_owner, "gate", report=report.pk)
        assert "nothing was measured" in html and "<script>alert" not in html


class TestDeployments:
    def test_shares_and_who_really_answered_are_shown(self, as_owner, loop):
        html = get(as_owner, "deployments")
        assert "100.0 %" in html and "editor@2" in html and "move 2" in html

    def test_nothing_served_says_how_to_start(self, as_owner, project):
        assert "Nothing is served yet" in get(as_owner, "deployments")

    def test_a_canary_is_started_changed_and_stopped_from_the_page(self, as_engineer, project, loop):
        where = {"policy": "editor"}
        refused = as_engineer.post(
            "/p/editor/deployments/editor/canary", {"checkpoint": "editor@3", "percent": "10"}, follow=True
        )
        assert "needs a reason" in refused.content.decode()
        sent = {"checkpoint": "editor@3", "percent": "10", "reason": "the tests are wrong"}
        assert post(as_engineer, "canary-start", sent, **where).status_code == 302
        post(as_engineer, "canary-share", {"percent": "25"}, **where)
        html = get(as_engineer, "deployments")
        assert "25.0 %" in html and "75.0 %" in html and "its users get the serving one" in html
        with tenant(project.id):
            assert Deployment.objects.get().canary_share == 0.25
        post(as_engineer, "canary-stop", {}, **where)
        with tenant(project.id):
            assert Deployment.objects.get().canary is None
            assert Checkpoint.objects.get(version=3).state == "candidate"

    def test_a_slider_at_nothing_stops_the_canary(self, as_engineer, project, loop):
        sent = {"checkpoint": "editor@3", "percent": "10", "reason": "r"}
        post(as_engineer, "canary-start", sent, policy="editor")
        post(as_engineer, "canary-share", {"percent": "0"}, policy="editor")
        with tenant(project.id):
            assert Deployment.objects.get().canary is None

    @pytest.mark.parametrize("percent", ["51", "-3", "lots", "", "nan"])
    def test_a_share_that_cannot_be_is_refused(self, as_engineer, project, loop, percent):
        sent = {"checkpoint": "editor@3", "percent": percent, "reason": "r"}
        assert post(as_engineer, "canary-start", sent, policy="editor").status_code == 302
        with tenant(project.id):
            assert Deployment.objects.get().canary is None

    def test_a_rollback_goes_to_the_version_chosen_and_comes_back_here(self, as_engineer, project, loop):
        sent = {"version": "1", "reason": "users complain", "back": "deployments"}
        response = post(as_engineer, "checkpoint-roll-back", sent, name="editor@2")
        assert response.url == "/p/editor/deployments?policy=editor"
        assert "users complain" in get(as_engineer, "deployments")
        with tenant(project.id):
            assert Deployment.objects.get().checkpoint.version == 1


class TestEngines:
    def test_an_engine_is_shown_with_what_it_holds_and_how_it_does(self, as_owner, project, loop):
        with tenant(project.id):
            factories.make_engine()
            factories.make_engine("engine-2", tokens_per_s=None)
        html = get(as_owner, "engines")
        assert "212" in html and "4711" in html and "of 32 together" in html and "holds it" in html
        assert "it holds nothing of this project" in html  # engine-2

    def test_one_that_has_gone_quiet_or_failed_says_so(self, as_owner, project, loop):
        with tenant(project.id):
            factories.EngineHolding.objects.update(error="holds other weights " + HOSTILE)
        html = get(as_owner, "engines")
        assert "1 failed" in html and "<script>alert" not in html
        with tenant(project.id):
            factories.EngineHolding.objects.update(reported_at=timezone.now() - timedelta(minutes=5))
        assert ">silent</span>" in get(as_owner, "engines")

    def test_only_the_engine_on_the_homes_socket_is_said_to_answer_the_gateway(self, as_owner, project, loop):
        with tenant(project.id):
            checkpoint = factories.Deployment.objects.get(alias="default").checkpoint
            for name in ("engine-1", "engine-2"):
                factories.make_engine(name)
                factories.EngineHolding.objects.get_or_create(
                    engine=name, checkpoint=checkpoint, defaults={"tree_digest": checkpoint.tree_digest}
                )
        html = get(as_owner, "engines")
        assert "no engine answers there" in html and "answers the gateway" not in html
        with running_engine("engine-2"):
            html = get(as_owner, "engines")
        parts = {name: html.partition(f"<h2>{name}")[2].partition("</h2>")[0] for name in ("engine-1", "engine-2")}
        assert "answers the gateway" in parts["engine-2"] and "answers the gateway" not in parts["engine-1"]
        assert "not asked by the gateway" in parts["engine-1"] and "holds what serves" in parts["engine-1"]

    def test_none_yet(self, as_owner, project):
        html = get(as_owner, "engines")
        assert "No engine has reported yet" in html and "rl_online.commands.engine" in html


class TestCheckpoints:
    def test_the_tree_links_every_checkpoint_and_says_its_state(self, as_owner, loop):
        html = get(as_owner, "checkpoints")
        assert 'aria-label="editor@2, serving, made from editor@1"' in html
        assert 'aria-label="editor@3, candidate, made from editor@2"' in html

    def test_a_held_out_score_has_its_interval(self, as_owner, project, loop):
        with tenant(project.id):
            factories.make_heldout(loop.policy, loop.checkpoints[1], right=7, wrong=3)
        html = get(as_owner, "checkpoints")
        assert "70.0 %" in html and "39.7 % – 89.2 %" in html
        assert "70.0 %" in get(as_owner, "checkpoint", name="editor@2")


@pytest.mark.parametrize("name", ["updates", "checkpoints", "gates", "deployments", "engines"])
def test_each_page_asks_the_same_number_of_questions_for_1_and_12_rows(as_owner, project, name):
    counts = []
    with tenant(project.id):
        policy = factories.make_policy()
        first = Checkpoint.objects.get(version=1)
        turn = factories.make_turn("s", outcome="accept")
    for start, end in ((2, 4), (4, 16)):
        with tenant(project.id):
            for version in range(start, end):
                candidate = factories.make_checkpoint(policy, version, first, state="candidate")
                batch = factories.make_batch(policy, [turn] if version == 2 else [])
                run = factories.make_update(
                    policy, batch, parent=first, version=version, checkpoint=candidate, state="held"
                )
                factories.make_report(candidate, first, run=run)
                factories.EngineHolding.objects.create(
                    engine=f"e{version}", checkpoint=candidate, tree_digest=candidate.tree_digest
                )
        get(as_owner, name)
        with CaptureQueriesContext(connection) as queries:
            get(as_owner, name)
        counts.append(len(queries))
    assert counts[0] == counts[1]
