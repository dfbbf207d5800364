"""Benchmark runs in the console: list, run, leaderboard, problem, and files that a person uploads."""

import asyncio
import csv
import io
import json
import random
import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console.reads import evals as reads
from console.views import evals as views
from evals.models import EvalRun, Problem, Score
from evals.services import uploads
from evals.services.importing import import_path
from evals.statistics.estimate import Kind
from evals.statistics.means import estimate_mean
from evals.statistics.proportions import wilson_clustered
from jobs import services as jobs
from registry.tenancy import tenant
from rl_online.models import BatchSample, Overlap
from tests.console import evaluate, factories

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egnp.exe\u200b{{ 7|add:7 }}"


def page(client, name="evals", *args, **query):
    return client.get(reverse(f"console:{name}", args=["editor", *args]), query)


def text_of(response):
    return response.content.decode()


def send(client, *files, **fields):
    sent = {"files": [SimpleUploadedFile(name, content) for name, content in files]} | fields
    return client.post(reverse("console:eval-upload", args=["editor"]), sent)


def names(response):
    return {row.name for row in response.context["rows"]}


@pytest.fixture
def runs(project):
    with tenant(project.id):
        gate = evaluate.make_benchmark()
        return [
            evaluate.make_run(gate, "editor@1", solves=0.3, seed=1),
            evaluate.make_run(gate, "editor@2", solves=0.95, seed=2),
            evaluate.make_run(evaluate.make_benchmark("other"), "gpt-x", solves=0.5, state="running"),
        ]


@pytest.fixture
def imported(project, samples):
    """A log with two epochs and NaN scores."""
    report = import_path(project.id, samples("inspect") / "gen_v0.3.285_epochs2_nan.json")
    return report.imported[0]


async def collect(response) -> bytes:
    return b"".join([chunk async for chunk in response.streaming_content])


# --- the numbers ---


@pytest.mark.django_db
@pytest.mark.parametrize("graded", [False, True])
def test_a_mean_is_what_the_statistics_give_for_its_values(project, graded):
    chance = random.Random(3)
    with tenant(project.id):
        run = evaluate.make_run(evaluate.make_benchmark(), "m", solves=0.6)
        if graded:
            for score in Score.objects.filter(run=run, status="scored"):
                Score.objects.filter(pk=score.pk).update(value=chance.random())
        rows = Score.objects.filter(run=run).values_list("value", "problem__slices")
        values = [value for value, _ in rows]
        families = [slices["family"] for _, slices in rows]
        found = reads.with_means([run])[0].mean
    known = [(value, family) for value, family in zip(values, families, strict=True) if value is not None]
    if graded:
        plain, clustered = estimate_mean(values), estimate_mean(values, clusters=families)
        expected = clustered if clustered.low < plain.low else plain
        assert expected.low > 0 and expected.high < 1
    else:
        expected = wilson_clustered([v == 1 for v, _ in known], [f for _, f in known]).estimate(num_asked=len(values))
    assert (found.n, found.num_asked, found.num_clusters) == (expected.n, expected.num_asked, expected.num_clusters)
    assert found.interval == expected.interval
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def part(family, values, **columns):
    return reads.Part(
        family=family, num_answered=len(values), n=len(values), total=sum(values), squares=sum(v * v for v in values),
        is_right_or_wrong=set(values) <= {0, 1}, **columns,
    )  # fmt: skip


def test_a_single_family_is_no_cluster_and_one_problem_has_no_error():
    assert reads.mean_of([part("add", [1, 0, 1])]).interval == Kind.WILSON
    one = reads.mean_of([part(None, [0.5])])
    assert one.value == 0.5 and one.low is None and one.undefined


def test_an_interval_of_scores_ends_where_scores_do():
    found = reads.mean_of([part(None, [0.5, 0.5, 0.0])])
    assert found.interval == Kind.T and (found.low, round(found.high, 3)) == (0, 1)


