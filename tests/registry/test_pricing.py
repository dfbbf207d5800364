from datetime import UTC, datetime
from decimal import Decimal as D

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.pricing import (
    InvalidUsage,
    PriceList,
    Prices,
    Spend,
    Usage,
    Variant,
    cost_of,
    cost_of_device,
    cost_of_request,
    spend_on_device,
    spend_on_tokens,
    total_cost,
    usage_from_openai,
)

GPT_5 = Prices(input_usd=D("1.25"), cache_read_usd=D("0.125"), output_usd=D(10))
SONNET = Prices(input_usd=D(3), cache_read_usd=D("0.3"), cache_write_usd=D("3.75"), output_usd=D(15))
GPT_4O = Prices(input_usd=D("2.5"), cache_read_usd=D("1.25"), output_usd=D(10))
GEMINI = PriceList(
    base=Prices(input_usd=D("1.25"), cache_read_usd=D("0.125"), output_usd=D(10)),
    variants=(Variant(above=200_000, prices=Prices(input_usd=D("2.5"), cache_read_usd=D("0.25"), output_usd=D(15))),),
)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("usage", "prices", "cost"),
    [
        (Usage(input=9126 - 4864, cache_read=4864, output=3197), GPT_5, "0.0379055"),
        (Usage(input=3, cache_write=12_304, output=550), SONNET, "0.054399"),
        (Usage(input=2006 - 1920, cache_read=1920, output=300), GPT_4O, "0.005615"),
        (Usage(input=6, cache_read=30_940, output=102), SONNET, "0.01083"),
    ],
)
def test_rows_11_and_12_published_bills_come_out_to_the_cent_and_below(usage, prices, cost):
    assert cost_of(usage, prices) == D(cost)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input=262_960 - 257_955, cache_read=257_955, output=1_744), "0.10316125"),  # a bill that was published
        (Usage(input=200_000, output=1_000), "0.260"),
        (Usage(input=200_001, output=1_000), "0.5150025"),  # one token over, and all of them cost more
    ],
)
def test_row_14_a_tier_is_a_cliff_to_the_cent_and_below(usage, cost):
    assert cost_of_request(usage, GEMINI, at=NOON) == D(cost)


def test_row_14_cache_writes_count_towards_a_tier():
    usage = Usage(input=150_000, cache_write=60_000)
    assert cost_of_request(usage, GEMINI, at=NOON) == 210_000 * D("2.5") / 1_000_000


def test_row_14_cached_tokens_without_a_price_cost_what_input_costs_in_the_tier():
    tier = Variant(above=200_000, prices=Prices(input_usd=D(2), output_usd=D(1)))
    prices = PriceList(base=Prices(input_usd=D(1), output_usd=D(1)), variants=(tier,))
    assert cost_of_request(Usage(cache_read=200_001), prices, at=NOON) == 200_001 * D(2) / 1_000_000


def test_row_14_a_tier_that_starts_at_its_edge_is_written_one_token_lower():
    edge = PriceList(base=GEMINI.base, variants=(Variant(above=199_999, prices=GEMINI.variants[0].prices),))
    assert cost_of_request(Usage(input=200_000), edge, at=NOON) == D("0.5")
    assert cost_of_request(Usage(input=199_999), edge, at=NOON) == 199_999 * D("1.25") / 1_000_000


def test_row_13_input_that_leaves_out_the_cache_is_added_to_it_and_never_negative():
    assert cost_of(Usage(input=10, cache_read=20), GPT_5) == (10 * D("1.25") + 20 * D("0.125")) / 1_000_000


@pytest.mark.parametrize(
    ("minute", "price"), [("00:29", 1), ("00:30", 2), ("16:29", 2), ("16:30", 1), ("23:30", 3), ("00:10", 3)]
)
def test_an_hour_of_the_day_has_its_own_price_also_past_midnight(minute, price):
    day = Variant(window=(30, 16 * 60 + 30), prices=Prices(input_usd=D(2), output_usd=D(2)))
    night = Variant(window=(23 * 60, 15), prices=Prices(input_usd=D(3), output_usd=D(3)))
    prices = PriceList(base=Prices(input_usd=D(1), output_usd=D(1)), variants=(day, night))
    at = datetime.fromisoformat(f"2026-11-01T{minute}+00:00")
    assert cost_of_request(Usage(input=1_000_000), prices, at=at) == price


def test_a_batch_costs_the_batch_price_and_the_standard_one_where_there_is_none():
    half = Variant(processing="batch", prices=Prices(input_usd=D(1), output_usd=D(1)))
    prices = PriceList(base=Prices(input_usd=D(2), output_usd=D(2)), variants=(half,))
    one = Usage(input=1_000_000)
    assert [cost_of_request(one, prices, at=NOON, processing=sent) for sent in ("batch", None, "flex")] == [1, 2, 2]


