"""Turns a person should look at."""

from dataclasses import dataclass

from django.core.paginator import Page, Paginator

from feedback.models import Flag, FlagState, TurnPayload
from registry.errors import NotFound

PAGE = 25


def num_open_flags() -> int:
    return Flag.objects.filter(state=FlagState.OPEN).count()


def num_ever() -> int:
    return Flag.objects.count()


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagRow:
    flag: Flag
    payload: TurnPayload | None

    @property
    def asked(self) -> str | None:
        """The last thing said before the completion."""
        if self.payload is None:
            return None
        if self.payload.prompt is not None:
            return self.payload.prompt
        messages = self.payload.messages or [{}]
        content = messages[-1].get("content") if isinstance(messages[-1], dict) else messages[-1]
        return content if isinstance(content, str) else None


def page_of_flags(state: str, rule: str, number: str | None) -> tuple[Page, list[FlagRow]]:
    """`state` is open, resolved or all. Open ones oldest first, so that nothing waits for ever."""
    flags = Flag.objects.select_related("turn__session", "turn__label")
    if state != "all":
        flags = flags.filter(state=state)
    if rule:
        flags = flags.filter(rule=rule)
    order = "created_at" if state == FlagState.OPEN else "-created_at"
    page = Paginator(flags.order_by(order, "id"), PAGE).get_page(number)
    return page, _rows(list(page))


def find_flag(flag_id: int) -> FlagRow:
    """Raises NotFound."""
    flag = Flag.objects.select_related("turn__session", "turn__label").filter(pk=flag_id).first()
    if flag is None:
        raise NotFound(f"no flag {flag_id}")
    return _rows([flag])[0]


def rules() -> list[str]:
    return list(Flag.objects.values_list("rule", flat=True).distinct().order_by("rule"))


def _rows(flags: list[Flag]) -> list[FlagRow]:
    if not flags:
        return []
    times = [flag.turn.at for flag in flags]
    payloads = TurnPayload.objects.filter(
        project_id=flags[0].project_id,
        turn_id__in=[flag.turn.turn_id for flag in flags],
        at__range=(min(times), max(times)),
    )
    by_turn = {payload.turn_id: payload for payload in payloads}
    return [FlagRow(flag=flag, payload=by_turn.get(flag.turn.turn_id)) for flag in flags]