def test_nothing_scored_is_no_zero():
    found = reads.mean_of([], num_asked=7)
    assert found.value is None and found.num_asked == 7 and "none of 7" in found.undefined


# --- the list ---


@pytest.mark.django_db
def test_the_list_shows_each_run_with_its_interval_and_kind(as_owner, runs):
    response = page(as_owner)
    assert names(response) == {"editor@1", "editor@2", "gpt-x"}
    assert "wilson clustered" in text_of(response) and "38 / 40" in text_of(response)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("benchmark:editor-gate", {"editor@1", "editor@2"}),
        ("benchmark:editor-gate@1", {"editor@1", "editor@2"}),
        ("benchmark:editor-gate@2", set()),
        ("-benchmark:editor-*", {"gpt-x"}),
        ("model:gpt-x", {"gpt-x"}),
        ("checkpoint:editor@2", {"editor@2"}),
        ("state:running", {"gpt-x"}),
        ("made:here", {"editor@1", "editor@2", "gpt-x"}),
        ("made:elsewhere", set()),
        ("-has:format", {"editor@1", "editor@2", "gpt-x"}),
        ("gpt", {"gpt-x"}),
    ],
)
def test_the_bar_finds_runs(as_owner, runs, query, expected):
    assert names(page(as_owner, q=query)) == expected


@pytest.mark.django_db
def test_facets_count_runs(as_owner, runs, imported):
    found = {facet.name: facet for facet in page(as_owner, part="facets").context["facets"]}
    assert {value.title: value.count for value in found["format"].values} == {"inspect": 1}
    assert {value.title: value.count for value in found["benchmark"].values}["editor-gate"] == 2


@pytest.mark.django_db(transaction=True)
def test_the_export_has_the_numbers_of_the_page(as_owner, runs):
    shown = {row.name: row.mean for row in page(as_owner).context["rows"]}
    response = as_owner.get("/p/editor/export/evals")
    rows = list(csv.DictReader(io.StringIO(asyncio.run(collect(response)).decode())))
    assert len(rows) == 3
    for row in rows:
        assert float(row["low"]) == shown[row["checkpoint"] or row["model"]].low


@pytest.mark.django_db
def test_an_empty_list_offers_a_command_and_a_viewer_no_upload(client, as_engineer, viewer):
    assert "strop import runs logs/" in text_of(page(as_engineer)) and "eval-upload" not in text_of(page(as_engineer))
    assert 'name="files"' in text_of(page(as_engineer))
    client.force_login(viewer)
    shown = text_of(page(client))
    assert "strop import runs logs/" in shown and 'name="files"' not in shown


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["evals", "leaderboard"])
def test_a_hundred_runs_take_as_many_queries_as_one(as_owner, project, name):
    with tenant(project.id):
        benchmark = evaluate.make_benchmark(size=4)
        evaluate.make_run(benchmark, "m-0")
    args = [benchmark.pk] if name == "leaderboard" else []
    page(as_owner, name, *args)
    with CaptureQueriesContext(connection) as one:
        page(as_owner, name, *args)
    with tenant(project.id):
        for number in range(1, 100):
            evaluate.make_run(benchmark, f"m-{number}")
    with CaptureQueriesContext(connection) as many:
        page(as_owner, name, *args)
    assert len(many) == len(one)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["eval-run", "eval-problem"])
def test_a_hundred_results_take_as_many_queries_as_one(as_owner, project, name):
    counts = []
    for size in (1, 100):
        with tenant(project.id):
            benchmark = evaluate.make_benchmark(f"of-{size}", size=size if name == "eval-run" else 1)
            runs = [evaluate.make_run(benchmark, f"m-{i}") for i in range(1 if name == "eval-run" else size)]
            shown = runs[0].pk if name == "eval-run" else Problem.objects.get(benchmark=benchmark).pk
        page(as_owner, name, shown)
        with CaptureQueriesContext(connection) as asked:
            assert page(as_owner, name, shown).status_code == 200
        counts.append(len(asked))
    assert counts[0] == counts[1]


