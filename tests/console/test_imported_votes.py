"""Votes from elsewhere on the Win rates page, and the list of comparisons behind every number."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from console.lists.comparisons import COMPARISONS
from console.views.win_rates import TABLES
from evals.importers.record import Battle, Battles, Note, Source
from evals.services.importing import import_battles
from jobs import services as jobs
from registry.tenancy import tenant
from tests.console import evaluate
from tests.console.test_evaluate import HOSTILE, page, words

VERDICTS = ["left", "left", "right", "tie", "left", "right", "left", "left"]


def battles(by="person", rater="", others=("b", "c"), **fields):
    return [
        Battle(problem=f"q{n}", left="a", right=other, winner=verdict, by=by, rater=rater, **fields)
        for other in others
        for n, verdict in enumerate(VERDICTS[:3] if other == "c" else VERDICTS)
    ]


def take(project, all_battles, sha="a"):
    notes = [Note(kind="odd", text="not anonymous")]
    source = Source(format="arena", sha256=sha * 64)
    report = import_battles(project.id, Battles(benchmark="arena", source=source, battles=all_battles, notes=notes))
    while job := jobs.claim_next(["default"], "worker"):
        jobs.run(job)
    return report


@pytest.fixture
def people(project):
    return take(project, battles())


def test_a_page_without_imported_votes_says_how_they_come_in(as_owner, project):
    html = words(page(as_owner, "win-rates", "?by=imported"))
    assert "no votes were imported" in html and "strop import runs votes.jsonl" in html


def test_imported_people_are_shown_with_n_ties_kinds_and_what_is_odd(as_owner, people):
    html = words(page(as_owner, "win-rates", "?by=imported"))
    assert "11 comparisons on arena:arena@1 by people, 0 of them without a verdict" in html
    assert "agreement is not known" in html and "odd: not anonymous" in html
    assert "neither answers nor counts of their style" in html
    assert "a b 68.8 %" in html and "5 1 2 8 0 comparisons" in html and "wilson_clustered" in html  # (5 + 1/2) / 8
    assert "a c too few to say" in html
    assert "that is no change over time" not in html and "this is no change over time" in html


def test_a_pair_that_never_met_is_blank_in_the_matrix_and_the_others_lead_to_their_comparisons(as_owner, people):
    context = as_owner.get("/p/editor/win-rates?by=imported").context
    figure, names = context["matrix_figure"], context["found"].names
    cells = dict(zip(names, figure["data"][0]["z"], strict=True))
    row_of_b = dict(zip(names, cells["b"], strict=True))
    assert row_of_b == {"a": pytest.approx(31.25), "b": None, "c": None}, "b never met c: blank, not 50 %"
    address = figure["data"][0]["customdata"][names.index("a")][names.index("b")]
    shown = as_owner.get(address)
    assert len(shown.context["rows"]) == 8 and {row.right for row in shown.context["rows"]} == {"b"}


def test_judges_are_a_source_of_their_own_with_kappa_and_its_interval(as_owner, people, project):
    judge = take(project, battles(by="judge", rater="gpt-4", others=("b",), left_text="x" * 9, right_text="y"), sha="b")
    html = words(page(as_owner, "win-rates", f"?by=imported&set={judge.id}"))
    assert "by gpt-4" in html and "gpt-4 people 100.0 %" in html
    assert re.search(r"1\.00 8 8", html), "kappa 1, n 8, in 8 clusters"
    assert "Without style, at equal length" in html
    kept_apart = as_owner.get("/p/editor/win-rates?by=imported").context["sources"]
    assert sorted(one.by for one in kept_apart) == ["judge", "person"]


def test_style_that_differs_is_shown_with_its_weight(as_owner, project):
    said = [
        Battle(
            problem=f"q{n}", left="a", right="b", winner="left" if n % 4 else "right", by="judge", rater="j",
            left_text="long " * (9 + n % 3), right_text="short", preference=0.3 if n % 4 else 0.8,
        )
        for n in range(12)
    ]  # fmt: skip
    take(project, said)
    html = words(page(as_owner, "win-rates", "?by=imported"))
    assert "What style is worth" in html and "length in characters" in html and "n = 12 decided comparisons" in html
    # the mean of .3 nine times and .8 three times
    assert "42.5 %" in html


def test_both_tables_are_exported_with_their_intervals(as_owner, people, project):
    request = as_owner.get("/p/editor/win-rates?by=imported").wsgi_request
    with tenant(project.id):
        pairs, ranking = (
            [dict(zip(table.columns, row, strict=True)) for row in table.ask(request)()] for table in TABLES
        )
    first = pairs[0]
    assert (first["by"], first["side"], first["over"], first["win_rate"]) == (
        "person on arena:arena@1", "a", "b", 0.6875,
    )  # fmt: skip
    assert (first["interval"], first["decided"], first["undecided"]) == ("wilson_clustered", 8, 0)
    assert first["low"] < 0.6875 < first["high"]
    assert {row["side"] for row in ranking} == {"a", "b", "c"} and ranking[0]["elo_without_style"] is None


def test_comparisons_are_found_by_side_verdict_and_file(as_owner, people, project):
    with tenant(project.id):
        evaluate.make_judgement(None, None, "tie", left="a", right="b")

    def found(query):
        return len(as_owner.get("/p/editor/comparisons", {"q": query}).context["rows"])

    assert found("side:a side:b") == 9 and found("side:a side:b made:elsewhere") == 8
    assert found(f"file:{people.id}") == 11 and found("file:none-such") == 0
    assert found("verdict:tie made:here") == 1 and found("benchmark:arena:arena@1 problem:q0") == 2
    assert found("right:c by:person") == 3 and found("rater:nobody") == 0
    asked = COMPARISONS.asked(as_owner.get("/p/editor/comparisons?q=right:c").wsgi_request)
    with tenant(project.id):
        rows = COMPARISONS.export.values(list(COMPARISONS.export.rows(asked)))
    found_rows = [dict(zip(COMPARISONS.export.columns, row, strict=True)) for row in rows]
    assert len(found_rows) == 3 and {row["file"] for row in found_rows} == {str(people.id)}
    assert {row["benchmark"] for row in found_rows} == {"arena:arena@1"} and found_rows[0]["judge"] is None


def test_an_imported_comparison_says_what_its_file_lacks(as_owner, people):
    row = as_owner.get("/p/editor/comparisons").context["rows"][0]
    html = words(page(as_owner, "comparison", comparison=row.pk))
    assert "the answer is not in the file" in html and "the prompt is not in the file" in html
    assert "From left to right" not in html and "Imported votes" in html


def test_names_from_a_file_are_only_ever_text(as_owner, project):
    take(project, battles(others=(HOSTILE[:150],), rater=HOSTILE[:150]))
    for address in ("/p/editor/win-rates?by=imported", "/p/editor/comparisons"):
        html = as_owner.get(address).content.decode()
        assert "<script>alert(1)" not in html and "<img src=x" not in html


def test_votes_that_came_in_before_are_computed_when_asked_for(as_engineer, project):
    import_battles(
        project.id, Battles(benchmark="arena", source=Source(format="arena", sha256="d" * 64), battles=battles())
    )
    assert "a worker is computing" in words(page(as_engineer, "win-rates", "?by=imported"))
    jobs.Job.objects.all().delete()
    assert "1 file of votes was imported before" in words(page(as_engineer, "win-rates", "?by=imported"))
    told = as_engineer.post("/p/editor/win-rates/imported/compute", follow=True)
    assert "A worker looks through the imported votes on 1 benchmark." in told.content.decode()
    assert jobs.Job.objects.get().kind == "evals.imported-standings"


def test_many_pairs_are_shown_page_by_page(as_owner, project):
    others = [f"m{n:02}" for n in range(55)]
    take(project, [Battle(problem="q", left="a", right=other, winner="tie", by="tests") for other in others])
    first = as_owner.get("/p/editor/win-rates?by=imported")
    assert len(first.context["pairs"]) == 50 and "Next" in first.content.decode()
    (href,) = re.findall(r'rel="next" href="([^"]+)"', first.content.decode())
    assert parse_qs(urlsplit(unescape(href)).query)["page"] == ["2"]
    assert len(as_owner.get("/p/editor/win-rates?by=imported&page=2").context["pairs"]) == 5
