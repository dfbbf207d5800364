"""Forest, matrix and Pareto figures: intervals named, n in every hover, what is unknown left open."""

from console.charts.colours import BAD_COLOUR, GOOD_COLOUR, OTHER_COLOUR
from console.charts.forest import ForestRow, forest
from console.charts.matrix import Cell, matrix
from console.charts.pareto import Priced, pareto


def row(name="all", value=0.1, low=0.05, high=0.15, **changed):
    facts = {"name": name, "value": value, "low": low, "high": high, "n": 40, "interval": "clustered t"}
    return ForestRow(**(facts | changed))


def points(figure):
    return [trace for trace in figure["data"] if trace["x"]]


def test_a_row_is_drawn_in_points_with_its_interval_and_its_kind():
    (trace,) = points(forest([row()], title="points"))
    assert trace["x"] == [10] and [round(trace["error_x"][key][0], 6) for key in ("array", "arrayminus")] == [5, 5]
    assert "95 % clustered t +5.0 to +15.0" in trace["hovertemplate"] and "n = 40 problems" in trace["hovertemplate"]


def test_a_row_is_coloured_only_when_its_whole_interval_lies_on_one_side():
    rows = [row(), row(low=-0.01), row(value=-0.1, low=-0.2, high=-0.05), row(low=None, high=None)]
    colours = [trace["marker"]["color"] for trace in points(forest(rows, title=""))]
    assert colours == [GOOD_COLOUR, OTHER_COLOUR, BAD_COLOUR, OTHER_COLOUR]


def test_a_row_without_an_interval_has_no_bar_and_says_too_few():
    (trace,) = points(forest([row(low=None, high=None)], title=""))
    assert not trace.get("error_x") and "no interval: too few" in trace["hovertemplate"]


def test_a_row_without_common_cases_says_so_and_draws_no_point():
    figure = forest([row(), row("half: seen", value=None, n=0)], title="")
    assert len(points(figure)) == 1
    assert "half: seen: nothing in common" in figure["layout"]["annotations"][0]["text"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["all  n 40", "half: seen  n 0"]


def test_nothing_known_is_no_forest():
    assert forest([row(value=None)], title="") is None and forest([], title="") is None


def test_a_minus_in_a_name_stays_and_in_a_number_is_a_minus_sign():
    (trace,) = points(forest([row("gpt-5", value=-0.1, low=-0.2, high=0.1)], title=""))
    assert "gpt-5" in trace["hovertemplate"] and "−10.0, 95 % clustered t −20.0 to +10.0" in trace["hovertemplate"]


def test_a_name_is_text_for_plotly_too():
    (trace,) = points(forest([row("<b>x</b>&<a href='//evil'>")], title=""))
    assert "&lt;b&gt;x&lt;/b&gt;&amp;" in trace["hovertemplate"] and "<a href" not in trace["hovertemplate"]


def test_many_rows_make_a_higher_figure():
    few, many = forest([row()] * 2, title=""), forest([row()] * 30, title="")
    assert many["layout"]["height"] > few["layout"]["height"] >= 120


def cell(rate=0.75, n=12, **changed):
    return Cell(**({"rate": rate, "low": 0.5, "high": 0.9, "n": n, "interval": "wilson"} | changed))


BASIS = "(wins + ties / 2) / decided, n = 12 decided, 0 of them ties"


def test_the_matrix_shows_rate_and_n_in_each_cell_and_its_interval_in_the_hover():
    figure = matrix(["b", "a"], {("b", "a"): cell(), ("a", "b"): cell(0.25)})
    heat = figure["data"][0]
    assert heat["z"] == [[None, 75], [25, None]]
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["75<br>n 12", "25<br>n 12"]
    assert heat["hovertext"][0][1] == f"<b>b</b> over a<br>75.0 %, 95 % wilson 50.0 to 90.0 %<br>{BASIS}"


def test_a_cell_with_too_few_is_a_gap_that_shows_its_n():
    figure = matrix(["b", "a"], {("b", "a"): cell(None, n=2), ("a", "b"): cell()})
    assert figure["data"][0]["z"] == [[None, None], [75, None]]
    assert figure["layout"]["annotations"][0]["text"] == "n 2"


def test_a_matrix_of_unknowns_is_no_figure():
    assert matrix(["b", "a"], {("b", "a"): cell(None, n=2)}) is None and matrix([], {}) is None


def priced(name="editor@2", cost=0.01, quality=0.6, **changed):
    facts = {
        "name": name, "version": 2, "cost": cost, "cost_low": cost / 2, "cost_high": cost * 2, "quality": quality,
        "quality_low": quality - 0.1, "quality_high": quality + 0.1, "n": 40, "interval": "wilson_clustered",
        "cost_interval": "log clustered t",
    }  # fmt: skip
    return Priced(**(facts | changed))


def test_the_frontier_joins_what_nothing_beats_and_the_rest_is_hollow():
    sides = [priced("cheap", 0.01, 0.4), priced("good", 0.1, 0.9), priced("dear", 0.2, 0.8)]
    figure = pareto(sides, cost_title="", quality_title="")
    line, *traces = figure["data"]
    assert (line["x"], line["y"]) == ([0.01, 0.1], [40, 90])
    assert [trace["marker"]["symbol"] for trace in traces] == ["circle", "circle", "circle-open"]
    assert figure["layout"]["xaxis"]["type"] == "log"


def test_both_directions_have_error_bars_and_the_hover_names_n_and_the_kind_of_each_interval():
    trace = pareto([priced()], cost_title="", quality_title="")["data"][1]
    assert trace["error_x"]["array"] == [0.01] and round(trace["error_y"]["array"][0], 6) == 10
    assert (
        "n = 40 problems" in trace["hovertemplate"]
        and "$0.01 a problem, 95 % log clustered t $0.005 to $0.02" in trace["hovertemplate"]
        and "95 % wilson_clustered 50.0" in trace["hovertemplate"]
    )


def test_a_single_problem_has_no_bar_of_cost():
    trace = pareto([priced(cost_low=None, cost_high=None)], cost_title="", quality_title="")["data"][1]
    assert trace.get("error_x") is None


def test_nothing_priced_is_no_figure():
    assert pareto([], cost_title="", quality_title="") is None
