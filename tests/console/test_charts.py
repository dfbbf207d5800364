"""Figures: intervals always, the same colour for the same checkpoint, no zero for what is missing."""

from datetime import UTC, datetime, timedelta

from console import charts

START = datetime(2026, 11, 30, 6, tzinfo=UTC)


def estimate(version, value, **changed):
    facts = {"name": f"e@{version}", "version": version, "value": value, "low": 0.2, "high": 0.5, "n": 40}
    return charts.Estimate(**(facts | {"interval": "wilson", "is_serving": False} | changed))


def test_signals_are_drawn_per_minute_with_their_count_in_the_hover():
    figure = charts.rates([START], {"accept": [10]}, bucket_minutes=5)
    assert figure["data"][0]["y"] == [2] and figure["data"][0]["text"] == ["10 accept"]


def test_without_signals_there_is_no_figure():
    assert charts.rates([], {}, bucket_minutes=1) is None
    assert charts.rates([START], {"accept": [0]}, bucket_minutes=1) is None


def test_a_promotion_is_a_line_across_the_chart():
    times = [START, START + timedelta(minutes=1)]
    figure = charts.rates(times, {"a": [1, 1]}, bucket_minutes=1, marks=[charts.Mark(at=times[1], text="e@2")])
    assert len(figure["layout"]["shapes"]) == 1 and figure["layout"]["annotations"][0]["text"] == "e@2"


def test_every_share_has_whiskers_and_names_n():
    trace = charts.shares([estimate(1, 0.3)], title="share")["data"][0]
    assert trace["error_y"]["array"][0] == 20 and round(trace["error_y"]["arrayminus"][0]) == 10
    assert "n = 40" in trace["hovertemplate"] and "20.0 to 50.0" in trace["hovertemplate"]


def test_a_share_that_is_unknown_is_a_gap():
    assert charts.shares([estimate(1, None, n=0), estimate(2, 0.3)], title="share")["data"][0]["y"] == [None]


def test_the_serving_checkpoint_is_drawn_heavier_in_its_usual_colour():
    plain, serving = charts.shares([estimate(3, 0.3), estimate(9, 0.3, is_serving=True)], title="share")["data"]
    assert serving["error_y"]["thickness"] > plain["error_y"]["thickness"]
    assert plain["marker"]["color"] == serving["marker"]["color"] == charts.colour(3)


def test_a_stage_without_a_time_is_missing_not_zero():
    figure = charts.stages(["e@2", "e@3"], [{"train": 20.0}, {"train": 10.0, "prove": 5.0}])
    assert {trace["name"]: trace["x"] for trace in figure["data"]} == {"train": [20.0, 10.0], "prove": [None, 5.0]}


def test_a_step_without_the_number_is_a_gap_in_its_curve():
    assert charts.curve([1, 2], [0.5, None], name="kl", version=1)["data"][0]["y"] == [0.5, None]


def test_the_gates_differences_are_drawn_in_points_against_the_margin():
    figure = charts.differences([("seen", 0.02, -0.03, 0.07, 100)], margin=0.1)
    assert figure["data"][0]["x"] == [2] and figure["layout"]["shapes"][0]["x0"] == -10
    assert "n = 100 problems" in figure["data"][0]["hovertemplate"]
