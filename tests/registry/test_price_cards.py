from datetime import UTC, datetime, timedelta
from decimal import Decimal as D

import pytest
from django.db import IntegrityError, connection, transaction

from registry.errors import Conflict, InvalidInput
from registry.list_prices import BEFORE_ALL, Dated, Listed
from registry.models import AuditEvent, PriceCard
from registry.price_cards import (
    OWN_HARDWARE,
    add_card,
    adopt,
    all_cards,
    card_at,
    parse_price,
    prices_of_card,
    rates_of,
)
from registry.pricing import PriceList, Prices, Variant
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield


def add(model="gpt-5", at=NOON, **prices):
    return add_card(model, valid_from=at, prices=prices or {"input_usd": D("1.25"), "output_usd": D(10)}, actor="ada")


def test_a_card_is_kept_with_who_added_it(inside):
    card = add()
    event = AuditEvent.objects.get(verb="add", object_kind="price card")
    assert (event.actor, event.after["model"], event.after["output_usd"]) == ("ada", "gpt-5", "10")
    assert rates_of(card).prices.base.input_usd == D("1.25") and rates_of(card).device_hour_usd is None


def test_a_price_from_a_later_date_leaves_what_was_before_as_it_was(inside):
    old, new = add(), add(at=NOON + timedelta(days=1), input_usd=D(2), output_usd=D(8))
    cards = all_cards()
    assert card_at(cards, "gpt-5", NOON + timedelta(hours=23, minutes=59)) == old
    assert card_at(cards, "gpt-5", NOON + timedelta(days=1)) == new
    assert card_at(cards, "gpt-5", NOON - timedelta(seconds=1)) is None


def test_a_model_without_a_card_is_unpriced(inside):
    add()
    assert card_at(all_cards(), "gpt-6", NOON) is None


def test_a_card_is_never_changed_not_even_by_sql(inside):
    card = add()
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        PriceCard.objects.filter(pk=card.pk).update(input_usd=D(0))
    with pytest.raises(Conflict, match="cards are never changed"):
        add(input_usd=D(1))


@pytest.mark.parametrize("price", [D(-1), D("-0.0000000001"), D("NaN"), D("Infinity"), D("1e-11"), D(10) ** 9])
def test_a_price_that_is_none_is_refused(inside, price):
    with pytest.raises(InvalidInput) as refused:
        add(input_usd=price)
    assert refused.value.field == "input_usd"


