"""Keeping runs and comparisons of other tools: once, whole, and never half."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from evals import selectors, selectors_runs
from evals.importers.errors import Unreadable
from evals.importers.record import Battle, Battles, Claim, Note, Result, Run, Source, Usage
from evals.models import Benchmark, Comparison, ComparisonSet, EvalRun, Problem, RunState, Score
from evals.services import importing, raw_records
from evals.services.importing import import_battles, import_path, import_run
from evals.services.runs import run_benchmark
from registry.errors import InvalidInput
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db


def result(problem="1", score=1.0, **fields) -> Result:
    status = "unscored" if score is None else "scored"
    return Result(**{"problem": problem, "scorer": "match", "status": status, "score": score} | fields)


def run(*results: Result, **fields) -> Run:
    source = Source(format="tool", sha256=fields.pop("sha256", "a" * 64))
    return Run(**{"benchmark": "b", "model": "m", "source": source, "results": results, "run_id": "r1"} | fields)


def battle(**fields) -> Battle:
    return Battle(**{"problem": "1", "left": "a", "right": "b", "winner": "left", "by": "person"} | fields)


def battles(*all_: Battle, **fields) -> Battles:
    return Battles(**{"benchmark": "b", "source": Source(format="tool", sha256="c" * 64), "battles": all_} | fields)


def stored(project) -> EvalRun:
    with tenant(project.id):
        return EvalRun.objects.select_related("benchmark").get()


def test_a_run_is_kept_with_all_that_its_file_says(project):
    began = datetime(2025, 1, 2, tzinfo=UTC)
    usage = Usage(input=10, cache_read=5, output=3)
    kept = result(
        raw={"id": 1, "new": [None]}, raw_score="C", usage=usage, cost_usd=Decimal("0.25"), latency_ms=12.5,
        prompt="q", reference="t", output="o", slices={"subject": "law"},
    )  # fmt: skip
    claim, note = Claim(metric="accuracy", scorer="match", value=1.0, n=1), Note(kind="odd", text="odd")
    report = import_run(
        project.id,
        run(kept, started_at=began, claims=[claim], notes=[note], settings={"seed": 1}, raw={"tags": []}),
    )
    row = stored(project)
    assert (report.outcome, report.num_new, report.benchmark) == ("imported", 1, "tool:b@1")
    assert (row.state, row.scorer, row.model, row.measured_at) == (RunState.DONE, "match", "m", began)
    assert (row.claims[0]["value"], row.notes, row.settings) == (1.0, [{"kind": "odd", "text": "odd"}], {"seed": 1})
    assert (row.raw, row.writer_run_id, row.source["format"]) == ({"tags": []}, "r1", "tool")
    with tenant(project.id):
        score = Score.objects.select_related("problem").get()
        assert (score.value, score.raw_score, score.raw) == (1.0, "C", {"id": 1, "new": [None]})
        assert (score.usage, score.cost_usd, score.latency_ms) == (
            {"input": 10, "cache_read": 5, "output": 3}, Decimal("0.25"), 12.5,
        )  # fmt: skip
        assert (score.problem.prompt, score.problem.reference, score.problem.slices) == ("q", "t", {"subject": "law"})


def test_the_same_file_again_changes_nothing_and_says_so(project):
    import_run(project.id, run(result(), result("2", 0.0)))
    before = stored(project)

    def results():
        raise AssertionError("the results of a file that is known are not read")
        yield

    again = import_run(project.id, run(results=results()))
    assert (again.outcome, again.num_new, again.num_known) == ("unchanged", 0, 2)
    assert stored(project).finished_at == before.finished_at


def test_another_file_of_the_same_run_adds_what_is_new(project):
    import_run(project.id, run(result(), notes=[Note(kind="missing", text="unfinished")]))
    grown = import_run(project.id, run(result(), result("2", 0.0), sha256="b" * 64))
    assert (grown.outcome, grown.num_new, grown.num_known) == ("extended", 1, 1)
    assert (stored(project).notes, stored(project).source["sha256"]) == ([], "b" * 64)


def test_a_result_that_differs_from_the_one_kept_stays_out_and_is_told(project):
    import_run(project.id, run(result(score=1.0)))
    other = import_run(project.id, run(result(score=0.0), sha256="b" * 64))
    assert (other.outcome, other.num_conflicts) == ("unchanged", 1)
    assert "1 results differ" in stored(project).notes[0]["text"]
    with tenant(project.id):
        assert Score.objects.get().value == 1.0


def test_nothing_is_left_of_a_file_that_cannot_be_read_to_its_end(project, monkeypatch):
    monkeypatch.setattr(importing, "BATCH", 2)

    def results():
        yield from (result(str(number)) for number in range(5))
        raise Unreadable("cut off", where="line 6")

    with pytest.raises(Unreadable):
        import_run(project.id, run(results=results()))
    with tenant(project.id):
        assert [table.objects.count() for table in (EvalRun, Score, Problem, Benchmark)] == [0, 0, 0, 0]


def test_a_run_that_was_whole_stays_as_it_was_when_a_longer_file_cannot_be_read(project, monkeypatch):
    monkeypatch.setattr(importing, "BATCH", 1)
    import_run(project.id, run(result()))

    def results():
        yield from (result(), result("2"))
        raise Unreadable("cut off")

    with pytest.raises(Unreadable):
        import_run(project.id, run(results=results(), sha256="b" * 64))
    assert stored(project).state == RunState.DONE
    with tenant(project.id):
        assert Score.objects.count() == Problem.objects.count() == 1


def test_an_import_that_was_killed_goes_on(project, monkeypatch):
    monkeypatch.setattr(importing, "BATCH", 2)

    def results():
        yield from (result(str(number)) for number in range(4))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_run(project.id, run(results=results()))
    assert stored(project).state == RunState.RUNNING
    again = import_run(project.id, run(*(result(str(number)) for number in range(6))))
    assert (again.outcome, again.num_new, again.num_known) == ("imported", 2, 4)
    assert stored(project).state == RunState.DONE


def test_what_is_missing_never_becomes_a_zero(project):
    import_run(project.id, run(result(), result("2", None, explanation="NaN"), result("3", None, status="error")))
    with tenant(project.id):
        row = EvalRun.objects.get()
        (found,) = selectors_runs.by_scorer(row)
        assert (found.mean, found.num_problems, found.num_unscored, found.num_errors) == (1.0, 1, 1, 1)
        assert found.stderr is None
        spent = selectors_runs.spent(row)
        assert (spent.num_counted, spent.num_priced, spent.cost_usd) == (0, 0, None)


def test_repeats_are_averaged_before_the_standard_error(project):
    """The toy log of Inspect: means 1/2, 0, 1/2 over problems; mean 1/3, SE 1/6."""
    values = [("1", 1.0), ("2", 0.0), ("3", 0.0), ("1", 0.0), ("2", 0.0), ("3", 1.0)]
    results = [result(name, score, repeat=place // 3) for place, (name, score) in enumerate(values)]
    import_run(project.id, run(*results))
    with tenant(project.id):
        (found,) = selectors_runs.by_scorer(EvalRun.objects.get())
    assert (found.mean, found.stderr) == (pytest.approx(1 / 3), pytest.approx(1 / 6))
    assert (found.num_problems, found.num_answers, found.num_right) == (3, 6, None)


def test_a_run_of_several_scorers_stands_by_the_one_its_file_claims_first(project):
    both = [result(scorer="f1", score=0.25), result(scorer="match", score=1.0)]
    import_run(project.id, run(*both, claims=[Claim(metric="acc", scorer="match", value=1.0)]))
    with tenant(project.id):
        row = EvalRun.objects.get()
        assert selectors.scores(row) == {"1": 1.0}
        assert selectors.summary(row).num_answered == 1
        assert [one.scorer for one in selectors_runs.by_scorer(row)] == ["match", "f1"]


def test_an_answer_with_several_scorers_is_paid_once(project):
    usage = Usage(input=10, output=5)
    import_run(project.id, run(*(result(scorer=s, usage=usage, cost_usd=Decimal("0.5")) for s in ("a", "b"))))
    with tenant(project.id):
        spent = selectors_runs.spent(EvalRun.objects.get())
    assert (spent.num_answers, spent.input, spent.output, spent.cost_usd) == (1, 10, 5, Decimal("0.5"))


def test_a_claim_is_held_against_the_results(project):
    claims = [
        Claim(metric="accuracy", scorer="match", value=0.5, n=2),
        Claim(metric="accuracy", scorer="match", value=0.9, n=2),
        Claim(metric="accuracy", scorer="match", value=0.9, n=79),
        Claim(metric="accuracy", scorer="other", value=0.9, n=2),
    ]
    import_run(project.id, run(result(), result("2", 0.0), claims=claims))
    with tenant(project.id):
        row = EvalRun.objects.get()
        checked = selectors_runs.checked_claims(row, selectors_runs.by_scorer(row))
    assert [one.agrees for one in checked] == [True, False, None, None]


def test_runs_of_two_tools_never_share_problems(project):
    import_run(project.id, run(result(prompt="one")))
    import_run(project.id, run(result(prompt="two"), source=Source(format="other", sha256="d" * 64)))
    with tenant(project.id):
        assert {str(found) for found in Benchmark.objects.all()} == {"tool:b@1", "other:b@1"}


def test_versions_of_the_writer_are_benchmarks_of_their_own(project):
    for version in ("1.0", "2.0", "1.0"):
        import_run(project.id, run(result(), benchmark_version=version, run_id=version))
    with tenant(project.id):
        found = Benchmark.objects.order_by("version").values_list("version", "origin_version")
        assert list(found) == [(1, "1.0"), (2, "2.0")]


def test_names_that_cannot_stand_in_references_are_written_so_that_they_can(project):
    report = import_run(project.id, run(result(), benchmark="inspect_evals/arc@easy"))
    assert report.benchmark == "tool:inspect_evals_arc_easy@1"
    with tenant(project.id):
        assert selectors.find_benchmark(report.benchmark).origin_name == "inspect_evals/arc@easy"


def test_a_problem_with_another_prompt_than_before_is_told(project):
    import_run(project.id, run(result(prompt="one")))
    import_run(project.id, run(result(prompt="two"), run_id="r2", model="n"))
    with tenant(project.id):
        assert "1 problems have another prompt" in EvalRun.objects.get(writer_run_id="r2").notes[0]["text"]
        assert Problem.objects.get().prompt == "one"


def test_a_benchmark_without_texts_cannot_be_asked(project):
    report = import_run(project.id, run(result()))
    with pytest.raises(InvalidInput, match="problem 1 came in without its text"):
        run_benchmark(project.id, benchmark=report.benchmark, completer=None, model="n")
    with tenant(project.id):
        assert EvalRun.objects.get().model == "m", "no run is made of it"


def test_text_that_postgresql_cannot_hold_is_kept_readable(project):
    import_run(project.id, run(result("a\0b", output="x\0\ud800y", raw={"k\0": ["\udfff", float("nan")]})))
    with tenant(project.id):
        score = Score.objects.select_related("problem").get()
    assert (score.problem.problem_id, score.output) == ("a␀b", "x␀?y")
    assert score.raw == {"k␀": ["?", None]}


def test_a_record_that_is_too_large_loses_its_largest_fields_and_says_so(project, monkeypatch):
    monkeypatch.setattr(raw_records, "MAX_BYTES", 10_000)
    import_run(project.id, run(result(raw={"id": 1, "log": "x" * 20_000})))
    with tenant(project.id):
        assert Score.objects.get().raw == {"id": 1, "$left_out": {"log": 20_002}}
    assert "larger" in stored(project).notes[0]["text"] or "exceed" in stored(project).notes[0]["text"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"problem": ""}, "problem"),
        ({"problem": "x" * 129}, "problem"),
        ({"scorer": ""}, "scorer"),
        ({"score": 1.5}, "score"),
        ({"score": float("nan")}, "score"),
        ({"score": 0.5, "status": "error"}, "score"),
        ({"repeat": -1}, "repeat"),
        ({"cost_usd": Decimal(-1)}, "cost_usd"),
        ({"latency_ms": float("inf")}, "latency_ms"),
        ({"usage": Usage(input=-1)}, "usage.input"),
    ],
)
def test_a_result_that_cannot_be_is_refused_by_its_field(project, fields, field):
    with pytest.raises(InvalidInput) as refused:
        import_run(project.id, run(result("ok"), result(**fields)))
    assert refused.value.field == f"results[1].{field}"
    with tenant(project.id):
        assert EvalRun.objects.count() == Score.objects.count() == 0


def test_few_large_records_are_kept_in_small_transactions_as_many_small_ones_are(project, monkeypatch):
    monkeypatch.setattr(importing, "BATCH_CHARACTERS", 1000)
    seen = []
    large = (result(str(number), raw={"events": [{"text": "x" * 600}]}) for number in range(5))
    import_run(project.id, run(results=large), on_progress=seen.append)
    assert seen == [2, 4, 5]
    with tenant(project.id):
        assert Score.objects.count() == 5


def test_another_project_sees_nothing_and_may_import_the_same(project, other_project):
    import_run(project.id, run(result()))
    with tenant(other_project.id):
        assert EvalRun.objects.count() == Score.objects.count() == Benchmark.objects.count() == 0
    assert import_run(other_project.id, run(result())).outcome == "imported"


def test_comparisons_are_kept_with_preference_rater_and_time(project):
    at = datetime(2024, 5, 6, tzinfo=UTC)
    report = import_battles(
        project.id,
        battles(
            battle(winner="right", by="judge", rater="gpt-4", preference=0.75, at=at, raw={"x": 1}),
            battle(rater="worker 7", winner="tie", repeat=1),
            battle(rater="worker 8", winner="invalid"),
        ),
    )
    assert (report.kind, report.outcome, report.num_new) == ("comparisons", "imported", 3)
    with tenant(project.id):
        judged = Comparison.objects.get(by="judge")
        assert (judged.verdict, judged.preference, judged.rater, judged.judged_at) == ("right", 0.75, "gpt-4", at)
        assert (judged.raw, judged.judge_id, judged.set.state) == ({"x": 1}, None, RunState.DONE)


def test_comparisons_again_change_nothing_and_a_bad_one_leaves_nothing(project):
    import_battles(project.id, battles(battle()))
    assert import_battles(project.id, battles(battle())).outcome == "unchanged"
    with pytest.raises(InvalidInput) as refused:
        import_battles(project.id, battles(battle(preference=2.0), benchmark="other"))
    assert refused.value.field == "battles[0].preference"
    with tenant(project.id):
        assert (ComparisonSet.objects.count(), Comparison.objects.count(), Benchmark.objects.count()) == (1, 1, 1)


def test_votes_from_elsewhere_are_not_votes_of_our_own_people(project):
    from evals.standings import votes_of_people

    import_battles(project.id, battles(battle(), battle(rater="w")))
    with tenant(project.id):
        long_ago, far = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
        assert votes_of_people(since=long_ago, until=far) == []
        assert ComparisonSet.objects.get().comparisons.count() == 2


def test_a_folder_of_logs_imports_whole_and_again_changes_nothing(project, samples):
    first = import_path(project.id, samples("inspect"))
    assert first.refused == [] and len(first.imported) == 14
    assert {one.outcome for one in first.imported} == {"imported", "unchanged"}, "one log is there in both formats"
    again = import_path(project.id, samples("inspect"))
    assert {one.outcome for one in again.imported} == {"unchanged"}
    with tenant(project.id):
        assert EvalRun.objects.exclude(state=RunState.DONE).count() == 0


def test_a_log_in_both_formats_is_one_run(project, samples):
    import_path(project.id, samples("inspect") / "log_formats.eval")
    again = import_path(project.id, samples("inspect") / "log_formats.json").imported[0]
    assert (again.outcome, again.num_known, again.num_conflicts) == ("unchanged", 1, 0)


def test_results_without_samples_grow_when_the_samples_lie_beside(project, samples, tmp_path):
    source = samples("lm_eval")
    name = "results_2026-11-30T05-50-03.292058.json"
    (tmp_path / name).write_bytes((source / name).read_bytes())
    assert {one.num_new for one in import_path(project.id, tmp_path).imported} == {0}
    beside = "samples_mini_gen_2026-11-30T05-50-03.292058.jsonl"
    (tmp_path / beside).write_bytes((source / beside).read_bytes())
    found = {one.benchmark: one for one in import_path(project.id, tmp_path).imported}
    assert (found["lm_eval:mini_gen@1"].outcome, found["lm_eval:mini_gen@1"].num_new) == ("extended", 12)
    assert found["lm_eval:mini_mc@1"].outcome == "unchanged"


def test_one_bad_file_keeps_no_other_out(project, samples, tmp_path):
    good = (samples("inspect") / "log_formats.eval").read_bytes()
    (tmp_path / "good.eval").write_bytes(good)
    (tmp_path / "cut.eval").write_bytes(good[:3000])
    (tmp_path / "notes.txt").write_text("hello")
    report = import_path(project.id, tmp_path)
    assert [one.outcome for one in report.imported] == ["imported"]
    assert [refused.path.rpartition("/")[2] for refused in report.refused] == ["cut.eval"]
    assert [path.rpartition("/")[2] for path in report.unknown] == ["notes.txt"]


def test_a_path_without_anything_to_read_names_the_formats(project, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InvalidInput, match="no format is recognised; name one of inspect, lm_eval"):
        import_path(project.id, tmp_path)


def test_row_2_what_is_stored_is_strict_json(project, samples):
    """Row 2: NaN in a log must not come out of the database as a NaN in JSON."""
    import_path(project.id, samples("inspect") / "gen_v0.3.285_epochs2_nan.json")
    row = stored(project)
    with tenant(project.id):
        kept = [row.claims, row.notes, row.settings, row.raw, *Score.objects.values_list("raw", flat=True)]
    assert json.dumps(kept, allow_nan=False)


NO_RESULTS = {
    "EXPECTED.json", "ORIGINS.md", "evaluators_leaderboard.csv", "instruction_difficulty_recovered.csv",
    "lc_weights_length_controlled_v1.csv", "preferences_10models.csv.gz", "price_map_subset.json", "expected_bt.csv",
    "llmfao-golden.csv", "promptfooconfig.yaml", "droid_gpt5_run1.run_metadata.json",
}  # fmt: skip
NEED_A_MAPPING = {"llmfao.csv", "matrix_13agents_80tasks_5runs.csv"}


def test_every_results_file_of_other_tools_imports(project, samples):
    report = import_path(project.id, samples(""))
    assert report.refused == []
    assert {path.rpartition("/")[2] for path in report.unknown} == NO_RESULTS | NEED_A_MAPPING
    formats = {one.benchmark.partition(":")[0] for one in report.imported}
    assert formats == {
        "alpaca_eval", "harbor", "helm", "inspect", "lm_eval", "mt_bench", "openai_evals", "promptfoo", "swebench",
        "terminal_bench",
    }  # fmt: skip
    with tenant(project.id):
        assert not EvalRun.objects.exclude(state=RunState.DONE).exists()
    assert {one.outcome for one in import_path(project.id, samples("")).imported} == {"unchanged"}


def test_two_imported_runs_are_compared_by_the_scorer_that_stands_for_them(project):
    from evals.comparing.matching import match_runs
    from evals.comparing.names import Name
    from evals.comparing.problems import read_pairs

    for model, score in (("m", 1.0), ("n", 0.0)):
        both = [result(scorer="match", score=score), result(scorer="f1", score=0.5)]
        import_run(project.id, run(*both, model=model, claims=[Claim(metric="acc", scorer="match", value=score)]))
    with tenant(project.id):
        (paired,) = read_pairs(match_runs(Name.of("m", field="a"), Name.of("n", field="b")))
        (problem,) = paired.problems
        assert (problem.a.value, problem.b.value, problem.a.num_repeats) == (1.0, 0.0, 1)


def test_a_benchmark_that_came_in_is_no_draft_of_ours(project):
    from evals.services.drafts import find_draft, open_draft

    report = import_run(project.id, run(result()))
    name = report.benchmark.partition("@")[0]
    with tenant(project.id):
        assert find_draft(name) is None
        assert open_draft(name).version == 2
