"""The form that starts an update: which settings and options it shows for a kind, and what was typed.

Not here: what a value may be (`UpdateConfig`, `Option`), and what the update would take (`services.updates`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.reads import updates as reads
from registry.errors import InvalidInput
from rl_online.collecting import KTO, RL
from rl_online.rewards.update_config import CHOICES, UpdateConfig
from rl_online.services.stages.stage import Stage
from rl_online.services.stages.table import STAGES

ONLINE_SETTINGS = {  # by loss, in the order of the form
    RL: (
        "learning_rate", "epochs", "minibatch_size", "policy_loss", "correction", "advantage", "loss_norm",
        "max_response_tokens", "mask_high", "mask_low", "behaviour_pull", "base_kl", "max_lag",
    ),
    KTO: (
        "learning_rate", "epochs", "minibatch_size", "pref_loss", "kto_beta", "kto_desirable", "kto_undesirable",
        "max_lag",
    ),
}  # fmt: skip
ALWAYS_SHOWN = (
    "schedule", "warmup_steps", "heldout_samples", "micro_batch_tokens", "packing", "gradient_checkpointing"
)  # fmt: skip
YES_NO = (("true", "yes"), ("false", "no"))


@dataclass(frozen=True, kw_only=True, slots=True)
class FormField:
    """One input, or a select where there are choices."""

    name: str
    value: str  # as typed, else as it is
    default: str
    choices: tuple[tuple[str, str], ...] = ()  # value, words
    is_number: bool = True
    is_changed: bool = False
    is_wrong: bool = False
    plan: str = ""  # of a setting: what the learning plan says
    help: str = ""  # of an option


def settings_shown(kind: str) -> tuple[str, ...]:
    """Names of the settings that the form lets change: of a loss of online learning, or of a stage."""
    own = STAGES[kind].settings if kind in STAGES else ONLINE_SETTINGS[kind]
    return tuple(dict.fromkeys((*own, *ALWAYS_SHOWN)))


def setting_fields(
    kind: str, config: UpdateConfig, plan: Mapping[str, Any], typed: Mapping[str, str], wrong: str | None
) -> list[FormField]:
    """`plan` holds the overrides of the learning plan, `wrong` is the name of the one that was refused."""
    defaults = UpdateConfig().to_json()
    now, planned = config.to_json(), defaults | dict(plan)
    return [
        FormField(
            name=name,
            value=typed.get(f"set-{name}", _typed(now[name])),
            default=_typed(defaults[name]),
            choices=_choices(defaults[name], CHOICES.get(name, ())),
            is_number=not isinstance(defaults[name], bool | str),
            is_changed=now[name] != planned[name],
            is_wrong=name == wrong,
            plan=_typed(planned[name]),
        )
        for name in settings_shown(kind)
    ]


def option_fields(
    stage: Stage, values: Mapping[str, Any], typed: Mapping[str, str], wrong: str | None
) -> list[FormField]:
    return [
        FormField(
            name=one.name,
            value=typed.get(f"opt-{one.name}", _typed(values.get(one.name, one.default))),
            default=_typed(one.default),
            choices=_choices(one.default, one.choices),
            is_number=one.type in ("int", "float"),
            is_wrong=one.name == wrong,
            help=one.help,
        )
        for one in stage.options
    ]


def sent_settings(kind: str, sent: Mapping[str, str]) -> dict[str, Any]:
    """Raises InvalidInput for what is no number; `UpdateConfig` checks more."""
    defaults = UpdateConfig().to_json()
    found = {name: sent[f"set-{name}"].strip() for name in settings_shown(kind) if f"set-{name}" in sent}
    return {name: _read(name, text, defaults[name]) for name, text in found.items()}


def sent_options(stage: Stage, sent: Mapping[str, str]) -> dict[str, str]:
    """As text; the stage reads and checks them."""
    return {one.name: sent[f"opt-{one.name}"] for one in stage.options if f"opt-{one.name}" in sent}


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(default, str):
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput(f"{name} is {text[:40]!r}; give a number", field=name) from error


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else reads.written(value)


def _choices(default: Any, known: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return YES_NO if isinstance(default, bool) else tuple((name, name.replace("_", " ")) for name in known)