@pytest.mark.parametrize("price", ["-1", "NaN"])
def test_the_database_refuses_it_too(inside, project, price):
    with (
        pytest.raises(IntegrityError, match="prices_not_negative"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO registry_pricecard (project_id, model, valid_from, input_usd, created_at) "
            "VALUES (%s, 'm', %s, %s::numeric, now())",
            [project.id, NOON, price],
        )


def test_a_card_starts_on_a_whole_hour(inside):
    with pytest.raises(InvalidInput, match="whole one"):
        add(at=NOON + timedelta(minutes=30))


def test_a_card_without_a_price_says_nothing(inside):
    with pytest.raises(InvalidInput, match="unpriced needs no card"):
        add(input_usd=None)


def test_an_hour_of_own_hardware_has_a_dated_price_of_its_own(inside):
    card = add(OWN_HARDWARE, device_hour_usd=D("2.50"))
    assert rates_of(card).device_hour_usd == D("2.50") and all_cards()[0] == card


@pytest.mark.parametrize(("text", "price"), [("2.50", D("2.50")), (" 1e-9 ", D("1E-9")), ("0", D(0)), ("", None)])
def test_a_form_sends_prices_as_text_and_nothing_is_unknown(text, price):
    assert parse_price(text, field="input_usd") == price


@pytest.mark.parametrize("text", ["two", "1,5", "-1", "nan", "1e99"])
def test_what_is_no_price_is_refused_with_its_field(text):
    with pytest.raises(InvalidInput) as refused:
        parse_price(text, field="output_usd")
    assert refused.value.field == "output_usd"


def test_cards_of_another_project_are_not_seen(inside, other_project):
    add()
    with tenant(other_project.id):
        assert all_cards() == []


# --- Tiers and other rates ---

DEAR = Prices(input_usd=D(9), output_usd=D(9))


def test_the_narrower_of_two_tiers_holds_in_whatever_order_they_were_written(inside):
    tiers = [
        Variant(above=1_000, prices=DEAR),
        Variant(above=9_000, prices=DEAR),
        Variant(processing="batch", prices=DEAR),
    ]
    card = add_card("m", valid_from=NOON, prices={"input_usd": D(1)}, actor="ada", variants=tiers)
    assert [(one.processing, one.above) for one in prices_of_card(card).variants] == [
        ("batch", None), (None, 9_000), (None, 1_000),
    ]  # fmt: skip
    assert AuditEvent.objects.get(object_kind="price card").after["variants"][1]["above"] == 9_000


@pytest.mark.parametrize(
    ("variant", "field"),
    [
        (Variant(prices=DEAR), "when"),
        (Variant(above=0, prices=DEAR), "above"),
        (Variant(processing="slow", prices=DEAR), "processing"),
        (Variant(window=(60, 60), prices=DEAR), "window"),
        (Variant(window=(0, 1440), prices=DEAR), "window"),
        (Variant(above=9, prices=Prices(input_usd=D(1), output_usd=None)), "prices"),
        (Variant(above=9, prices=Prices(input_usd=D("1e-11"), output_usd=D(1))), "input_usd"),
    ],
)
def test_other_prices_that_say_nothing_or_cannot_be_are_refused(inside, variant, field):
    with pytest.raises(InvalidInput) as refused:
        add_card("m", valid_from=NOON, prices={"input_usd": D(1)}, actor="ada", variants=[variant])
    assert refused.value.field == field


# --- Copied from a list ---


def listed(price, *, source="list 1", later=None):
    dated = [Dated(valid_from=BEFORE_ALL, prices=PriceList(base=Prices(input_usd=D(price), output_usd=D(1))))]
    if later:
        at, price = later
        dated.append(Dated(valid_from=at, prices=PriceList(base=Prices(input_usd=D(price), output_usd=D(1)))))
    return Listed(name="openai/gpt-5", url="https://example.com", source=source, dated=tuple(dated))


def test_a_list_is_copied_once_with_its_dates_and_its_source(inside):
    found = listed(2, later=(NOON, 3))
    assert [card.valid_from for card in adopt("gpt-5", found, now=NOON)] == [BEFORE_ALL, NOON]
    assert adopt("gpt-5", found, now=NOON) == []
    card = card_at(all_cards(), "gpt-5", NOON - timedelta(days=1))
    assert (card.input_usd, card.source, card.listed_as, card.is_own) == (2, "list 1", "openai/gpt-5", False)


def test_a_newer_list_changes_no_number_of_the_past(inside):
    adopt("gpt-5", listed(2), now=NOON)
    adopt("gpt-5", listed(5, source="list 2", later=(NOON + timedelta(days=9), 6)), now=NOON + timedelta(minutes=20))
    cards = all_cards()
    prices = [
        card_at(cards, "gpt-5", NOON + after).input_usd
        for after in (-timedelta(hours=1), timedelta(), timedelta(days=9))
    ]
    assert prices == [2, 5, 6]


def test_from_its_first_own_card_on_a_model_costs_what_its_own_cards_say(inside):
    adopt("gpt-5", listed(2, later=(NOON + timedelta(days=1), 3)), now=NOON - timedelta(days=1))
    add(input_usd=D(7))
    cards = all_cards()
    assert [card_at(cards, "gpt-5", NOON + timedelta(hours=hours)).input_usd for hours in (-1, 0, 48)] == [2, 7, 7]
