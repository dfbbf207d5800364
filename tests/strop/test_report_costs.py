from datetime import timedelta

import pytest
from django.utils import timezone

from registry.tenancy import tenant
from tests.console import evaluate, factories
from tests.strop.test_commands import strop, strop_json

pytestmark = pytest.mark.django_db


def test_costs_are_reported_exactly_and_what_has_no_price_is_no_0(project):
    with tenant(project.id):
        evaluate.make_card("gpt-5", input_usd="0.1", output_usd="0")
        for model in ("gpt-5", "gpt-99-preview"):
            at = timezone.now() - timedelta(minutes=5)
            factories.make_turn("s", version=None, model=model, input_tokens=3, output_tokens=0, at=at)
        evaluate.count_hours()
    found = strop_json("report", "costs", "--days", "2")
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["gpt-5"]["usd"], rows["gpt-5"]["purpose"]) == ("0.0000003", "inference")
    assert (rows["gpt-99-preview"]["usd"], rows["gpt-99-preview"]["unpriced_tokens"]) == (None, 3)
    assert (found["total"]["usd"], found["total"]["unpriced_calls"], found["idle"]) == ("0.0000003", 1, None)
    assert "gpt-99-preview" in strop("report", "costs").output