# --- one run ---


@pytest.mark.django_db
def test_a_run_shows_what_its_file_says_beside_what_its_results_give(as_owner, project, imported):
    response = page(as_owner, "eval-run", imported.id)
    shown = text_of(response)
    with tenant(project.id):
        run = EvalRun.objects.get(pk=imported.id)
    assert run.source["sha256"] in shown and "inspect" in shown
    assert run.notes and all(kind in shown for kind, _ in response.context["notes"])
    assert len(response.context["claims"]) == len(run.claims) > 0


@pytest.mark.django_db
def test_a_run_is_found_by_its_id_alone(as_owner, runs):
    assert as_owner.get(f"/p/editor/id/{runs[0].pk}").url == reverse("console:eval-run", args=["editor", runs[0].pk])


@pytest.mark.django_db
def test_results_go_on_where_a_page_ended(as_owner, project):
    with tenant(project.id):
        run = evaluate.make_run(evaluate.make_benchmark(size=150), "m")
    first = page(as_owner, "eval-run", run.pk)
    second = page(as_owner, "eval-run", run.pk, after=first.context["next_after"])
    seen = [one.pk for response in (first, second) for one in response.context["results"]]
    assert len(seen) == len(set(seen)) == 150 and second.context["next_after"] is None
    assert page(as_owner, "eval-run", run.pk, after="x' OR 1").context["is_first"]


@pytest.mark.django_db
def test_hostile_text_of_a_file_is_only_text(as_owner, project):
    with tenant(project.id):
        benchmark = evaluate.make_benchmark(HOSTILE[:100], size=2)
        Problem.objects.filter(benchmark=benchmark).update(slices={HOSTILE: HOSTILE}, prompt=HOSTILE)
        notes = [{"kind": "odd", "text": HOSTILE}]
        claims = [{"metric": HOSTILE, "scorer": HOSTILE, "value": 0.5, "where": HOSTILE}]
        run = evaluate.make_run(
            benchmark, HOSTILE, notes=notes, claims=claims, settings={HOSTILE: HOSTILE}, source_key="k", error=HOSTILE,
            source={"format": HOSTILE, "writer_version": HOSTILE, "sha256": HOSTILE}, writer_run_id=HOSTILE,
        )  # fmt: skip
        rows = Score.objects.filter(run=run)
        rows.update(output=HOSTILE, explanation=HOSTILE, raw_score=HOSTILE, slices={HOSTILE: HOSTILE})
        problem = rows.first().problem_id
    for response in (
        page(as_owner), page(as_owner, "eval-run", run.pk), page(as_owner, "leaderboard", benchmark.pk),
        page(as_owner, "eval-problem", problem), page(as_owner, part="facets"),
    ):  # fmt: skip
        shown = re.sub(r'(?:data-copy|value)="[^"]*"', "", text_of(response))  # these must be exact
        assert response.status_code == 200
        assert "<script>alert" not in shown and "<img src=x" not in shown and "\u202e" not in shown.split("<h1>")[-1]


# --- a leaderboard and a problem ---


@pytest.mark.django_db
def test_a_leaderboard_ranks_the_newest_of_each_and_says_what_is_too_few(as_owner, project, runs):
    with tenant(project.id):
        gate = runs[0].benchmark
        evaluate.make_run(gate, "editor@2", solves=0.9, seed=2)
        evaluate.make_run(gate, "gpt-5", solves=0.88, seed=2)
        evaluate.make_run(gate, "judged", scorer="style")
    boards = page(as_owner, "leaderboard", gate.pk).context["boards"]
    lines = {one.row.name: one for one in boards["unit_tests"]}
    assert set(lines) == {"editor@1", "editor@2", "gpt-5"} and lines["editor@2"].num_runs == 2
    means = [one.row.mean.value for one in boards["unit_tests"]]
    assert means == sorted(means, reverse=True)
    assert boards["unit_tests"][0].finding == "best mean" and lines["editor@1"].finding == "behind"
    assert boards["unit_tests"][1].finding == "too few to say"
    assert boards["style"][0].finding == "no score"  # its scores are by another scorer


