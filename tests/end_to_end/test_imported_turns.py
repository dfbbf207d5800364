"""Real users' turns from outside: imported, reported, and learnt from by the one loss that may take them."""

import pytest

from rl_online.policy.tiny import build_tiny_policy
from tests.live import live

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

SETUP = """
from pathlib import Path
from registry.services import all_projects
from rl_online.services.plans import start_policy

start_policy(all_projects()[0].id, name="editor", folder=Path(r"{folder}"), min_turns=16, every_turns=48, max_turns=48)
"""


def test_imported_turns_are_counted_once_and_feed_kto_never_a_ratio_loss(tmp_path, data):
    folder = data("realhumaneval")
    with live(tmp_path / "home") as strop:
        tiny = build_tiny_policy(tmp_path / "tiny", ["the", "def", "return", "if", "="], context=8192)
        strop.run_python(SETUP.format(folder=tiny))
        first = strop.strop("import", "realhumaneval", str(folder))
        again = strop.strop("import", "realhumaneval", str(folder))
        assert first["outcomes"]["accepted"] == again["outcomes"]["duplicate"]

        report = strop.strop("report", "accept-share", "--by", "model", "--source", "import")
        assert {group["key"]: (group["accepted"], group["turns"]) for group in report["groups"]} == {
            "GPT-3.5 (chat)": (112, 305),
            "GPT-4o (chat)": (105, 280),
            "CodeLlama34b (chat)": (64, 227),
            "CodeLlama7b (chat)": (81, 243),
        }

        run = strop.strop("update", "--policy", "editor", "--wait")
        assert run["state"] == "held", run  # nothing to prove it on: a person may promote it, with a reason
        ((kind, samples),) = strop.rows("SELECT kind, num_samples FROM rl_online_rewardbatch")
        assert kind == "kto"
        assert samples >= 16
        (values,) = strop.rows("SELECT values FROM rl_online_updatemetric ORDER BY step LIMIT 1")[0]
        assert "loss_pref" in values
        assert "loss_rl" not in values