def test_a_variant_comes_back_from_json_as_it_was_without_a_float():
    variant = Variant(
        above=5, processing="flex", window=(0, 90), prices=Prices(input_usd=D("0.0000000001"), output_usd=D(3))
    )
    assert Variant.from_json(variant.to_json()) == variant
    assert variant.to_json()["input_usd"] == "1E-10"


def test_cached_tokens_are_not_paid_twice():
    usage = usage_from_openai(
        {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 80}}
    )
    assert usage == Usage(input=20, cache_read=80, output=10)
    assert cost_of(usage, GPT_5) == (20 * D("1.25") + 80 * D("0.125") + 10 * D(10)) / 1_000_000


def test_row_15_reasoning_is_part_of_the_output_and_costs_nothing_more():
    assert cost_of(Usage(output=136, reasoning=31), GPT_5) == cost_of(Usage(output=136), GPT_5) == D("0.00136")


def test_no_card_is_unpriced_and_not_free():
    assert cost_of(Usage(input=1), None) is None
    assert cost_of(None, GPT_5) is None


def test_a_missing_price_makes_the_cost_unknown_only_when_it_is_needed():
    no_output_price = Prices(input_usd=D(1), output_usd=None)
    assert cost_of(Usage(input=1, output=1), no_output_price) is None
    assert cost_of(Usage(input=1), no_output_price) == D("0.000001")


def test_a_missing_cache_price_is_the_input_price_and_an_explicit_0_is_free():
    assert cost_of(Usage(cache_read=1_000_000), Prices(input_usd=D(2), output_usd=D(1))) == 2
    assert cost_of(Usage(cache_read=1_000_000), Prices(input_usd=D(2), output_usd=D(1), cache_read_usd=D(0))) == 0


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}},
        {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 6}},
        {"prompt_tokens": "12"},
        {"prompt_tokens": True},
    ],
)
def test_impossible_counts_are_refused_and_not_clamped(usage):
    with pytest.raises(InvalidUsage):
        usage_from_openai(usage)


def test_nothing_told_is_unknown_usage():
    assert usage_from_openai(None) is None
    assert usage_from_openai({}) is None


def test_prices_are_finite_and_not_negative():
    for bad in (D(-1), D("NaN"), D("Infinity")):
        with pytest.raises(ValueError, match="a price of"):
            Prices(input_usd=bad, output_usd=None)


def test_a_device_hour_is_shared_out_by_the_second():
    assert cost_of_device(90, D(4)) == D("0.1")
    assert cost_of_device(90, None) is None


def test_totals_say_how_many_were_unpriced():
    assert total_cost({1: D("0.1"), 2: D("0.2"), 3: None}) == (D("0.3"), 1)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_many_tiny_costs_add_up_exactly(counts):
    price = Prices(input_usd=D("0.000000001"), output_usd=D(0))
    costs = {index: cost_of(Usage(input=count), price) for index, count in enumerate(counts)}
    assert total_cost(costs)[0] == D(sum(counts)) * D("0.000000001") / 1_000_000


def test_spend_adds_up_and_keeps_unpriced_calls_beside_the_sum():
    both = Spend(calls=2, cost_usd=D("0.3")) + Spend(calls=1, unpriced=1)
    assert both == Spend(calls=3, unpriced=1, cost_usd=D("0.3"))
    assert (both.known_cost_usd, both.per(2)) == (None, None)


def test_nothing_spent_is_known_to_cost_nothing():
    assert (Spend().known_cost_usd, Spend().per(0)) == (D(0), None)


def test_things_for_which_no_call_was_booked_have_an_unknown_cost():
    assert Spend().per(3) is None and Spend(calls=2, cost_usd=D(3)).per(3) == D(1)


def test_a_group_of_calls_costs_what_its_tokens_cost():
    spend = spend_on_tokens(Usage(input=3_000_000, output=1), GPT_5, calls=7, without_usage=2)
    assert spend == Spend(calls=7, unpriced=2, cost_usd=D("3.75001"))


def test_a_group_without_a_price_is_unpriced_as_a_whole():
    assert spend_on_tokens(Usage(input=1), None, calls=7) == Spend(calls=7, unpriced=7, unpriced_tokens=1)
    assert spend_on_device(D(90), None, calls=2, tokens=40).unpriced_tokens == 40
    assert spend_on_device(D(90), None, calls=2) == Spend(calls=2, unpriced=2)


def test_own_hardware_costs_its_seconds():
    assert spend_on_device(D(90), D(4), calls=2) == Spend(calls=2, cost_usd=D("0.1"))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=50))
def test_the_sum_of_tokens_costs_the_sum_of_the_costs(calls):
    each = [cost_of(Usage(input=a, output=b), GPT_5) for a, b in calls]
    together = spend_on_tokens(
        Usage(input=sum(a for a, _ in calls), output=sum(b for _, b in calls)), GPT_5, calls=len(calls)
    )
    assert together.cost_usd == sum(each, D(0))
