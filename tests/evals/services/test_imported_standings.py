"""Imported votes: what a worker makes of them, once, judges and people apart."""

import csv
import json

import pytest

from evals.importers import generic
from evals.importers.record import Battle, Battles, Source
from evals.models import Comparison, ComparisonSet, ImportedStandings, RaterAgreement
from evals.services import imported_standings
from evals.services.imported_standings import STANDINGS_JOB, agreed_of, measured_of, request_all_standings
from evals.services.importing import import_battles, import_path, import_produced
from jobs import services as jobs
from jobs.models import Job, JobState
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db


def battle(problem, winner, **fields) -> Battle:
    return Battle(**{"problem": str(problem), "left": "a", "right": "b", "winner": winner, "by": "person"} | fields)


def take(project, *battles, sha="c", **fields):
    """Import one file of votes."""
    source = Source(format="tool", sha256=sha * 64)
    return import_battles(project.id, Battles(benchmark="b", source=source, battles=battles, **fields))


def work():
    """Do what the imports left to a worker; returns how many jobs there were."""
    num = 0
    while job := jobs.claim_next(["default"], "worker"):
        jobs.run(job)
        assert Job.objects.get(id=job.id).last_error == ""
        num += 1
    return num


def rows(project):
    """(by, rater) -> what was computed."""
    with tenant(project.id):
        return {(row.by, row.rater): measured_of(row) for row in ImportedStandings.objects.all()}


def test_judges_and_people_are_computed_apart_with_their_agreement(project):
    verdicts = ["left", "left", "right", "tie", "left", "right", "left", "both_bad"]
    people = [battle(n, verdict, rater=f"w{m}") for n, verdict in enumerate(verdicts) for m in range(2)]
    judge = [battle(n, "left" if n % 4 else verdict, by="judge", rater="gpt-4") for n, verdict in enumerate(verdicts)]
    take(project, *people)
    take(project, *judge, battle(99, "invalid", by="judge", rater="gpt-4"), sha="d")
    assert work() == 1, "two files, one benchmark: one job"
    found = rows(project)
    assert found.keys() == {("person", ""), ("judge", "gpt-4")}
    (pair,) = found["person", ""].standings.pairs
    assert (pair.name, pair.rate.wins, pair.rate.ties, pair.rate.losses) == ("a", 8, 4, 4)
    assert pair.rate.num_clusters == 8, "two people on one problem are no two facts"
    assert found["judge", "gpt-4"].standings.num_undecided == 1
    with tenant(project.id):
        agreements = {(row.first, row.second): agreed_of(row) for row in RaterAgreement.objects.all()}
    assert agreements.keys() == {("judge:gpt-4", "person"), ("person", "person")}
    assert (agreements["judge:gpt-4", "person"].with_ties.n, agreements["person", "person"].with_ties.value) == (
        16,
        1.0,
    )


def test_what_has_not_changed_is_not_computed_again(project, monkeypatch):
    take(project, battle(1, "left"), battle(2, "tie"))
    work()
    monkeypatch.setattr(imported_standings, "_measured", None)  # would fail if it were called
    take(project, battle(1, "left"), battle(2, "tie"))
    assert work() == 1 and rows(project)["person", ""].standings.num_votes == 2


def test_a_verdict_that_two_files_of_a_judge_hold_counts_once(project):
    says = [battle(n, "left", by="judge", rater="j", right=name) for n in range(3) for name in ("b", "c")]
    take(project, *says[:4])
    take(project, *says, sha="d")
    work()
    found = rows(project)["judge", "j"]
    assert (found.standings.num_votes, len(found.sets)) == (6, 2)
    with tenant(project.id):
        assert Comparison.objects.count() == 10


def test_a_file_that_is_gone_takes_its_numbers_along(project):
    take(project, battle(1, "left"))
    take(project, battle(1, "left", by="judge", rater="j"), sha="d")
    work()
    with tenant(project.id):
        ComparisonSet.objects.all().delete()
        assert request_all_standings() == 1
    work()
    assert rows(project) == {}


