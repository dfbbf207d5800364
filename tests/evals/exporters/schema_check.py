"""A checker for the part of JSON Schema draft 7 that every_eval_ever's schemas use.

The two `*.schema.json` files beside it are those of every-eval-ever 0.3.0 (MIT), unchanged.
"""

import json
import re
from pathlib import Path
from typing import Any

KNOWN = {
    "type", "required", "properties", "additionalProperties", "items", "enum", "const", "pattern", "oneOf", "allOf",
    "not", "if", "then", "else", "$ref", "$defs", "$schema", "version", "description", "title", "default", "examples",
    "format", "minimum", "maximum", "minItems",
}  # fmt: skip
TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def schema(name: str) -> dict[str, Any]:
    return json.loads((Path(__file__).parent / f"{name}.schema.json").read_text())


def faults(value: Any, root: dict[str, Any], at: dict[str, Any] | None = None, place: str = "$") -> list[str]:
    """What is wrong with a value; empty when it is valid."""
    rule = root if at is None else at
    assert not rule.keys() - KNOWN, f"the checker does not know {rule.keys() - KNOWN}"
    if "$ref" in rule:
        return faults(value, root, root["$defs"][rule["$ref"].rpartition("/")[2]], place)
    found: list[str] = []
    types = rule.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_of(value, name) for name in types):
        return [f"{place}: {value!r:.60} is not {' or '.join(types)}"]
    if "enum" in rule and value not in rule["enum"]:
        found.append(f"{place}: {value!r} is none of {rule['enum']}")
    if "const" in rule and value != rule["const"]:
        found.append(f"{place}: {value!r} is not {rule['const']}")
    if isinstance(value, int | float) and not rule.get("minimum", value) <= value <= rule.get("maximum", value):
        found.append(f"{place}: {value} is out of range")
    if isinstance(value, list) and len(value) < rule.get("minItems", 0):
        found.append(f"{place}: too few")
    if "pattern" in rule and isinstance(value, str) and not re.search(rule["pattern"], value):
        found.append(f"{place}: {value!r} does not match {rule['pattern']}")
    if isinstance(value, dict):
        found += [f"{place}: {name} is missing" for name in rule.get("required", []) if name not in value]
        properties, others = rule.get("properties", {}), rule.get("additionalProperties", True)
        for name, below in value.items():
            if name in properties:
                found += faults(below, root, properties[name], f"{place}.{name}")
            elif others is False:
                found.append(f"{place}: {name} is not allowed")
            elif isinstance(others, dict):
                found += faults(below, root, others, f"{place}.{name}")
    if isinstance(value, list) and "items" in rule:
        found += [fault for i, each in enumerate(value) for fault in faults(each, root, rule["items"], f"{place}[{i}]")]
    if "oneOf" in rule and sum(not faults(value, root, each, place) for each in rule["oneOf"]) != 1:
        found.append(f"{place}: {value!r:.60} is not exactly one of {len(rule['oneOf'])} kinds")
    for each in rule.get("allOf", []):
        found += faults(value, root, each, place)
    if "not" in rule and not faults(value, root, rule["not"], place):
        found.append(f"{place}: is what it must not be")
    if "if" in rule:
        branch = "else" if faults(value, root, rule["if"], place) else "then"
        found += faults(value, root, rule.get(branch, {}), place)
    return found


def is_of(value: Any, name: str) -> bool:
    if name in ("number", "integer"):
        kinds = int if name == "integer" else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])
