"""Price cards: what a model's tokens, or an hour of our own hardware, cost from a date on."""

from collections.abc import Mapping
from datetime import UTC, datetime

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, member_required
from console.reads import prices as reads
from registry.errors import InvalidInput, StropError
from registry.models import PriceCard, Role
from registry.price_cards import OWN_HARDWARE, add_card, all_cards, parse_price
from registry.pricing import PROCESSINGS, TOKEN_PRICES, Prices, Variant

FIELDS = (*TOKEN_PRICES, "device_hour_usd")
VARIANT_FIELDS = ("above", "processing", "from", "to", *TOKEN_PRICES)
VARIANTS = range(1, 4)  # rows of the form


@require_safe
@member_required()
def prices(request: MemberRequest) -> HttpResponse:
    return _page(request)


@require_POST
@member_required(Role.ENGINEER)
def add(request: MemberRequest) -> HttpResponse:
    """A card that is refused is shown again with what was wrong."""
    try:
        with transaction.atomic():
            card = _add(request)
    except StropError as error:
        return _page(request, error)
    messages.success(request, f"{card.model} has a price from {card.valid_from:%Y-%m-%d %H:%M} UTC on.")
    return redirect("console:prices", request.member.project.slug)


def _add(request: MemberRequest) -> PriceCard:
    sent = request.POST
    is_own = sent.get("kind") == "hardware"
    names = ("device_hour_usd",) if is_own else TOKEN_PRICES
    return add_card(
        OWN_HARDWARE if is_own else sent.get("model", ""),
        valid_from=_hour(sent.get("date", ""), sent.get("hour", "0")),
        prices={name: parse_price(sent.get(name, ""), field=name) for name in names},
        variants=() if is_own else [one for place in VARIANTS if (one := _variant(sent, place))],
        actor=request.user.get_username(),
    )


def _variant(sent: Mapping[str, str], place: int) -> Variant | None:
    """One row of other prices; None where it is empty. Raises InvalidInput."""
    told = {name: sent.get(f"{name}-{place}", "").strip() for name in VARIANT_FIELDS}
    if not any(told.values()):
        return None
    if told["above"] and not (told["above"].isascii() and told["above"].isdigit() and len(told["above"]) < 10):
        raise InvalidInput(f"found {told['above'][:20]!r}; write a number of tokens", field="above")
    if bool(told["from"]) != bool(told["to"]):
        raise InvalidInput("a window has a start and an end", field="window")
    return Variant(
        prices=Prices(**{name: parse_price(told[name], field=name) for name in TOKEN_PRICES}),
        above=int(told["above"]) if told["above"] else None,
        processing=told["processing"] or None,
        window=(_minute(told["from"]), _minute(told["to"])) if told["from"] else None,
    )


def _minute(text: str) -> int:
    try:
        moment = datetime.strptime(text, "%H:%M")
    except ValueError:
        raise InvalidInput(f"found {text[:10]!r}; write a time of the day, e.g. 16:30", field="window") from None
    return 60 * moment.hour + moment.minute


def _hour(date: str, hour: str) -> datetime:
    try:
        day = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC)
        return day.replace(hour=int(hour))
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"found {date[:20]!r} and hour {hour[:5]!r}; write a date and an hour", field="date"
        ) from None


def _page(request: MemberRequest, error: StropError | None = None) -> HttpResponse:
    cards = all_cards()
    dated = reads.dated(cards)
    return render(
        request,
        "costs/prices.html",
        {
            "cards": dated,
            "present": [one for one in dated if one.state in ("now", "to come")],
            "over": [one for one in dated if one.state not in ("now", "to come")],
            "unpriced": reads.unpriced_models(cards),
            "own": OWN_HARDWARE,
            "has_own": any(card.model == OWN_HARDWARE for card in cards),
            "sent": {name: request.POST.get(name, "") for name in (*FIELDS, "model", "date", "hour", "kind")}
            | ({} if request.method == "POST" else {"model": request.GET.get("model", "")}),
            "today": f"{timezone.now():%Y-%m-%d}",
            "hours": range(24),
            "processings": PROCESSINGS,
            "variant_rows": [
                {"place": place, **{name: request.POST.get(f"{name}-{place}", "") for name in VARIANT_FIELDS}}
                for place in VARIANTS
            ],
            "problem": error,
        },
        status=error.status if error else 200,
    )
