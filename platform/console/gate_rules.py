"""The form for what a checkpoint has to show before it serves: the plan's gate limits and live limits, in points."""

from collections.abc import Mapping
from typing import Any

from registry.errors import InvalidInput
from rl_online.models import LearningPlan
from rl_online.services.plans import gate_limits, live_limits

TITLES = {
    "gate_benchmark": "Benchmark",
    "margin": "Margin on problems",
    "superior_on": "Better on",
    "guards": "Guards on problems",
    "canary": "Canary share",
    "live_margin": "Margin on users",
    "min_users": "Users in each arm",
    "max_days": "Days",
    "live_guards": "Guards on users",
}


def rules(plan: LearningPlan) -> dict[str, Any]:
    """What holds now, as the form writes it."""
    gate, live = gate_limits(plan), live_limits(plan)
    return {
        "gate_benchmark": plan.gate_benchmark or "",
        "margin": _percent(gate.margin),
        "superior_on": ", ".join(gate.superior_on),
        "guards": "\n".join(f"{name}: {limit:g}" for name, limit in gate.guards.items()),
        "canary": _percent(gate.canary_share),
        "live_margin": _percent(live.margin),
        "min_users": f"{live.min_users}",
        "max_days": f"{live.max_days:g}",
        "live_guards": "\n".join(f"{guard.name}: {guard.at_most:g}" for guard in live.guards),
    }


def changes(plan: LearningPlan, sent: Mapping[str, str]) -> dict[str, Any]:
    """Fields of the plan; what the form does not name stays. Raises InvalidInput with the form's field."""
    on_users = _guards(sent, "live_guards")
    known = [guard.name for guard in live_limits(LearningPlan(live_limits={})).guards]
    return {
        "gate_benchmark": sent.get("gate_benchmark", "").strip() or None,
        "gate_limits": plan.gate_limits
        | {
            "margin": _number(sent, "margin") / 100,
            "superior_on": [name.strip() for name in sent.get("superior_on", "").split(",") if name.strip()],
            "guards": _guards(sent, "guards"),
            "canary_share": _number(sent, "canary") / 100,
        },
        "live_limits": plan.live_limits
        | {
            "margin": _number(sent, "live_margin") / 100,
            "min_users": int(_number(sent, "min_users")),
            "max_days": _number(sent, "max_days"),
            "guards": dict.fromkeys(known) | on_users,
        },
    }


def _number(sent: Mapping[str, str], name: str) -> float:
    text = sent.get(name, "").strip()
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{TITLES[name]}: found {text[:40]!r}; give a number", field=name) from None


def _guards(sent: Mapping[str, str], name: str) -> dict[str, float]:
    """One on each line: `latency: 0.25`."""
    found = {}
    for line in filter(None, map(str.strip, sent.get(name, "").splitlines())):
        guard, colon, limit = line.rpartition(":")
        try:
            found[guard.strip()] = float(limit)
        except ValueError:
            colon = ""
        if not colon:
            raise InvalidInput(f"{TITLES[name]}: found {line[:60]!r}; write a line like `latency: 0.25`", field=name)
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.6g}"
