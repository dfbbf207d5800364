"""Training by hand in Chromium: trigger, follow live, cancel, trigger again, gate, promote, roll back.

The walk runs against `strop up` with every process real, the updater and engine on a tiny policy; the pages of training
are then seen with made-up rows, in both themes and on a phone.
"""

import json
import re
from datetime import UTC, datetime

import httpx
import pytest

from registry.models import Checkpoint
from registry.tenancy import tenant
from tests.browser.conftest import Visit
from tests.browser.looks import faults_of
from tests.console import factories
from tests.console.trials import make_trial
from tests.live import LiveStrop, live, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

SETUP = """
import json
from pathlib import Path
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from registry.services import all_projects, create_key
from registry.tenancy import tenant
from rl_online.policy.tiny import build_tiny_policy
from rl_online.services.plans import start_policy

project = all_projects()[0]
folder = build_tiny_policy(Path(r"{root}") / "tiny", ["def", "return", "f(x):", "x", "+", "1", "2"], context=128)
problems = [
    ProblemSpec(id=f"p/{{n}}", prompt=f"def f(x): return x + {{n}} *",
                tests={{"function": "f", "cases": [{{"args": [1], "expected": n}}]}}, slices={{"half": "all"}})
    for n in range(40)
]
create_benchmark(project.id, "gate", problems, version=1)
create_benchmark(project.id, "code", problems, version=1)
with tenant(project.id):
    key, _ = create_key("users", ["ingest", "infer"], actor="test")
start_policy(project.id, name="editor", folder=folder, min_turns=8, every_turns=100000, max_turns=100000,
             gate_benchmark="gate@1", judged_pairs=0, promotion="by_person", gate_limits={{"min_pairs": 10}},
             gate_sampling={{"max_tokens": 4, "temperature": 0}},
             gate_suites=[{{"benchmark": "code@1", "sampling": {{"max_tokens": 8, "temperature": 0}}}}])
print(json.dumps({{"key": key, "slug": project.slug}}))
"""


class Users:
    """Real requests and signals, through the gateway and the API."""

    def __init__(self, strop: LiveStrop, key: str) -> None:
        self._client = httpx.Client(base_url=strop.url, headers={"authorization": f"Bearer {key}"}, timeout=60)
        self._number = 0

    def take_turns(self, num: int) -> list[str]:
        """Each is asked and judged; versions of the checkpoints that answered."""
        versions, items = [], []
        for _ in range(num):
            self._number += 1
            body = {"model": "editor", "prompt": "def f(x): return", "max_tokens": 8, "user": f"u-{self._number}"}
            answer = wait_until(lambda body=body: self._ask(body), "the gateway answers", 120)
            versions.append(answer["version"])
            items.append(
                {"type": "signal", "id": f"s-{self._number}", "turn": answer["id"], "at": answer["at"],
                 "kind": "accept" if self._number % 3 else "reject"}
            )  # fmt: skip
        receipt = self._client.post("/v1/events", json={"items": items}).json()
        assert receipt["outcomes"] == {"accepted": num}, receipt
        return versions

    def _ask(self, body: dict) -> dict | None:
        response = self._client.post("/v1/completions", json=body)
        if response.status_code != 200:
            return None
        return {
            "id": response.json()["id"],
            "version": response.headers["x-weight-version"],
            "at": datetime.now(UTC).isoformat(),
        }


@pytest.fixture(scope="module")
def strop(tmp_path_factory):
    root = tmp_path_factory.mktemp("train") / "home"
    with live(root) as running:
        yield running


@pytest.fixture(scope="module")
def users(strop):
    made = json.loads(strop.run_python(SETUP.format(root=strop.root)).splitlines()[-1])
    strop.slug = made["slug"]
    return Users(strop, made["key"])


@pytest.fixture
def visitor(browser, strop, users):
    """Signed in by a fresh link; says yes to every question."""
    link = strop.run_python(
        "from django.contrib.auth import get_user_model\nfrom registry.signin import sign_in_token\n"
        "print(sign_in_token(get_user_model().objects.get()))"
    )
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(120_000)
    visit = Visit(context.new_page(), strop.url)
    visit.page.goto(f"{strop.url}/sign-in/{link.strip()}")
    visit.page.on("dialog", lambda dialog: dialog.accept())
    yield visit
    context.close()


