"""What the list of genai-prices makes of requests: the published bills, and the package's own reckoning."""

import random
from datetime import UTC, datetime
from decimal import Decimal as D

import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import Usage as TheirUsage

from registry.list_prices import BEFORE_ALL, CONTEXTS, REFERENCES, listed
from registry.pricing import Usage, cost_of_request

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("gpt-5", Usage(input=9_126 - 4_864, cache_read=4_864, output=3_197), "0.0379055"),
        ("claude-3-7-sonnet-20250219", Usage(input=3, cache_write=12_304, output=550), "0.054399"),
        ("gemini-2.5-pro", Usage(input=262_960 - 257_955, cache_read=257_955, output=1_744), "0.10316125"),
        ("gemini-2.5-pro", Usage(input=200_000, output=1_000), "0.260"),
        ("gemini-2.5-pro", Usage(input=200_001, output=1_000), "0.5150025"),
        ("openai/gpt-4o", Usage(input=2_006 - 1_920, cache_read=1_920, output=300), "0.005615"),
        ("claude-sonnet-4-20250514", Usage(input=30_946 - 30_940, cache_read=30_940, output=102), "0.01083"),
    ],
)
def test_published_bills_come_out_of_the_list_to_the_cent_and_below(model, usage, cost):
    assert cost_of_request(usage, listed(model).at(NOW), at=NOW) == D(cost)


def test_the_list_and_the_package_say_the_same_of_any_request():
    """The package reckons with its own tiers, dates, hours and ways of sending; we with the cards made of them."""
    chance, compared = random.Random(4), 0
    providers = [
        one for one in get_snapshot().providers if one.id in ("openai", "google", "deepseek", "x-ai", "cursor")
    ]
    for provider in providers:
        for info in chance.sample(provider.models, min(12, len(provider.models))):
            found = listed(f"{provider.id}/{info.id}")
            if found is None or found.name != f"{provider.id}/{info.id}":
                continue
            for _ in range(6):
                at = datetime(2026, chance.randint(9, 11), chance.randint(1, 28), chance.randint(0, 23), 45, tzinfo=UTC)
                fresh, read, output = (chance.choice([0, chance.randint(1, 300_000)]) for _ in range(3))
                sent = chance.choice([None, *CONTEXTS])
                theirs = info.calc_price(
                    TheirUsage(input_tokens=fresh + read, cache_read_tokens=read, output_tokens=output),
                    provider, genai_request_timestamp=at, price_context=dict([CONTEXTS[sent]]) if sent else None,
                )  # fmt: skip
                usage = Usage(input=fresh, cache_read=read, output=output)
                assert cost_of_request(usage, found.at(at), at=at, processing=sent) == theirs.total_price
                compared += 1
    assert compared > 150


def test_a_price_that_fell_has_both_dates():
    first, fell = listed("o3").dated[:2]
    assert (first.valid_from, first.prices.base.input_usd) == (BEFORE_ALL, D(10))
    assert (fell.valid_from, fell.prices.base.input_usd) == (datetime(2025, 6, 10, tzinfo=UTC), D(2))


def test_the_models_shown_for_comparison_are_in_the_list():
    prices = {model: listed(model).at(NOW).base for model in REFERENCES}
    assert (prices["composer-2.5"].input_usd, prices["composer-2.5"].output_usd) == (D("0.5"), D("2.5"))
    assert (prices["composer-2.5-fast"].input_usd, prices["composer-2.5-fast"].output_usd) == (D(3), D(15))
    assert all(one.input_usd and one.output_usd for one in prices.values())


@pytest.mark.parametrize("model", ["gpt-99-preview", "editor", "my-claude-finetune", "a/b/c", "", "llama-3.3-70b"])
def test_what_the_list_does_not_know_is_unknown_and_not_guessed(model):
    assert listed(model) is None


def test_a_model_with_a_fee_for_each_request_is_not_priced_by_its_tokens_alone():
    assert listed("perplexity/sonar-pro") is None