@pytest.mark.django_db
def test_a_leaderboard_that_takes_too_long_says_so_and_leads_to_its_runs(as_owner, runs, monkeypatch):
    def slow(benchmark):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")

    monkeypatch.setattr(views, "PATIENCE_S", 0.05)
    monkeypatch.setattr(reads, "leaderboard", slow)
    shown = text_of(page(as_owner, "leaderboard", runs[0].benchmark_id))
    assert "too many results" in shown and "?benchmark=editor-gate%401" in shown


@pytest.mark.django_db
def test_an_unmeasured_benchmark_offers_the_command(as_owner, project):
    with tenant(project.id):
        benchmark = evaluate.make_benchmark(size=1)
    assert "strop import runs logs/" in text_of(page(as_owner, "leaderboard", benchmark.pk))


@pytest.mark.django_db
def test_a_problem_shows_its_answers(as_owner, project, runs):
    with tenant(project.id):
        problem = Score.objects.filter(run=runs[0]).first().problem
    response = page(as_owner, "eval-problem", problem.pk)
    assert {one.run_id for one in response.context["answers"]} == {runs[0].pk, runs[1].pk}


# --- uploads ---


@pytest.mark.django_db
def test_a_small_file_is_imported_at_once_and_again_changes_nothing(as_engineer, project, samples):
    file = samples("inspect") / "gen_v0.3.285_epochs2_nan.json"
    for expected in ("imported", "unchanged"):
        response = send(as_engineer, (file.name, file.read_bytes()))
        outcome = response.context["outcome"]
        assert response.status_code == 200 and [one["outcome"] for one in outcome.imported] == [expected]
    assert "a duplicate: nothing changed" in text_of(response)
    with tenant(project.id):
        assert str(EvalRun.objects.get().pk) == outcome.imported[0]["id"]


