"""Figures: intervals always, the same colour for the same checkpoint, no zero for what is missing."""

from datetime import UTC, datetime, timedelta

import pytest

from console import plots
from console.charts.power import MOST_CURVES, NUM_POINTS, PowerCurve, power

START = datetime(2026, 11, 30, 6, tzinfo=UTC)


def estimate(version, value, **changed):
    facts = {"name": f"e@{version}", "version": version, "value": value, "low": 0.2, "high": 0.5, "n": 40}
    return plots.Estimate(**(facts | {"interval": "wilson", "is_serving": False} | changed))


def test_signals_are_drawn_per_minute_with_their_count_in_the_hover():
    figure = plots.rates([START], {"accept": [10]}, bucket_minutes=5)
    assert figure["data"][0]["y"] == [2] and figure["data"][0]["text"] == ["10 accept"]


def test_without_signals_there_is_no_figure():
    assert plots.rates([], {}, bucket_minutes=1) is None
    assert plots.rates([START], {"accept": [0]}, bucket_minutes=1) is None


def test_a_promotion_is_a_line_across_the_chart():
    times = [START, START + timedelta(minutes=1)]
    figure = plots.rates(times, {"a": [1, 1]}, bucket_minutes=1, marks=[plots.Mark(at=times[1], text="e@2")])
    assert len(figure["layout"]["shapes"]) == 1 and figure["layout"]["annotations"][0]["text"] == "e@2"


def test_every_share_has_whiskers_and_names_n():
    trace = plots.shares([estimate(1, 0.3)], title="share")["data"][0]
    assert trace["error_y"]["array"][0] == 20 and round(trace["error_y"]["arrayminus"][0]) == 10
    assert "n = 40" in trace["hovertemplate"] and "20.0 to 50.0" in trace["hovertemplate"]


def test_a_share_that_is_unknown_is_a_gap():
    assert plots.shares([estimate(1, None, n=0), estimate(2, 0.3)], title="share")["data"][0]["y"] == [None]


def test_the_serving_checkpoint_is_drawn_heavier_in_its_usual_colour():
    plain, serving = plots.shares([estimate(3, 0.3), estimate(9, 0.3, is_serving=True)], title="share")["data"]
    assert serving["error_y"]["thickness"] > plain["error_y"]["thickness"]
    assert plain["marker"]["color"] == serving["marker"]["color"] == plots.colour(3)


def test_a_stage_without_a_time_is_missing_not_zero():
    figure = plots.stages(["e@2", "e@3"], [{"train": 20.0}, {"train": 10.0, "prove": 5.0}])
    assert {trace["name"]: trace["x"] for trace in figure["data"]} == {"train": [20.0, 10.0], "prove": [None, 5.0]}


def test_a_step_without_the_number_is_a_gap_in_its_curve():
    assert plots.curve([1, 2], [0.5, None], name="kl", version=1)["data"][0]["y"] == [0.5, None]


def test_the_gates_differences_are_drawn_in_points_against_the_margin():
    figure = plots.differences([("seen", 0.02, -0.03, 0.07, 100, 0.1)])
    assert figure["data"][0]["x"] == [2] and figure["layout"]["shapes"][0]["x0"] == -10
    assert "n = 100 problems" in figure["data"][0]["hovertemplate"]


def share_point(hour: int, n: int, *, value: float = 0.4) -> plots.Point:
    at = START.replace(hour=hour, minute=0)
    return plots.Point(at=at, value=value, low=0.3, high=0.5, n=n, interval="wilson", url=f"/turns?{hour}")


def over_time(*points: plots.Point) -> dict:
    line = plots.Line(name="e@2", version=2, is_serving=True, points=points)
    return plots.shares_over_time([line], [START.replace(hour=hour, minute=0) for hour in range(6)], title="share")


def test_an_hour_without_settled_turns_is_a_gap_in_line_and_band():
    band, line = over_time(share_point(0, 20), share_point(1, 20), share_point(4, 20))["data"]
    assert line["y"] == [40, 40, None, None, 40, None] and len(band["x"]) == 4
    assert line["error_y"]["array"] == [0, 0, 0, 0, pytest.approx(10), 0]  # alone: whiskers instead of a band


def test_too_few_turns_are_hollow_and_outside_the_line():
    line, few = over_time(share_point(0, 20), share_point(1, 9))["data"]
    assert line["y"][1] is None and few["marker"]["symbol"] == "circle-open" and "too few to say" in few["text"][0]


def test_every_point_over_time_leads_to_its_rows_and_says_its_interval_and_n():
    line = over_time(share_point(0, 20))["data"][0]
    assert line["customdata"][0] == {"url": "/turns?0"}
    assert line["text"][0] == "<b>e@2</b><br>40.0 %, 95 % wilson 30.0 to 50.0 %<br>n = 20 settled turns"


def test_without_points_nothing_is_drawn_over_time():
    assert over_time() is None


def test_power_is_drawn_to_beyond_what_each_suite_can_see_and_marks_it():
    # 80 tasks, sd .2927: 2.8016 * .2927 / sqrt(80) = 9.17 points; 4 times the problems see half of it
    figure = power([PowerCurve(name="tb@1", sd=0.2927, n=80), PowerCurve(name="big@1", sd=0.2927, n=320)])
    line, diamond, second, _ = figure["data"]
    assert diamond["x"][0] == pytest.approx(9.17, abs=0.01) and diamond["y"] == [80]
    assert line["x"][-1] == pytest.approx(1.6 * diamond["x"][0]) and line["y"][0] == pytest.approx(5.0)
    assert line["y"] == sorted(line["y"]) and len(line["x"]) == NUM_POINTS
    assert all(high > low for high, low in zip(second["y"][1:], line["y"][1:], strict=True))
    assert (line["name"], figure["layout"]["showlegend"]) == ("tb@1, n 80", True)


def test_without_a_suite_that_varied_there_is_no_power_to_draw_and_never_more_curves_than_a_plan_has_suites():
    assert power([]) is None
    many = [PowerCurve(name=f"s@{number}", sd=0.5, n=100) for number in range(100)]
    assert len(power(many)["data"]) == 2 * MOST_CURVES
