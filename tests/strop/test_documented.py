"""What an operator can set, ask or meet stands in docs/operations.md."""

import re
from pathlib import Path

from prometheus_client import REGISTRY

from strop import health

CHECKOUT = Path(__file__).resolve().parents[2]
OPERATIONS = (CHECKOUT / "docs" / "operations.md").read_text()
ROOMS = ("platform", "feedback", "evals", "rl_online")
READERS = re.compile(r"""(?:env(?:\.\w+)?|environ(?:\.get)?|getenv)[(\[]\s*"([A-Z][A-Z0-9_]{3,})\"""")
NOT_OURS = {"DJANGO_SETTINGS_MODULE", "REMAP_SIGTERM", "NO_COLOR", "HF_HUB_OFFLINE", "TERM", "HOME", "PATH",
            "LOCAL_RANK"}  # fmt: skip
INSIDE = {"CRASH_AT", "CRASH_LOG", "STROP_KEY"}  # kill points of tests; the key in snippets for a product's own code


def settings_read() -> set[str]:
    sources = [path.read_text() for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")]
    return {name for source in sources for name in READERS.findall(source)} - NOT_OURS - INSIDE


def test_the_search_for_settings_finds_some():
    assert {"STROP_HOME", "DATABASE_URL", "STROP_DEVICE"} <= settings_read()


def test_every_setting_is_documented():
    assert sorted(name for name in settings_read() if f"`{name}" not in OPERATIONS) == []


def test_every_probe_is_documented():
    assert [route for route in health.urlpatterns if f"`/{route.pattern}`" not in OPERATIONS] == []


def test_every_metric_is_documented(db):
    names = {metric.name for metric in REGISTRY.collect() if metric.name.startswith("strop_")}
    assert "strop_jobs" in names
    assert [name for name in names if f"`{name}" not in OPERATIONS] == []


def test_every_system_check_is_documented():
    code = (CHECKOUT / "platform" / "strop" / "checks.py").read_text()
    numbers = {int(number) for number in re.findall(r"(?:^\s+\(?|\berror\()(\d{1,3}),", code, re.MULTILINE)}
    assert {1, 8, 20} <= numbers
    assert [number for number in numbers if f"E{number:03}" not in OPERATIONS] == []
