"""The form for what a checkpoint has to show before it serves: the plan's gate limits and live limits, in points."""

import json
import math
from collections.abc import Mapping
from typing import Any

from evals.judging.judge import Protocol
from evals.models import JudgeVersion
from evals.selectors import find_benchmark
from registry.errors import InvalidInput, NotFound
from rl_online.models import LearningPlan
from rl_online.services.plans import gate_limits, live_limits

TITLES = {
    "gate_benchmark": "Benchmark",
    "gate_suites": "Further benchmarks",
    "margin": "Margin on problems",
    "margins": "Margins of their own",
    "superior_on": "Better on",
    "guards": "Guards on problems",
    "max_forgetting": "Forgetting",
    "gate_judge": "Judge",
    "judged_pairs": "Pairs to judge",
    "judged": "Judge's vote",
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
        "gate_suites": "\n".join(map(_suite_line, plan.gate_suites)),
        "margin": _percent(gate.margin),
        "margins": "\n".join(f"{name}: {_percent(margin)}" for name, margin in gate.margins.items()),
        "superior_on": ", ".join(gate.superior_on),
        "guards": "\n".join(f"{name}: {limit:g}" for name, limit in gate.guards.items()),
        "max_forgetting": f"{gate.max_forgetting:g}",
        "gate_judge": "" if plan.gate_judge_id is None else f"{plan.gate_judge_id}",
        "judged_pairs": f"{plan.judged_pairs}",
        "judged": "" if gate.judged is None else _percent(gate.judged),
        "canary": _percent(gate.canary_share),
        "live_margin": _percent(live.margin),
        "min_users": f"{live.min_users}",
        "max_days": f"{live.max_days:g}",
        "live_guards": "\n".join(f"{guard.name}: {guard.at_most:g}" for guard in live.guards),
    }


def changes(plan: LearningPlan, sent: Mapping[str, str]) -> dict[str, Any]:
    """Fields of the plan; what the form does not name stays. Raises InvalidInput with the form's field."""
    on_users = _lines(sent, "live_guards", like="latency: 0.25")
    known = [guard.name for guard in live_limits(LearningPlan(live_limits={})).guards]
    return {
        "gate_benchmark": sent.get("gate_benchmark", "").strip() or None,
        "gate_suites": _suites(sent),
        "gate_judge_id": int(_number(sent, "gate_judge")) if sent.get("gate_judge", "").strip() else None,
        "judged_pairs": int(_number(sent, "judged_pairs")),
        "gate_limits": plan.gate_limits
        | {
            "margin": _number(sent, "margin") / 100,
            "margins": {name: value / 100 for name, value in _lines(sent, "margins", like="humaneval: 5").items()},
            "superior_on": [name.strip() for name in sent.get("superior_on", "").split(",") if name.strip()],
            "guards": _lines(sent, "guards", like="latency: 0.25"),
            "max_forgetting": _number(sent, "max_forgetting"),
            "judged": _number(sent, "judged") / 100 if sent.get("judged", "").strip() else None,
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
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"{TITLES[name]}: found {text[:40]!r}; give a number", field=name)
    return number


def _lines(sent: Mapping[str, str], name: str, *, like: str) -> dict[str, float]:
    """A name and its number on each line."""
    found = {}
    for line in filter(None, map(str.strip, sent.get(name, "").splitlines())):
        key, colon, number = line.rpartition(":")
        try:
            found[key.strip()] = float(number)
        except ValueError:
            colon = ""
        if not colon:
            raise InvalidInput(f"{TITLES[name]}: found {line[:60]!r}; write a line like `{like}`", field=name)
    return found


def _suites(sent: Mapping[str, str]) -> list[dict[str, Any]]:
    """One on each line: `humaneval@1`, or with its sampling `humaneval@1 {"max_tokens": 512}`."""
    found: list[dict[str, Any]] = []
    for line in filter(None, map(str.strip, sent.get("gate_suites", "").splitlines())):
        name, brace, rest = line.partition("{")
        suite: dict[str, Any] = {"benchmark": name.strip()}
        try:
            find_benchmark(name.strip())
            if brace:
                suite["sampling"] = json.loads(brace + rest)
        except (NotFound, InvalidInput) as error:
            raise InvalidInput(f"{TITLES['gate_suites']}: {error.message}", field="gate_suites") from None
        except ValueError:
            raise InvalidInput(f"{TITLES['gate_suites']}: {line[:80]!r} ends in no JSON", field="gate_suites") from None
        found.append(suite)
    return found


def _suite_line(suite: Mapping[str, Any]) -> str:
    sampling = suite.get("sampling")
    return suite["benchmark"] + (f" {json.dumps(sampling)}" if sampling else "")


def pairwise_judges() -> list[JudgeVersion]:
    """Those a plan may name, newest first."""
    return list(JudgeVersion.objects.filter(protocol=Protocol.PAIRWISE).order_by("-created_at", "-id")[:50])


def _percent(share: float) -> str:
    return f"{100 * share:.6g}"
