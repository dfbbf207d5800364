"""A benchmark run that somebody asked for, from the request to its numbers, against a gateway that behaves as told."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evals.models import Benchmark, EvalRun, EvalState, Problem, Score
from evals.scorers.scorer import ProblemSpec
from evals.selectors_repeats import over_budget, repeats_of, tries_of
from evals.services.benchmarks import create_benchmark
from evals.services.drafts import add_problem, open_draft
from evals.services.runs import asked_problems
from jobs import services as jobs
from jobs.models import Job
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, Checkpoint
from registry.tenancy import tenant
from rl_online.models import EngineHolding
from rl_online.services import benchmark_runs
from rl_online.services.benchmark_runs import Wanted, cancel_run, resume_run, start_run
from rl_online.services.holdings import wanted_checkpoints

pytestmark = pytest.mark.django_db
NUM_PROBLEMS = 20


class Gateway:
    """Answers completions: `behave(prompt, seed)` gives (text, finish reason, seconds it takes)."""

    def __init__(self, behave):
        self.asked, lock, outer = [], threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    outer.asked.append(body)
                found = outer.behave(body["prompt"], body["seed"])
                status, (text, reason, seconds) = (200, found) if isinstance(found, tuple) else (found, ("", "", 0))
                time.sleep(seconds)
                reply = {
                    "model": body["model"], "choices": [{"text": text, "finish_reason": reason}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
                }  # fmt: skip
                data = json.dumps(reply).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    return  # whoever asked has left

            def log_message(self, *_):
                pass

        self.behave = behave
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def questions(self):
        return Counter((body["prompt"], body["seed"]) for body in self.asked)

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def right(prompt, seed):
    return f" a + {prompt.partition('_')[2].partition('(')[0]}", "stop", 0


@pytest.fixture
def gateway(settings):
    server = Gateway(right)
    settings.WEB_URL = server.url
    yield server
    server.close()


@pytest.fixture
def benchmark(project) -> Benchmark:
    problems = [
        ProblemSpec(
            id=f"add/{n}",
            prompt=f"def add_{n}(a):\n    return",
            tests={"function": f"add_{n}", "cases": [{"args": [1], "expected": 1 + n}]},
        )
        for n in range(NUM_PROBLEMS)
    ]
    return create_benchmark(project.id, "adding", problems, sampling={"stop": ["\ndef"], "max_tokens": 32})


@pytest.fixture
def held(project, policy) -> Checkpoint:
    """The serving checkpoint, which an engine holds."""
    with tenant(project.id):
        checkpoint = Checkpoint.objects.select_related("policy").get()
        EngineHolding.objects.create(engine="e", checkpoint=checkpoint, tree_digest=checkpoint.tree_digest)
    return checkpoint


@pytest.fixture
def asked(project, benchmark, held):
    """asked(samples=2, ...) -> the run and its job, queued."""

    def make(**wanted) -> tuple[EvalRun, Job]:
        with tenant(project.id):
            run = start_run(benchmark, held, Wanted(**wanted), actor="ada")
        return run, Job.objects.get(kind=benchmark_runs.RUN_JOB, payload__run=str(run.id))

    return make


def work(job: Job) -> None:
    """As a worker does, whatever the time."""
    Job.objects.filter(pk=job.pk, state="queued").update(run_at="2020-01-01T00:00Z")
    claimed = jobs.claim(job.pk, "worker")
    assert claimed is not None
    jobs.run(claimed)


def test_every_problem_is_asked_as_often_as_wanted_with_seeds_of_its_own(project, gateway, asked):
    lucky = {}

    def flips(prompt, seed):
        """Problem 3 is right the second time, problem 4 never."""
        lucky.setdefault(prompt, []).append(seed)
        is_right = "_4(" not in prompt and ("_3(" not in prompt or len(lucky[prompt]) == 2)
        return (right(prompt, seed)[0] if is_right else " a", "stop", 0)

    gateway.behave = flips
    run, job = asked(samples=3, temperature=0.8, seed=7)
    work(job)
    with tenant(project.id):
        run.refresh_from_db()
        tried = tries_of(run)
        repeats = repeats_of(tried)
        kept = {(score.problem.prompt, score.seed) for score in Score.objects.filter(run=run).select_related("problem")}
        assert AuditEvent.objects.get(object_kind="benchmark run").actor == "ada"
    assert (run.state, run.sampling) == ("done", {"stop": ["\ndef"], "max_tokens": 32, "temperature": 0.8})
    assert gateway.questions == dict.fromkeys(kept, 1) and len(kept) == 60  # what is recorded is what was sent, once
    assert [(one.problem_id, one.right) for one in tried if one.is_flaky] == [("add/3", 1)]
    # 18 of 20 problems always right, one 1 of 3, one never: pass@1 (18 + 1/3)/20, pass@3 19/20, pass^3 18/20
    assert [(one.k, round(one.any_right.value, 6)) for one in repeats.at] == [(1, 0.916667), (2, 0.933333), (3, 0.95)]
    assert repeats.at[-1].all_right.value == 0.9 and repeats.num_flaky == 1
    last = repeats.at[-1].any_right  # of 3 tries at each: right or wrong, so 19 of 20 is a share
    assert (last.interval, round(last.low, 4), round(last.high, 4)) == ("wilson", 0.7639, 0.9911)
    assert repeats.at[0].any_right.interval == "t"
    again = asked(samples=1, temperature=0.8, seed=7)[0]
    assert again.pk != run.pk  # asked for anew, it is another run


class Killed(BaseException):
    pass


def test_a_run_killed_on_its_way_goes_on_and_asks_nothing_stored_again(project, gateway, asked, monkeypatch):
    run, job = asked()
    Job.objects.filter(pk=job.pk).update(run_at="2020-01-01T00:00Z")
    claimed = jobs.claim(job.pk, "worker 1")

    def die(lease_s=None):
        raise Killed

    claimed.renew = die
    with pytest.raises(Killed):
        benchmark_runs.run_job(claimed)
    with tenant(project.id):
        stored = set(Score.objects.filter(run=run).values_list("problem__prompt", flat=True))
    assert 0 < len(stored) < NUM_PROBLEMS
    before = len(gateway.asked)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_job SET lease_until = clock_timestamp() - interval '1 second' WHERE id = %s", [job.pk]
        )
    work(job)  # another worker finds the lease run out
    again = {body["prompt"] for body in gateway.asked[before:]}
    assert again.isdisjoint(stored) and len(again) == NUM_PROBLEMS - len(stored)
    with tenant(project.id):
        assert EvalRun.objects.get(pk=run.pk).state == "done" and Score.objects.filter(run=run).count() == NUM_PROBLEMS
    with pytest.raises(jobs.StaleFence), claimed.effect():  # the first one can no longer end it
        pass


def test_a_cancelled_run_keeps_what_is_done_and_goes_on_when_asked(project, gateway, asked):
    run, job = asked()
    Job.objects.filter(pk=job.pk).update(run_at="2020-01-01T00:00Z")
    claimed = jobs.claim(job.pk, "worker")

    def cancel(lease_s=None):
        with tenant(project.id):
            cancel_run(run, actor="ada")

    claimed.renew = cancel
    benchmark_runs.run_job(claimed)
    with tenant(project.id):
        run.refresh_from_db()
        num_kept = Score.objects.filter(run=run).count()
        assert run.state == "cancelled" and 0 < num_kept < NUM_PROBLEMS
        with pytest.raises(Conflict, match="over already: cancelled"):
            cancel_run(run, actor="ada")
        Job.objects.filter(pk=job.pk).update(state="done")
        assert resume_run(run, actor="bob") == 0
        following = Job.objects.get(kind=benchmark_runs.RUN_JOB, state="queued")
    work(following)
    with tenant(project.id):
        run.refresh_from_db()
        assert run.state == "done" and Score.objects.filter(run=run).count() == NUM_PROBLEMS
        with pytest.raises(Conflict, match="every answer is there"):
            resume_run(run, actor="bob")
        trail = list(AuditEvent.objects.filter(object_kind="benchmark run").order_by("id").values_list("verb", "actor"))
    assert trail == [("start", "ada"), ("cancel", "ada"), ("resume", "bob")]


def test_a_run_under_way_is_not_resumed_and_two_jobs_never_ask_for_it_at_once(project, gateway, asked):
    run, job = asked()
    with tenant(project.id):
        problem = Problem.objects.order_by("id").first()
        Score.objects.create(run=run, problem=problem, scorer="unit_tests", status="error")
        Job.objects.filter(pk=job.pk).update(state="running")
        with pytest.raises(Conflict, match="under way"):
            resume_run(run, actor="ada")
        assert Score.objects.filter(run=run).count() == 1 and Job.objects.get(kind=benchmark_runs.RUN_JOB) == job
        Job.objects.filter(pk=job.pk).update(state="queued")
    other = connection.get_new_connection(connection.get_connection_params())
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [benchmark_runs.lock_of(str(run.pk))])
        work(job)
        assert "another job still asks" in Job.objects.get(pk=job.pk).last_error and gateway.asked == []
    finally:
        other.close()
    work(job)
    assert len(gateway.asked) == NUM_PROBLEMS - 1


def test_what_runs_out_of_its_budget_is_named_and_no_silent_zero(project, gateway, asked):
    def behave(prompt, seed):
        text, _, _ = right(prompt, seed)
        if "_1(" in prompt:
            return text, "stop", 8  # too slow
        if "_2(" in prompt:
            return text, "length", 0  # cut off, and right as far as it came
        return (" a +", "length", 0) if "_3(" in prompt else (text, "stop", 0)

    gateway.behave = behave
    run, job = asked(seconds=3.0)
    work(job)
    with tenant(project.id):
        found = {score.problem.problem_id: score for score in Score.objects.filter(run=run).select_related("problem")}
        over = over_budget(run, tries_of(run))
        assert EvalRun.objects.get(pk=run.pk).state == "done"
    late = found["add/1"]
    assert (late.status, late.value, late.parts) == ("unscored", None, {"budget": "seconds"})
    assert late.explanation == "no whole answer within 3 s"
    assert [(found[key].value, found[key].parts["budget"]) for key in ("add/2", "add/3")] == [
        (1.0, "tokens"), (0.0, "tokens"),
    ]  # fmt: skip
    assert (over.tokens, over.tokens_right, over.seconds) == (2, 1, 1)
    assert over.strict.value == 18 / 20  # with the late one as wrong; without it 18 of 19


def test_answers_that_could_not_be_had_are_asked_again_a_few_times(project, gateway, asked, monkeypatch):
    monkeypatch.setattr("evals.services.completers.FIRST_WAIT_S", 0.001)
    gateway.behave = lambda prompt, seed: 503 if "_5(" in prompt else right(prompt, seed)
    run, job = asked(limit=NUM_PROBLEMS)
    work(job)
    with tenant(project.id):
        assert EvalRun.objects.get(pk=run.pk).state == "running"
    assert "1 answers could not be had" in Job.objects.get(pk=job.pk).last_error
    gateway.behave = right
    before = len(gateway.asked)
    work(job)
    assert len(gateway.asked) == before + 1
    with tenant(project.id):
        assert EvalRun.objects.get(pk=run.pk).state == "done" and Score.objects.filter(run=run, value=1).count() == 20


def test_a_checkpoint_that_no_engine_holds_is_waited_for_and_in_the_end_refused(
    project, policy, gateway, asked, sealed, judged, trained
):
    judged("accept"), judged("reject")
    candidate = trained(sealed())
    run, job = asked()
    with tenant(project.id):
        EvalRun.objects.filter(pk=run.pk).update(checkpoint=str(candidate))
        candidate.update.state = "held"
        candidate.update.save()
        wanted = {str(one.checkpoint): one.role for one in wanted_checkpoints(policy.id)}
    assert wanted == {"editor@1": "serving", "editor@2": "measured"}
    work(job)
    waiting = Job.objects.get(pk=job.pk)
    assert (waiting.state, waiting.attempts) == (
        "queued",
        0,
    ) and "waits until the engine holds editor@2" in waiting.last_error
    assert gateway.asked == []
    Job.objects.filter(pk=job.pk).update(payload=waiting.payload | {"waiting_since": time.time() - 1000})
    work(job)
    with tenant(project.id):
        run.refresh_from_db()
    assert (run.state, run.error) == ("failed", "no engine held it within 15 minutes")


def test_a_job_that_is_given_up_fails_its_run_which_can_go_on(project, asked):
    run, job = asked()
    Job.objects.filter(pk=job.pk).update(attempts=5, run_at="2020-01-01T00:00Z", last_error="Traceback\nOSError: gone")
    assert jobs.claim(job.pk, "worker") is None
    with tenant(project.id):
        run.refresh_from_db()
        assert (run.state, run.error) == ("failed", "given up after several tries: OSError: gone")
        resume_run(run, actor="ada")
        assert EvalRun.objects.get(pk=run.pk).state == EvalState.RUNNING


@pytest.mark.parametrize(
    ("wanted", "field", "said"),
    [
        ({"samples": 2}, "temperature", "every sample is the same"),
        ({"samples": 0}, "samples", "found 0; give 1 to 1000"),
        ({"temperature": float("nan")}, "temperature", "found nan"),
        ({"seconds": 0.0}, "seconds", "found 0"),
        ({"scorer": "taste"}, "scorer", "no scorer 'taste'"),
        ({"stop": ("",)}, "stop", "none of them empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(asked, wanted, field, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        asked(**wanted)
    assert caught.value.field == field


def test_a_draft_and_problems_without_tests_are_not_run(project, held, benchmark):
    with tenant(project.id):
        draft = open_draft("reviewed-turns")
        add_problem(draft, ProblemSpec(id="t", prompt="2 + 2"))
        with pytest.raises(Conflict, match="still being collected"):
            start_run(draft, held, Wanted(), actor="ada")
        Problem.objects.filter(benchmark=draft).update(tests={})
        draft.digest = "0" * 64
        draft.save()
        with pytest.raises(InvalidInput, match="none of its problems has tests"):
            start_run(draft, held, Wanted(), actor="ada")
        with CaptureQueriesContext(connection) as said:
            assert start_run(draft, held, Wanted(scorer="executability"), actor="ada").state == "running"
        assert not [query for query in said if '"prompt", ' in query["sql"] and "LIMIT 1" not in query["sql"]]
        bare = Benchmark.objects.create(name="bare", origin="harness", origin_name="bare")
        Problem.objects.create(benchmark=bare, problem_id="t")
        with pytest.raises(InvalidInput, match="problem t came in without its text"):
            start_run(bare, held, Wanted(scorer="executability"), actor="ada")


def test_a_limit_asks_the_same_part_of_the_problems_each_time(project, gateway, asked):
    run, job = asked(limit=5)
    work(job)
    with tenant(project.id):
        answered = set(Score.objects.filter(run=run).values_list("problem__problem_id", flat=True))
        ids = list(Problem.objects.values_list("problem_id", flat=True))
        assert EvalRun.objects.get(pk=run.pk).state == "done"
    assert answered == asked_problems(reversed(ids), 5) and len(answered) == 5


@pytest.mark.parametrize(
    ("at_once", "num_done", "expected"), [(32, 40, 16), (32, 64, 32), (32, 999, 32), (8, 90, 16), (1, 0, 1), (1, 2, 1)]
)
def test_answers_that_take_long_are_asked_few_at_a_time(at_once, num_done, expected):
    assert benchmark_runs.next_at_once(at_once, num_done=num_done, most=32) == expected


def test_a_run_of_which_no_answer_ends_within_a_slice_fails_and_says_why(project, gateway, asked, monkeypatch):
    gateway.behave = lambda prompt, seed: (*right(prompt, seed)[:2], 30)
    monkeypatch.setattr(benchmark_runs, "SLICE_S", 0.2)
    monkeypatch.setattr(benchmark_runs, "LONG_SLICE_S", 0.2)
    run, job = asked(limit=4)
    paces = []
    for _ in range(9):
        work(job)
        paces.append(Job.objects.get(pk=job.pk).payload.get("at_once"))
        with tenant(project.id):
            run.refresh_from_db()
        if run.state != "running":
            break
    assert paces[:6] == [16, 8, 4, 2, 1, 1] and run.state == "failed"
    assert run.error == "not one answer was whole after 0 s; give answers fewer tokens, or seconds"
