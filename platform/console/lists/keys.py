"""Keys of the query bar that several lists share, for rows that are turns or lead to one."""

from django.db.models import Exists, OuterRef, Q, TextField
from django.db.models.functions import Cast

from console.query import Build, Field, Kind, Term
from feedback.models import Flag, Outcome, TurnPayload, UserSignal
from registry.services import parse_checkpoint_name
from rl_online.models import BatchSample

SOURCES = ("production", "import", "simulated", "eval", "judge", "playground")
OUTCOMES = (*Outcome.values, "unsettled")


def turn_fields(prefix: str = "", scope: str = "") -> tuple[Field, ...]:
    """About a turn that a row is (no prefix) or leads to (`turn__`)."""
    at = prefix

    def text(name: str, help: str, column: str = "") -> Field:
        return Field(name, column=f"{at}{column or name}", scope=scope, help=help)

    def number(name: str, help: str, column: str = "") -> Field:
        return Field(name, column=f"{at}{column or name}", kind=Kind.NUMBER, scope=scope, help=help)

    def fact(name: str, help: str, column: str) -> Field:
        return Field(name, column=f"{at}{column}", kind=Kind.BOOLEAN, scope=scope, help=help)

    return (
        Field("outcome", choices=OUTCOMES, scope=scope, build=_outcome(at), help="of the current label, or unsettled"),
        Field("checkpoint", scope=scope, build=_checkpoint(at), help="<policy>@<version>, <policy>@*, or a model"),
        text("model", "an external model"),
        text("policy", "name of the policy that answered"),
        number("version", "of the policy that answered"),
        Field("source", column=f"{at}source", choices=SOURCES, scope=scope, help="where the turn came from"),
        text("language", "as the product named it"),
        text("problem", "<benchmark>@<version>/<id>, or a beginning with *"),
        number("latency_ms", "whole answer"),
        number("ttft_ms", "first token"),
        number("input_tokens", "without cache reads"),
        number("output_tokens", "with reasoning"),
        Field("usage", kind=Kind.BOOLEAN, scope=scope, build=_usage(at), help="its input and output tokens are known"),
        text("finish", "why the answer ended", column="finish_reason"),
        text("error", "what went wrong, or has:error"),
        fact("shown", "a user saw it", "is_shown"),
        fact("excluded", "a reviewer took it out of training", "is_excluded"),
        fact("logprobs", "fit for a ratio loss", "has_logprobs"),
        number("reward", "set by a reviewer", column="reward_override"),
        Field(
            "flagged",
            choices=("open", "resolved", "any"),
            scope=scope,
            build=_flagged(at),
            help="by triage or a person",
        ),
        Field("rule", scope=scope, build=_rule(at), help="of a flag, for example tests_disagree"),
        Field("signal", scope=scope, build=_signal(at), help="kind of a signal it got, or has:signal"),
        Field("learned", kind=Kind.BOOLEAN, scope=scope, build=_learned(at), help="a batch was sealed with it"),
    )


def found_in_text(text: str) -> Q:
    """Turns whose prompt or completion holds the text; for rows that are turns."""
    payloads = TurnPayload.objects.filter(
        project_id=OuterRef("project_id"), turn_id=OuterRef("turn_id"), at=OuterRef("at")
    ).annotate(said=Cast("messages", TextField()))
    holds = Q(completion__icontains=text) | Q(prompt__icontains=text) | Q(said__icontains=text)
    return Q(Exists(payloads.filter(holds)))


def checkpoint_of(policy: str | None, version: int | None, model: str | None) -> str | None:
    """As it is written in a query."""
    return model if version is None else f"{policy}@{version}"


def _outcome(at: str) -> Build:
    def build(term: Term) -> Q:
        if term.is_presence:
            return Q(**{f"{at}settled_at__isnull": False})
        settled = [value for value in term.values if value != "unsettled"]
        found = Q(**{f"{at}outcome__in": settled}) if settled else Q()
        return found | Q(**{f"{at}settled_at__isnull": True}) if "unsettled" in term.values else found

    return build


def _checkpoint(at: str) -> Build:
    def build(term: Term) -> Q:
        if term.is_presence:
            return Q(**{f"{at}version__isnull": False})
        found = Q()
        for value in term.values:
            found |= _answered_by(at, value)
        for prefix in term.prefixes:
            name = prefix.partition("@")[0]
            found |= Q(**{f"{at}policy{'' if '@' in prefix else '__startswith'}": name, f"{at}version__isnull": False})
        return found

    return build


def _answered_by(at: str, name: str) -> Q:
    policy, sign, version = name.rpartition("@")
    if sign and version.isascii() and version.isdigit() and len(version) < 10:
        policy, number = parse_checkpoint_name(name)
        return Q(**{f"{at}policy": policy, f"{at}version": number})
    return Q(**{f"{at}model": name})


def _usage(at: str) -> Build:
    def build(term: Term) -> Q:
        is_told = Q(**{f"{at}input_tokens__isnull": False, f"{at}output_tokens__isnull": False})
        return ~is_told if term.values == ("no",) else is_told

    return build


def _flagged(at: str) -> Build:
    def build(term: Term) -> Q:
        flags = _flags(at)
        return Q(Exists(flags if term.is_presence or "any" in term.values else flags.filter(state__in=term.values)))

    return build


def _rule(at: str) -> Build:
    return lambda term: Q(Exists(_flags(at).filter(_named("rule", term))))


def _flags(at: str):  # type: ignore[no-untyped-def]
    return Flag.objects.filter(turn=OuterRef(f"{at}pk"))


def _signal(at: str) -> Build:
    def build(term: Term) -> Q:
        return Q(Exists(UserSignal.objects.filter(_named("kind", term), turn=OuterRef(f"{at}pk"))))

    return build


def _learned(at: str) -> Build:
    def build(term: Term) -> Q:
        learned = Q(Exists(BatchSample.objects.filter(turn_ref=OuterRef(f"{at}turn_id"), is_heldout=False)))
        return ~learned if term.values == ("no",) else learned

    return build


def _named(column: str, term: Term) -> Q:
    """The values and beginnings asked for; everything when only presence is."""
    found = Q(**{f"{column}__in": term.values}) if term.values else Q()
    for prefix in term.prefixes:
        found |= Q(**{f"{column}__startswith": prefix})
    return found
