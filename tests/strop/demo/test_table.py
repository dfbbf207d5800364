from strop.demo.table import Row, render


def row(**changes):
    facts = {
        "checkpoint": "editor@2", "turns": 400, "accepted": 100, "share": 0.25, "low": 0.21, "high": 0.295,
        "held_out": 0.41, "lag": 0.25, "seconds": 61.4, "decision": "promote", "is_serving": True,
    }  # fmt: skip
    return Row(**(facts | changes))


def test_a_row_shows_share_with_its_interval_and_marks_the_serving_checkpoint():
    line = render([row()]).splitlines()[1]
    assert line.split() == ["editor@2", "*", "400", "25.0%", "[21.0%,", "29.5%]", "41.0%", "0.25", "61", "promote"]


def test_what_is_not_known_is_a_dash_and_not_a_zero():
    unknown = row(
        turns=0, accepted=0, share=None, low=None, high=None, held_out=None, lag=None, seconds=None,
        decision="held", is_serving=False,
    )  # fmt: skip
    assert render([unknown]).splitlines()[1].split() == ["editor@2", "0", "-", "-", "-", "-", "held"]


def test_columns_line_up():
    lines = render([row(), row(checkpoint="editor@12", is_serving=False)]).splitlines()
    assert len({line.index("400") for line in lines[1:]} | {lines[0].index("turns")}) == 1