def labelled(strop: LiveStrop) -> int:
    return strop.rows("SELECT count(*) FROM feedback_turn WHERE settled_at IS NOT NULL")[0][0]


def test_an_update_is_triggered_cancelled_triggered_again_proved_promoted_and_rolled_back(strop, users, visitor):
    page, base = visitor.page, f"/p/{strop.slug}"
    assert users.take_turns(48) == ["1"] * 48
    wait_until(lambda: labelled(strop) >= 48, "the turns are labelled")

    # A dry run first: real numbers, and nothing spent.
    visitor.open(f"{base}/updates/new")
    page.click("text=Dry run on 8 samples")
    page.wait_for_selector(".state-done")
    assert page.locator("td:text-is('loss')").count() == 1
    visitor.shoot("train-dry-run")
    assert strop.rows("SELECT count(*) FROM rl_online_batchsample") == [(0,)]

    # So many steps that there is time to follow and to stop.
    visitor.open(f"{base}/updates/new?preset=bold&loss=rl")
    page.fill("#set-epochs", "400")
    page.fill("#set-minibatch_size", "8")
    page.click("text=Seal the batch and train")
    page.wait_for_url("**/updates/*-*")
    page.wait_for_selector("text=live")
    drawn = "document.querySelector('[data-figure=\"curve-loss\"]')?.data?.[0]?.x?.length ?? 0"
    wait_until(lambda: page.evaluate(drawn) >= 3, "three steps are drawn", 120)
    assert page.locator(".key:has-text('Time left')").inner_text().count("s") >= 1
    visitor.shoot("train-live")
    page.click("text=Cancel update")
    page.wait_for_selector(".state-cancelled")
    wait_until(lambda: strop.rows("SELECT count(*) FROM rl_online_batchsample") == [(0,)], "its turns are given back")

    # Again, with settings that end soon; the gate decides, a person promotes.
    visitor.open(f"{base}/updates/new?preset=careful&loss=rl")
    page.click("text=Seal the batch and train")
    page.wait_for_url("**/updates/*-*")
    page.wait_for_selector(".state-waiting, .state-held", timeout=240_000)
    visitor.shoot("train-decided")
    page.click("text=/^report \\d+$/")
    page.wait_for_url("**/gates/*")
    assert page.locator(".state-promote").count() >= 1
    of_code = page.locator("table.dense tr:has-text('code'):has-text('of 40')")
    assert of_code.count() >= 1, "a second suite, of its own sampling, was asked and weighed"
    visitor.shoot("train-gate")
    page.click("table.dense td a >> nth=1")
    page.wait_for_url("**/problems?**")
    assert "of 40" in page.content() or page.locator("table.rows tbody tr").count() == 40
    visitor.open(f"{base}/checkpoints/editor@3")
    page.click("button:text-is('Promote')")
    page.wait_for_selector(".toast:has-text('editor@3 serves now')")
    assert set(users.take_turns(4)) == {"3"}

    # The predecessor, and the trail of it all.
    visitor.open(f"{base}/deployments")
    page.fill("#rollback-reason", "users complain about empty answers")
    page.click("button:text-is('Roll back')")
    page.wait_for_selector(".toast:has-text('editor@1 serves again')")
    assert "users complain about empty answers" in page.content()
    wait_until(lambda: set(users.take_turns(1)) == {"1"}, "the predecessor answers")
    visitor.shoot("train-rolled-back")
    visitor.open(f"{base}/checkpoints")
    assert page.locator(".spot-rolled-back").count() == 1
    visitor.open(f"{base}/engines")
    assert re.search(r"embedded|engine", page.inner_text("h2 >> nth=0"))
    visitor.shoot("train-engines-live")
    assert visitor.complaints == []