def test_row_21_who_never_lost_is_undefined_and_shown_with_a_ridge(project):
    take(project, *(battle(n, "left") for n in range(5)))
    work()
    found = rows(project)["person", ""].standings
    assert found.ranking.undefined == "a never lost, not even half" and len(found.with_ridge.rows) == 2


def test_the_arenas_counts_give_strengths_without_style(project, tmp_path):
    def record(n, winner, longer):
        tokens = {"a": 300, "b": 100} if longer == "a" else {"a": 100, "b": 300}
        lists = {side: {"ordered": int(side == longer), "unordered": 2} for side in "ab"}
        counts = {f"sum_assistant_{side}_tokens": tokens[side] for side in "ab"}
        counts |= {f"list_count_{side}": lists[side] for side in "ab"}
        return {"question_id": f"q{n}", "model_a": "x", "model_b": "y", "winner": winner, "conv_metadata": counts}

    records = [record(n, "model_a" if n % 5 else "model_b", "a" if n % 5 else "b") for n in range(20)]
    records += [record(n, "model_b", "a") for n in range(20, 26)] + [record(n, "model_a", "b") for n in range(26, 28)]
    path = tmp_path / "battles.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    import_path(project.id, path)
    work()
    found = rows(project)["person", ""]
    assert (found.length_unit, found.style.n, set(found.style.style)) == ("tokens", 28, {"length", "lists"})
    plain = next(row.elo for row in found.standings.ranking.rows if row.name == "x")
    assert found.style.strengths["x"].value < plain, "x is the longer one more often"
    assert [(one.name, one.baseline) for one in found.at_equal_length] == [("y", "x")]


def test_answers_give_lengths_and_markdown_as_it_is_counted(project):
    long = "# Title\n\n- one\n- two\n1. three\n\n**bold** and __bold__ #hash a*b"
    take(
        project,
        *(
            battle(
                n, "right" if n % 3 else "left", by="judge", rater="j", left_text="short" * (1 + n % 2), right_text=long
            )
            for n in range(9)
        ),
        battle(10, "tie", by="judge", rater="j"),
    )
    with tenant(project.id):
        (source,) = imported_standings._sources(ComparisonSet.objects.get().benchmark_id)
        styled, unit = imported_standings._styled(source)
    assert unit == "characters" and len(styled) == 9, "the one without answers has no style"
    assert styled[0].right_style == {"length": len(long), "headers": 1, "lists": 3, "bold": 2}
    work()
    (equal,) = rows(project)["judge", "j"].at_equal_length
    assert (equal.name, equal.baseline, equal.raw.value) == ("b", "a", pytest.approx(6 / 9))


def test_llmfaos_votes_come_to_the_published_strengths(project, samples):
    """All the way: file, database, worker. Strengths to 1e-6 and errors by prompt."""
    mapping = generic.Mapping(kind="battles", benchmark="llmfao", problem="prompt", rater="worker", by="person")
    (battles,) = generic.read(samples("pairwise_llmfao/llmfao.csv"), mapping)
    import_produced(project.id, battles)
    work()
    found = rows(project)["person", ""].standings
    with samples("pairwise_llmfao/expected_bt.csv").open() as file:
        expected = {row[""]: row for row in csv.DictReader(file)}
    assert len(found.ranking.rows) == 59 and found.num_votes == 8931
    for row in found.ranking.rows:
        assert row.strength == pytest.approx(float(expected[row.name]["bt"]), abs=1e-6)
        assert row.se == pytest.approx(float(expected[row.name]["se_prompt"]) * (13 / 12) ** 0.5, abs=1e-6)
    assert sum(pair.rate.n for pair in found.pairs) == 8931


def test_a_job_that_takes_too_long_goes_on_later(project, monkeypatch):
    take(project, battle(1, "left"), battle(1, "left", by="judge", rater="j"))
    monkeypatch.setattr(imported_standings, "WORK_S", -1.0)
    job = jobs.claim_next(["default"], "worker")
    jobs.run(job)
    assert Job.objects.get(kind=STANDINGS_JOB).state == JobState.QUEUED
    monkeypatch.undo()
    assert work() == 1 and len(rows(project)) == 2