@pytest.mark.django_db
def test_files_that_belong_together_are_sent_together(as_engineer, samples):
    files = sorted(samples("lm_eval").glob("*2026-11-30*"))
    response = send(as_engineer, *[(file.name, file.read_bytes()) for file in files])
    assert response.status_code == 200 and len(response.context["outcome"].imported) >= 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("notes.txt", b"hello", "no format is recognised"),
        ("broken.json", b'{"version": 2, "status": "success", "eval": {"task": "t"', "broken.json"),
        ("../../etc/passwd", b"root", "passwd"),
        ("bomb.eval", b"PK\x05\x06" + bytes(18), "bomb.eval"),
        (HOSTILE.replace("/", ""), b"{}", "no format"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_fix_and_leaves_nothing(as_engineer, project, name, content, says):
    response = send(as_engineer, (name, content))
    assert response.status_code == 400 and says in response.context["problem"].message
    assert "<script>alert" not in text_of(response) and "/tmp/" not in text_of(response)
    with tenant(project.id):
        assert not EvalRun.objects.exists()


@pytest.mark.django_db
def test_too_much_is_refused_with_a_way_that_takes_it(as_engineer, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_BYTES", 100)
    response = send(as_engineer, ("big.json", b"x" * 200))
    assert response.status_code == 413 and "strop import runs" in text_of(response)


@pytest.mark.django_db
def test_an_unknown_format_is_refused(as_engineer):
    response = send(as_engineer, ("a.json", b"{}"), format="nonsense")
    assert response.status_code == 400 and "inspect" in text_of(response)


@pytest.mark.django_db(transaction=True)
def test_a_larger_file_is_left_to_a_job_that_says_what_became_of_it(as_engineer, client, project, samples, monkeypatch):
    monkeypatch.setattr(uploads, "INLINE_BYTES", 100)
    file = samples("inspect") / "gen_v0.3.285_epochs2_nan.json"
    response = send(as_engineer, (file.name, file.read_bytes()))
    outcome = response.context["outcome"]
    assert response.status_code == 202 and outcome.state == "queued" and "every 1s" in text_of(response)
    assert page(as_engineer, "eval-uploaded", outcome.job).context["outcome"].is_open
    folders = list(uploads._waiting().iterdir())
    assert len(folders) == 1
    jobs.run(jobs.claim(outcome.job, "test"))
    done = page(as_engineer, "eval-uploaded", outcome.job)
    assert [one["outcome"] for one in done.context["outcome"].imported] == ["imported"]
    assert "every 1s" not in text_of(done) and not folders[0].exists()


@pytest.mark.django_db(transaction=True)
def test_a_job_says_why_it_could_not_read_a_file(as_engineer, project, monkeypatch):
    monkeypatch.setattr(uploads, "INLINE_BYTES", 1)
    job = send(as_engineer, ("notes.txt", b"hello")).context["outcome"].job
    jobs.run(jobs.claim(job, "test"))
    outcome = page(as_engineer, "eval-uploaded", job).context["outcome"]
    assert outcome.state == "refused" and "notes.txt" in outcome.error and "no format is recognised" in outcome.error


@pytest.mark.django_db(transaction=True)
def test_an_upload_of_another_project_is_not_found(as_engineer, client, stranger, other_project, monkeypatch):
    monkeypatch.setattr(uploads, "INLINE_BYTES", 1)
    job = send(as_engineer, ("notes.txt", b"hello")).context["outcome"].job
    client.force_login(stranger)
    assert client.get(reverse("console:eval-uploaded", args=["other", job])).status_code == 404


@pytest.mark.django_db
def test_a_table_comes_in_with_its_mapping(as_engineer, project):
    table = b"id,model,ok\na,m,1\nb,m,0\n"
    mapping = json.dumps({"benchmark": "mine", "problem": "id", "model": "model", "score": "ok"}).encode()
    response = send(as_engineer, ("t.csv", table), mapping=SimpleUploadedFile("m.json", mapping))
    assert response.status_code == 200
    with tenant(project.id):
        run = EvalRun.objects.get()
        assert run.model == "m" and reads.with_means([run])[0].mean.value == 0.5


# --- runs that are asked for here ---


@pytest.fixture
def repeated(project):
    """A run somebody asked for: problem 0 right in 1 of 2 tries, 1 always, 2 cut off and wrong, 3 late in one try."""
    with tenant(project.id):
        benchmark = evaluate.make_benchmark("asked", size=4)
        run = EvalRun.objects.create(
            benchmark=benchmark, checkpoint="editor@1", scorer="unit_tests", state="running", num_repeats=2, seed=5,
            seconds_per_answer=2.0, sampling={"temperature": 1, "max_tokens": 32}, asked_by="ada",
        )  # fmt: skip
        values = [(0, 0, 1.0, {}), (0, 1, 0.0, {}), (1, 0, 1.0, {}), (1, 1, 1.0, {}), (2, 0, 0.0, {"budget": "tokens"}),
                  (2, 1, 0.0, {}), (3, 0, 1.0, {}), (3, 1, None, {"budget": "seconds"})]  # fmt: skip
        problems = list(Problem.objects.filter(benchmark=benchmark).order_by("id"))
        Score.objects.bulk_create(
            Score(
                run=run, problem=problems[place], scorer="unit_tests", repeat=repeat, seed=100 + repeat, value=value,
                status="unscored" if value is None else "scored", parts=parts, output=" a",
            )
            for place, repeat, value, parts in values
        )  # fmt: skip
    return run


@pytest.mark.django_db
def test_a_run_with_repeats_shows_pass_at_k_flaky_problems_seeds_and_budgets(as_engineer, project, repeated):
    html = text_of(page(as_engineer, "eval-run", repeated.pk))
    response = page(as_engineer, "eval-run", repeated.pk)
    at = {one.k: one for one in response.context["repeats"].at}
    # pass@1: mean of 1/2, 1, 0 and 1 of one try; pass@2 over the three with two scored tries: 1, 1, 0
    assert (at[1].any_right.value, round(at[2].any_right.value, 4), at[2].any_right.n) == (0.625, 0.6667, 3)
    assert round(at[2].all_right.value, 4) == 0.3333
    for words in (
        "1 of 3 problems with several scored answers are <b>flaky</b>",
        "1 answers were cut off at 32 tokens; scored as far as they came, 0 of them right",
        "1 answers were not whole within 2 s; unscored and in no mean",
        "Strict: 50.0 %, with the 1 that took too long as wrong",
        "out of tokens", "out of seconds", 'data-live="/p/editor/evals/', "no worker has it",
    ):  # fmt: skip
        assert words in html, words
    problem = text_of(page(as_engineer, "eval-problem", response.context["repeats"].flaky[0].key))
    assert '<span class="state state-flaky">flaky</span>' in problem and ">101<" in problem


@pytest.mark.django_db
def test_a_leaderboard_shows_pass_at_k_with_its_interval_where_problems_were_repeated(as_owner, project, repeated):
    with tenant(project.id):
        EvalRun.objects.filter(pk=repeated.pk).update(state="done")
        evaluate.make_run(repeated.benchmark, "gpt-x")
    board = page(as_owner, "leaderboard", repeated.benchmark_id)
    standing = {one.row.name: one.repeats for one in board.context["boards"]["unit_tests"]}
    found = standing["editor@1"].at[-1].any_right  # 2 of 3 problems, each a family of its own: n over G/(G-1)
    assert standing["gpt-x"] is None and (round(found.value, 4), found.interval) == (0.6667, "wilson_clustered")
    assert (round(found.low, 4), round(found.high, 4)) == (0.1594, 0.9547)
    assert "pass@2 66.7 %, 15.9 % to 95.5 %; 1 flaky" in text_of(board)


@pytest.mark.django_db(transaction=True)
def test_a_live_run_streams_its_progress_until_it_is_over(owner, project, repeated):
    with tenant(project.id):
        EvalRun.objects.filter(pk=repeated.pk).update(state="done")

    async def read():
        client = AsyncClient()
        await client.aforce_login(owner)
        return await collect(await client.get(reverse("console:eval-run-live", args=["editor", repeated.pk])))

    body = asyncio.run(read()).decode()
    assert "event: over" in body and '8 <span class=\\"meta\\">of 8</span>' in body


@pytest.mark.django_db
def test_a_benchmark_is_run_from_its_form_cancelled_and_gone_on_with(as_engineer, loop, project):
    with tenant(project.id):
        tests = {"function": "f", "cases": [{"expected": 1}]}
        evaluate.make_benchmark("asked", size=3, closed=True, tests=tests)
    asked = {"benchmark": "asked@1", "checkpoint": "editor@3", "samples": "3", "temperature": "0", "seconds": "2.5"}
    form = text_of(page(as_engineer, "evals"))
    assert '<option value="asked@1">' in form and "editor@2</option>" in form
    start = reverse("console:eval-start", args=["editor"])
    refused = as_engineer.post(start, asked)
    assert refused.status_code == 400 and "at temperature 0 every sample is the same" in text_of(refused)
    assert 'value="2.5"' in text_of(refused)  # what was typed is still there
    assert as_engineer.post(start, asked | {"limit": "many"}).status_code == 400
    response = as_engineer.post(start, asked | {"temperature": "0.8"})
    with tenant(project.id):
        run = EvalRun.objects.get(asked_by="engineer")
    assert response.url == reverse("console:eval-run", args=["editor", run.pk])
    assert (run.num_repeats, run.seconds_per_answer, run.sampling) == (3, 2.5, {"temperature": 0.8, "max_tokens": 512})
    steps = (("cancel", "cancelled", "The run is cancelled"), ("resume", "running", "The run goes on."))
    for act, state, said in steps:
        done = as_engineer.post(reverse(f"console:eval-{act}", args=["editor", run.pk]), follow=True)
        with tenant(project.id):
            assert EvalRun.objects.get(pk=run.pk).state == state
        assert said in text_of(done)


@pytest.mark.django_db
def test_a_cancelled_run_is_compared_with_nothing(as_owner, project):
    with tenant(project.id):
        gate = evaluate.make_benchmark()
        evaluate.make_run(gate, "editor@1")
        evaluate.make_run(gate, "editor@2", state="cancelled")
        board = reads.leaderboard(gate)["unit_tests"]
    assert [one.row.name for one in board] == ["editor@1"]
    html = text_of(page(as_owner, "compare", a="editor@1", b="editor@2"))
    assert "0 common cases" in html and "it was cancelled before it was complete" in html


@pytest.mark.django_db
def test_humaneval_is_added_listed_and_checked_against_training(as_engineer, loop, project):
    added = as_engineer.post(reverse("console:benchmark-add", args=["editor"]), follow=True)
    assert "humaneval@1 is there and can be run" in text_of(added)
    (row,) = [row for row in added.context["rows"] if row.benchmark.name == "humaneval"]
    assert (row.num_problems, row.num_overlapping) == (164, 0)
    shown = page(as_engineer, "benchmark-overlap", row.benchmark.pk)
    assert shown.context["report"].num_checked == 0 and "not checked" in text_of(shown)


@pytest.mark.django_db
def test_problems_that_training_has_seen_are_marked_and_can_be_left_out(as_owner, loop, project):
    with tenant(project.id):
        gate = evaluate.make_benchmark()
        for name, seed in (("editor@1", 1), ("editor@2", 2)):
            evaluate.make_run(gate, name, seed=seed)
        seen = Problem.objects.filter(benchmark=gate).first()
        sample = BatchSample.objects.first()
        Overlap.objects.create(problem=seen, batch=sample.batch, sample=sample, share=0.75)
    html = text_of(page(as_owner, "eval-problem", seen.pk))
    assert "Seen in training" in html and "75.0 %" in html and f"/turns/{sample.turn_ref}" in html
    sides = {"a": "editor@1", "b": "editor@2"}
    with_it, without = page(as_owner, "compare", **sides), page(as_owner, "compare", **sides, seen="out")
    asked = [one.context["measured"][0]["found"].effects.rows[0].num_asked for one in (with_it, without)]
    assert asked == [40, 39] and "1 problem stands in a batch that was trained on" in text_of(with_it)
    assert "and is left out here" in text_of(without)


@pytest.mark.django_db
def test_a_run_on_our_own_weights_costs_its_part_of_the_device_time(as_owner, project):
    """One answer of 1 s, of 4 s of latency in 4 s of device time in that hour, at a dollar a second."""
    start = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    with tenant(project.id):
        factories.make_policy()
        for second in (0, 5):
            at = start + timedelta(seconds=second)
            factories.make_turn(f"e{second}", at=at, source="eval", latency_ms=2000.0, outcome=None, signals=())
        run = evaluate.make_run(evaluate.make_benchmark("asked", size=1), "editor@1", solves=1.0)
        Score.objects.filter(run=run).update(latency_ms=1000.0)
        EvalRun.objects.filter(pk=run.pk).update(started_at=start)
        evaluate.count_hours()
    unpriced = text_of(page(as_owner, "eval-run", run.pk))
    assert "1.0 s of our own device" in unpriced and "an hour of it has no price" in unpriced
    with tenant(project.id):
        evaluate.make_card("own hardware", device_hour_usd=Decimal(3600))
    priced = page(as_owner, "eval-run", run.pk).context["own_cost"]
    assert (priced.seconds, priced.cost_usd, priced.num_timed) == (1, 1, 1)
