"""Compare, win rates, judges: what the pages say with nothing, one and many, and what their buttons do."""

import re
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evals.models import CanaryRun, Comparison, Problem
from jobs.models import Job
from registry.models import AuditEvent
from registry.tenancy import tenant
from tests.console import evaluate, factories

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egnp.exe\u200b{{ 7|add:7 }}"


def page(client, name, query="", /, **kwargs):
    response = client.get(reverse(f"console:{name}", kwargs={"project": "editor"} | kwargs) + query)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def words(html):
    """The page's text, tags and white space taken out."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.fixture
def evaluated(loop, project):
    with tenant(project.id):
        return evaluate.make_evaluated(loop)


@pytest.mark.parametrize(
    ("name", "query", "says"),
    [
        ("compare", "", "Nothing to compare yet"),
        ("win-rates", "", "No comparison yet"),
        ("win-rates", "?by=people", "No comparison yet"),
        ("judges", "", "No judge yet"),
        ("costs", "", "Nothing spent in the last 30d"),
        ("prices", "", "no card yet: every call is unpriced"),
    ],
)
def test_an_empty_page_says_what_it_is(as_owner, project, name, query, says):
    assert says in page(as_owner, name, query)


# --- Compare ---


def test_two_checkpoints_are_compared_on_what_both_answered(as_owner, evaluated):
    html = words(page(as_owner, "compare", "?a=editor@1&b=editor@2"))
    assert "editor-gate@1" in html and "matched n 38 of 40" in html  # two answers each were lost to the sandbox
    assert "95 % clustered t" in html or "95 % t" in html
    assert "of 40 decided" not in html and "by base (editor@1)" in html


def test_a_run_without_a_partner_is_named_with_the_reason(as_owner, evaluated):
    assert "editor@2 has no run on it" in words(page(as_owner, "compare", "?a=editor@1&b=editor@2"))


def test_nothing_in_common_says_0_cases(as_owner, evaluated):
    html = words(page(as_owner, "compare", "?a=editor@1&b=nobody-ran-this"))
    assert "0 common cases" in html and "nobody-ran-this has no run on it" in html
    assert "no settled turns of nobody-ran-this" in html


def test_regressions_come_first_and_can_be_filtered(as_owner, evaluated):
    html = page(as_owner, "compare", "?a=editor@2&b=editor@3")
    shown = re.findall(r'state-(regression|improvement|equal|unscored|one_sided)"', html)
    assert shown == sorted(shown, key=["regression", "improvement", "equal", "unscored", "one_sided"].index)
    only = page(as_owner, "compare", "?a=editor@3&b=editor@2&change=improvement")
    assert set(re.findall(r'state-(regression|improvement|equal)"', only)) == {"improvement"}
    one = page(as_owner, "compare", "?a=editor@2&b=editor@3&slice=family: sort")
    assert "sort/1<" in one and "add/0<" not in one


def test_a_slice_nobody_has_shows_no_problem(as_owner, evaluated):
    assert "no problem was answered" in page(as_owner, "compare", "?a=editor@2&b=editor@3&slice=family: none")


def test_users_share_is_compared_with_newcombes_interval(as_owner, evaluated):
    html = words(page(as_owner, "compare", "?a=editor@1&b=editor@2&range=90d"))
    assert "95 % newcombe" in html and "settled turns" in html


def test_an_external_model_is_compared_with_its_cost(as_owner, evaluated):
    html = words(page(as_owner, "compare", "?a=editor@2&b=gpt-5"))
    assert "$0.004" in html and "Device time an answer" in html


def test_answers_stand_side_by_side_with_their_difference_and_their_scores(as_owner, evaluated):
    problem = evaluated["problems"][0].pk
    html = page(as_owner, "compare-problem", "?a=editor@1&b=editor@2", problem=problem)
    assert "# editor@1" in html and "<del>1</del>" in html and "<ins>2</ins>" in html
    assert "def solve_0(a):" in html and "What the scorer says" in html and "shown first" in html


def test_comparing_a_side_with_itself_says_so(as_owner, evaluated):
    assert "Both sides are editor@1" in page(as_owner, "compare", "?a=editor@1&b=editor@1")


def test_half_a_question_keeps_what_was_written(as_owner, evaluated):
    html = page(as_owner, "compare", "?a=editor@1")
    assert 'name="a" value="editor@1"' in html and "Worth comparing" in html


def test_a_name_that_is_none_is_refused_with_the_field(as_owner, project):
    response = as_owner.get("/p/editor/compare", {"a": "x" * 300, "b": "editor@1"})
    assert response.status_code == 400 and "a: write" in words(response.content.decode())


# --- Win rates ---


def test_judges_and_people_are_kept_apart(as_owner, evaluated):
    judges, people = words(page(as_owner, "win-rates")), words(page(as_owner, "win-rates", "?by=people"))
    assert "agrees with the tests on" in judges and "comparisons in review" not in judges
    assert "14 comparisons in review and 0 preferences" in people and "agrees with the tests" not in people


def test_too_few_comparisons_are_too_few_to_say(as_owner, loop, project):
    with tenant(project.id):
        judge, gate = evaluate.make_judge(), evaluate.make_benchmark(size=3)
        for problem in Problem.objects.filter(benchmark=gate):
            evaluate.make_judgement(judge, problem, "left")
    html = words(page(as_owner, "win-rates"))
    assert "too few to say" in html and "editor@2 never lost, not even half" in html
    assert "43.9 % to 100.0 %" in html  # Wilson for 3 of 3


def test_preferences_of_users_count_as_votes_of_people(as_owner, loop, project):
    with tenant(project.id):
        first, second = loop.turns[0], loop.turns[-1]
        factories.make_signal(second, "preference", at=second.at, text=first.turn_id)
        factories.make_signal(second, "preference", at=second.at, text="not-here")
        evaluate.count_hours()
    html = words(page(as_owner, "win-rates", "?by=people&range=7d"))
    assert "0 comparisons in review and 1 preference of users. 1 more name a turn that is not here" in html
    assert "editor@2 never lost" in html


def test_a_judge_can_be_chosen(as_owner, evaluated):
    html = page(as_owner, "win-rates", f"?judge={evaluated['outside'].pk}")
    assert f'<option value="{evaluated["outside"].pk}" selected>' in html


# --- Judges ---


def test_the_list_shows_each_version_with_n_and_its_pause(as_owner, evaluated):
    html = words(page(as_owner, "judges"))
    assert "paused" in html and "passed" in html and "1 blocked" in html
    assert "$0.0024" in html  # two orders at 0.0012


def test_a_failed_canary_is_shown_with_what_the_judge_said(as_owner, evaluated):
    html = words(page(as_owner, "judge", judge=evaluated["base"].pk))
    assert "Paused for rewards and gates: it failed its canaries" in html and "colon won" in html


def test_f29_a_blocked_judgement_shows_its_reason_and_a_button(as_engineer, evaluated, settings):
    settings.JUDGE_URL, settings.JUDGE_MODEL = "https://judge.example/v1", "judge-large"
    html = page(as_engineer, "judge", judge=evaluated["outside"].pk)
    assert "status 401" in html and "Ask again" in html
    response = as_engineer.post(f"/p/editor/judges/{evaluated['outside'].pk}/retry", follow=True)
    assert "1 judgement of judge (judge-large) is asked for again" in response.content.decode()
    assert Job.objects.filter(kind="evals.retry_judgements", state="queued").count() == 1


def test_canaries_are_asked_by_a_button_and_audited(as_engineer, evaluated, project):
    response = as_engineer.post(f"/p/editor/judges/{evaluated['base'].pk}/canaries", follow=True)
    assert "Canaries of base (editor@1) are asked" in response.content.decode()
    assert Job.objects.filter(kind="evals.canaries", state="queued").count() == 1
    with tenant(project.id):
        assert AuditEvent.objects.get(verb="run canaries").actor == "engineer"
        assert CanaryRun.objects.filter(state="running").count() == 1
    again = as_engineer.post(f"/p/editor/judges/{evaluated['base'].pk}/canaries", follow=True)
    assert "wait for them" in again.content.decode()


def test_a_judge_the_settings_no_longer_name_says_why_it_cannot_be_asked(as_engineer, evaluated, settings):
    settings.JUDGE_URL = ""
    html = page(as_engineer, "judge", judge=evaluated["outside"].pk)
    assert "This version cannot judge any more" in html and "disabled" in html


def test_a_viewer_sees_no_button(client, viewer, evaluated):
    client.force_login(viewer)
    html = page(client, "judge", judge=evaluated["base"].pk)
    assert "Run canaries" not in html and "Ask again" not in html


def test_judgements_are_filtered_by_verdict_and_open_their_comparison(as_owner, evaluated, project):
    html = page(as_owner, "judge", "?verdict=invalid", judge=evaluated["base"].pk)
    with tenant(project.id):
        invalid = Comparison.objects.filter(judge=evaluated["base"], verdict="invalid").first()
    assert reverse("console:comparison", args=["editor", invalid.pk]) in html
    shown = words(page(as_owner, "comparison", comparison=invalid.pk))
    assert "From left to right" in shown and "shown first" in shown


# --- Harm and weight ---


@pytest.fixture
def hostile(loop, project):
    with tenant(project.id):
        gate = evaluate.make_benchmark(HOSTILE[:90], size=1)
        problem = Problem.objects.get(benchmark=gate)
        evaluate.make_run(gate, "editor@1", solves=0.0)
        evaluate.make_run(gate, HOSTILE, solves=1.0, cost=Decimal("0.1"))
        judge = evaluate.make_judge(HOSTILE[:90], HOSTILE)
        evaluate.make_judgement(
            judge,
            problem,
            "left",
            left=HOSTILE,
            left_text=HOSTILE + "x" * 1_000_000,
            right_text="\n" * 500,
            raw=HOSTILE,
        )
        evaluate.make_judgement(judge, problem, "error", left=HOSTILE, right="editor@2")
        evaluate.make_canaries(judge, "failed", sentence=HOSTILE)
        evaluate.make_card(HOSTILE, input_usd=Decimal(1))
        factories.make_turn("hostile", version=None, model=HOSTILE)
        evaluate.count_hours()
        return {"problem": problem.pk, "judge": judge.pk, "comparison": Comparison.objects.order_by("id").first().pk}


PAGES = ["compare", "compare-problem", "win-rates", "judges", "judge", "comparison", "costs", "cost-quality", "prices"]
# What a form sends back, where a link leads and what a figure is drawn from stay as they came.
KEPT = re.compile(r'(value|href|data-peek)="[^"]*"|<script[^>]*type="application/json">.*?</script>', re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_hostile_names_and_answers_are_text_on_every_page(as_owner, hostile, name):
    kwargs = {key: hostile[key] for key in ("problem", "judge", "comparison") if name in (key, f"compare-{key}")}
    address = reverse(f"console:{name}", kwargs={"project": "editor"} | kwargs)
    response = as_owner.get(address, {"a": "editor@1", "b": HOSTILE, "model": HOSTILE, "benchmark": HOSTILE})
    whole = response.content.decode()
    assert response.status_code == 200 and "<script>alert" not in whole and "<img src=x" not in whole
    html = KEPT.sub("", whole)
    assert "\u202e" not in html and "\u200b" not in html
    assert "&lt;script&gt;alert(1)" in whole and len(html) < 400_000


@pytest.mark.parametrize("name", ["compare", "win-rates", "judges", "costs", "cost-quality", "prices"])
def test_the_number_of_queries_does_not_grow_with_the_rows(as_owner, loop, project, name):
    counts = []
    page(as_owner, name)  # the first page of a session also remembers its project
    for size in (1, 100):
        with tenant(project.id):
            gate = evaluate.make_benchmark(f"gate-{size}", size=size)
            evaluate.make_run(gate, "editor@1"), evaluate.make_run(gate, "editor@2")
            judges = [evaluate.make_judge(f"judge-{size}-{i}", f"m-{size}-{i}") for i in range(min(size, 20))]
            for i, problem in enumerate(Problem.objects.filter(benchmark=gate)):
                evaluate.make_judgement(judges[i % len(judges)], problem, "left", left=f"x-{i % 5}")
            for i in range(size):
                evaluate.make_card(f"m-{size}-{i}", input_usd=Decimal(1))
                factories.make_turn(f"s-{size}-{i}", version=None, model=f"m-{size}-{i}")
            evaluate.count_hours()
        with CaptureQueriesContext(connection) as queries:
            page(as_owner, name, "?a=editor@1&b=editor@2")
        counts.append(len(queries))
    assert counts[0] == counts[1], [query["sql"][:90] for query in queries]