def test_a_canary_answers_its_share_of_the_users(strop, users, visitor):
    page, base = visitor.page, f"/p/{strop.slug}"
    visitor.open(f"{base}/updates/new?loss=rl")
    users.take_turns(12)
    wait_until(
        lambda: (
            strop.rows("SELECT count(*) FROM feedback_turn WHERE settled_at IS NULL AND settle_due IS NOT NULL")
            == [(0,)]
        ),
        "labelled",
    )
    visitor.open(f"{base}/updates/new?preset=careful&loss=rl")
    page.click("text=Seal the batch and train")
    page.wait_for_selector(".state-waiting, .state-held", timeout=240_000)
    visitor.open(f"{base}/deployments")
    page.fill("#canary-reason", "a look at half of the users")
    page.evaluate("(slider => { slider.value = 50; slider.dispatchEvent(new Event('input', {bubbles: true})); })"
                  "(document.querySelector('#percent'))")  # fmt: skip
    assert page.inner_text("#percent-said") == "50 %"
    page.click("text=Start the canary")
    page.wait_for_selector("text=Stop the canary")
    answered = wait_until(
        lambda: (lambda found: found if len(set(found)) == 2 else None)(users.take_turns(24)), "both sides answer", 120
    )
    assert 4 <= sum(version != "1" for version in answered) <= 20  # 12 expected; three sigma is 7.3
    visitor.open(f"{base}/deployments")
    visitor.shoot("train-canary")
    page.click("text=Stop the canary")
    page.wait_for_selector(".toast:has-text('answers everyone again')")
    assert set(users.take_turns(6)) == {"1"} and visitor.complaints == []


@pytest.fixture
def paths(loop, project):
    with tenant(project.id):
        made = {
            "dry_run": factories.make_dry_run(loop.policy),
            "failed": factories.make_dry_run(loop.policy, state="failed", error="CUDA out of memory"),
            "report": factories.GateReport.objects.order_by("pk").first(),
        }
        factories.make_engine()
        factories.make_heldout(loop.policy, loop.checkpoints[1], right=7, wrong=3)
        for row in loop.updates[0].metrics.all():
            row.values |= {"heldout_loss": 0.9 * row.values["loss"], "heldout_kl": 0.4 * row.values["kl"]}
            row.save()
        made["ended"] = make_trial(Checkpoint.objects.select_related("policy").get(policy=loop.policy, version=3))
        abandoned = factories.make_checkpoint(loop.policy, 7, loop.checkpoints[0], state="retired")
        factories.make_checkpoint(loop.policy, 8, abandoned, state="rejected")
        failed = factories.make_update(
            loop.policy, loop.updates[0].batch, parent=loop.checkpoints[1], version=9, state="failed",
            error="the gradient was not finite in 3 steps in a row, up to step 3",
        )  # fmt: skip
    first, second = loop.updates[0].id, loop.updates[1].id
    return {
        "updates-list": "/p/editor/updates",
        "update-held-out": f"/p/editor/updates/{first}",
        "update-failed": f"/p/editor/updates/{failed.id}",
        "update-samples": f"/p/editor/updates/{first}/samples",
        "update-compare": f"/p/editor/updates/compare?left={first}&right={second}",
        "update-start": "/p/editor/updates/new?preset=bold&loss=rl",
        "dry-run": f"/p/editor/updates/dry-runs/{made['dry_run'].id}",
        "dry-run-failed": f"/p/editor/updates/dry-runs/{made['failed'].id}",
        "checkpoints-tree": "/p/editor/checkpoints",
        "gates": "/p/editor/gates",
        "gate": f"/p/editor/gates/{made['report'].pk}",
        "gate-live": f"/p/editor/gates/{made['ended'].pk}",
        "gate-problems": f"/p/editor/gates/{made['report'].pk}/problems",
        "deployments": "/p/editor/deployments",
        "engines": "/p/editor/engines",
    }


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_training_are_clean_in_each_theme_and_on_a_phone(visit, owner, paths):
    assert faults_of(visit, "owner", paths) == {}


@pytest.mark.django_db(transaction=True)
def test_empty_pages_of_training_are_clean(visit, owner, project):
    names = ("gates", "deployments", "engines")
    assert faults_of(visit, "owner", {f"{name}-empty": f"/p/editor/{name}" for name in names}, looks=["light"]) == {}


@pytest.mark.django_db(transaction=True)
def test_a_gate_report_prints_without_the_frame(visit, owner, paths):
    visitor = visit("owner")
    visitor.open(paths["gate"])
    visitor.page.emulate_media(media="print")
    assert not visitor.page.is_visible("aside.navbar-vertical")
    assert visitor.page.is_visible("text=Evidence") and not visitor.page.is_visible("[data-print]")
    visitor.shoot("gate-print")


@pytest.mark.django_db(transaction=True)
def test_the_tree_leads_to_a_checkpoint_by_keyboard(visit, owner, paths):
    visitor = visit("owner")
    visitor.open(paths["checkpoints-tree"])
    visitor.page.focus("a.spot >> nth=1")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url("**/checkpoints/editor@2")
    assert visitor.complaints == []
