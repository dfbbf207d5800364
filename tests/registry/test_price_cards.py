from datetime import UTC, datetime, timedelta
from decimal import Decimal as D

import pytest
from django.db import IntegrityError, connection, transaction

from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, PriceCard
from registry.price_cards import OWN_HARDWARE, add_card, all_cards, card_at, parse_price, rates_of
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
    assert rates_of(card).prices.input_usd == D("1.25") and rates_of(card).device_hour_usd is None


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
