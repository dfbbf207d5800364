from evals.comparing.matching import match_runs
from evals.comparing.names import Name
from registry.tenancy import tenant

A, B = Name.of("editor@1", field="a"), Name.of("editor@2", field="b")
ALL = dict.fromkeys(["p0", "p1"], 1.0)


def reasons(matching):
    return [(one.side, str(one.run.benchmark), one.reason) for one in matching.unmatched]


def test_runs_on_the_same_benchmark_with_the_same_settings_are_paired(project, bench, run):
    adding = bench()
    old, new = run(adding, "editor@1", ALL), run(adding, "editor@2", ALL)
    with tenant(project.id):
        matching = match_runs(A, B)
    assert [(pair.a, pair.b, pair.benchmark) for pair in matching.pairs] == [(old, new, "adding@1")]
    assert matching.unmatched == () and matching.pairs[0].is_complete


def test_the_newest_of_several_runs_is_taken(project, bench, run):
    adding = bench()
    run(adding, "editor@1", {"p0": 0.0}, source={"sha256": "an older import"})
    newest = run(adding, "editor@1", ALL)
    run(adding, "editor@2", ALL)
    with tenant(project.id):
        assert [pair.a for pair in match_runs(A, B).pairs] == [newest]


def test_another_version_of_a_benchmark_holds_other_problems(project, bench, run):
    run(bench(version=1), "editor@1", ALL)
    run(bench(version=2), "editor@2", ALL)
    with tenant(project.id):
        matching = match_runs(A, B)
    assert matching.pairs == ()
    assert reasons(matching) == [
        ("a", "adding@1", "editor@2 ran version 2 of it: other problems"),
        ("b", "adding@2", "editor@1 ran version 1 of it: other problems"),
    ]


def test_other_settings_and_other_scorers_do_not_measure_the_same(project, bench, run):
    adding, sorting = bench(), bench(name="sorting")
    run(adding, "editor@1", ALL, sampling={"temperature": 0})
    run(adding, "editor@2", ALL, sampling={"temperature": 1})
    run(sorting, "editor@1", ALL)
    run(sorting, "editor@2", ALL, scorer="executability")
    with tenant(project.id):
        found = reasons(match_runs(A, B))
    assert found[:2] == [
        ("a", "adding@1", "editor@2 was sampled with other settings there"),
        ("a", "sorting@1", "editor@2 was scored there by executability"),
    ]


def test_a_side_that_never_ran_is_said(project, bench, run):
    run(bench(), "editor@1", ALL)
    with tenant(project.id):
        assert reasons(match_runs(A, B)) == [("a", "adding@1", "editor@2 has no run on it")]


def test_a_failed_run_is_no_run(project, bench, run):
    adding = bench()
    run(adding, "editor@1", ALL, state="failed"), run(adding, "editor@2", ALL)
    with tenant(project.id):
        assert match_runs(A, B).pairs == ()


def test_a_model_of_somebody_else_is_compared_just_so(project, bench, run):
    adding = bench()
    run(adding, "gpt-5", ALL), run(adding, "editor@2", ALL)
    with tenant(project.id):
        assert len(match_runs(Name.of("gpt-5", field="a"), B).pairs) == 1


def test_another_project_sees_nothing_of_it(other_project, bench, run):
    adding = bench()
    run(adding, "editor@1", ALL), run(adding, "editor@2", ALL)
    with tenant(other_project.id):
        assert match_runs(A, B).pairs == match_runs(A, B).unmatched == ()


def test_a_run_is_found_however_often_another_kind_ran_since(project, bench, run, monkeypatch):
    adding, sorting = bench(), bench(name="sorting")
    run(adding, "editor@1", ALL), run(adding, "editor@2", ALL)
    for number in range(4):
        run(sorting, "editor@2", {"p0": 1.0}, source={"sha256": str(number)})
    monkeypatch.setattr("evals.comparing.matching.MAX_RUNS", 3)
    with tenant(project.id):
        assert [pair.benchmark for pair in match_runs(A, B).pairs] == ["adding@1"]
