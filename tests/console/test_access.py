"""Every address of the console by owner, engineer, reviewer, viewer, a member of another project, and nobody.

The table is checked against the address list itself: an address without a row fails.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console import urls
from registry.tenancy import tenant
from tests.conftest import undone
from tests.console import evaluate, factories, settings_rows

ENGINEERS = {"owner": 302, "engineer": 302, "reviewer": 403, "viewer": 403}
UNSEEN = ENGINEERS | {"owner": 400, "engineer": 400}  # a form that does not say what it was filled from is refused
OWNERS = {"owner": 200, "engineer": 403, "reviewer": 403, "viewer": 403}
EVERYONE = {"owner": 200, "engineer": 200, "reviewer": 200, "viewer": 200}


@dataclass(frozen=True)
class Row:
    """What each role is answered; strangers always get 404 and nobody is always sent to sign in."""

    answers: dict[str, int]
    kwargs: dict[str, str] = field(default_factory=dict)  # of the address: names of facts of the made loop
    post: dict[str, Any] | None = None
    fixed: dict[str, str] = field(default_factory=dict)  # parts of the address that name no object

    def address(self, name: str, facts: dict[str, Any], slug: str = "editor") -> str:
        parts = {key: facts[of] for key, of in self.kwargs.items()}
        return reverse(f"console:{name}", kwargs={"project": slug} | self.fixed | parts)


OBSERVE = {
    "session-turns": Row(EVERYONE, {"session": "session"}),
    "turn": Row(EVERYONE, {"turn": "turn"}),
    "turn-tokens": Row(EVERYONE, {"turn": "turn"}),
    "ingestion": Row(EVERYONE),
    "job-replay": Row(ENGINEERS, {"job": "job"}, post={}),
    "recipes": Row(EVERYONE),
    "label-recipe-new": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "label-recipe": Row(EVERYONE, {"version": "recipe"}),
    "label-recipe-activate": Row(ENGINEERS, {"version": "recipe"}, post={}),
    "reward-spec-new": Row(ENGINEERS | {"owner": 200, "engineer": 200}, fixed={"name": "default"}),
    "reward-spec": Row(EVERYONE, {"name": "spec", "version": "spec_version"}),
    "reward-spec-activate": Row(ENGINEERS, {"name": "spec", "version": "spec_version"}, post={"policy": "editor"}),
}
TABLE = {
    "project": Row(dict.fromkeys(EVERYONE, 302)),
    "overview": Row(EVERYONE),
    "overview-live": Row(EVERYONE),
    "alerts": Row(EVERYONE),
    "alert-acknowledge": Row(ENGINEERS, {"alarm": "alarm"}, post={}),
    "alert-close": Row(ENGINEERS, {"alarm": "alarm"}, post={"note": "restarted it"}),
    "palette": Row(EVERYONE),
    "resolve": Row(dict.fromkeys(EVERYONE, 302), {"reference": "session"}),
    "export": Row(EVERYONE, fixed={"list": "turns"}),
    "export-queue": Row(EVERYONE),
    "view-save": Row(dict.fromkeys(EVERYONE, 302), post={"page": "turns", "name": "mine", "query": "q=outcome:reject"}),
    "view-delete": Row(dict.fromkeys(EVERYONE, 403) | {"owner": 302}, {"view": "view"}, post={"page": "turns"}),
    "sessions": Row(EVERYONE),
    "turns": Row(EVERYONE),
    "signals": Row(EVERYONE),
    **OBSERVE,
    "session": Row(EVERYONE, {"session": "session"}),
    "flagged": Row(EVERYONE),
    "flags-raise": Row(ENGINEERS | {"reviewer": 302}, post={"list": "turns", "pick": ["none-such"]}),
    "flags-resolve": Row(ENGINEERS | {"reviewer": 302}, post={"choice": "fine", "pick": ["1"]}),
    "turn-problem": Row(ENGINEERS | {"reviewer": 302}, {"turn": "turn"}, post={}),
    "turn-flag": Row(ENGINEERS | {"reviewer": 302}, {"turn": "turn"}, post={"reason": "odd"}),
    "review": Row(EVERYONE),
    "review-agreement": Row(EVERYONE),
    "review-item": Row(EVERYONE, {"flag": "flag"}),
    "review-focus": Row(EVERYONE, {"flag": "flag"}),
    "review-next": Row(ENGINEERS | {"reviewer": 302}, post={}),
    "review-answer": Row(ENGINEERS | {"reviewer": 302}, {"flag": "flag"}, post={"choice": "fine"}),
    "review-skip": Row(ENGINEERS | {"reviewer": 302}, {"flag": "flag"}, post={}),
    "review-hold": Row(EVERYONE | {"viewer": 403}, {"flag": "flag"}, post={"opening": "yes"}),
    "review-draft": Row(EVERYONE | {"viewer": 403}, {"flag": "flag"}, post={"note": "odd"}),
    "review-undo": Row(ENGINEERS | {"reviewer": 302}, post={}),
    "review-look-again": Row(ENGINEERS | {"reviewer": 302}, post={}),
    "review-sample": Row(ENGINEERS | {"reviewer": 302}, post={"number": "2", "days": "1"}),
    "review-settings": Row(UNSEEN, post={"review_responses": "2", "review_instructions": "Be kind."}),
    "review-close-problems": Row(ENGINEERS, post={}),
    "updates": Row(EVERYONE),
    "update-trigger": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "learning-switch": Row(ENGINEERS, post={"policy": "editor", "to": "pause"}),
    "update": Row(EVERYONE, {"update": "update"}),
    "update-live": Row(EVERYONE, {"update": "update"}),
    "update-cancel": Row(ENGINEERS, {"update": "update"}, post={}),
    "update-next": Row(EVERYONE),
    "update-corrections": Row(EVERYONE),
    "dry-run-start": Row(ENGINEERS | {"owner": 409, "engineer": 409}, post={"policy": "editor"}),
    "dry-run": Row(EVERYONE, {"dry_run": "dry_run"}),
    "dry-run-cancel": Row(ENGINEERS, {"dry_run": "dry_run"}, post={}),
    "update-schedule": Row(UNSEEN, post={"policy": "editor", "every_turns": "9"}),
    "update-compare": Row(dict.fromkeys(EVERYONE, 404)),
    "update-samples": Row(EVERYONE, {"update": "update"}),
    "update-replay": Row(ENGINEERS, {"update": "update"}, post={}),
    "gates": Row(EVERYONE),
    "gate": Row(EVERYONE, {"report": "report"}),
    "gate-problems": Row(EVERYONE, {"report": "report"}),
    "gate-reopen": Row(ENGINEERS, {"report": "report"}, post={}),
    "deployments": Row(EVERYONE),
    "canary-start": Row(ENGINEERS, {"policy": "policy"}, post={"checkpoint": "editor@3", "percent": "5"}),
    "canary-share": Row(ENGINEERS, {"policy": "policy"}, post={"percent": "5"}),
    "canary-stop": Row(ENGINEERS, {"policy": "policy"}, post={}),
    "gate-rules": Row(UNSEEN, {"policy": "policy"}, post={}),
    "engines": Row(EVERYONE),
    "evals": Row(EVERYONE),
    "eval-run": Row(EVERYONE, {"run": "eval_run"}),
    "eval-run-live": Row(EVERYONE, {"run": "eval_run"}),
    "eval-start": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "eval-cancel": Row(ENGINEERS, {"run": "eval_run"}, post={}),
    "eval-resume": Row(ENGINEERS, {"run": "eval_run"}, post={}),
    "benchmarks": Row(EVERYONE),
    "benchmark-add": Row(ENGINEERS, post={}),
    "benchmark-overlap": Row(EVERYONE, {"benchmark": "benchmark"}),
    "benchmark-check": Row(ENGINEERS, {"benchmark": "benchmark"}, post={}),
    "eval-problem": Row(EVERYONE, {"problem": "problem"}),
    "leaderboard": Row(EVERYONE, {"benchmark": "benchmark"}),
    "eval-upload": Row(UNSEEN, post={}),  # without a file
    "eval-uploaded": Row(EVERYONE, {"job": "upload"}),
    "compare": Row(EVERYONE),
    "compare-problem": Row(dict.fromkeys(EVERYONE, 302), {"problem": "problem"}),  # without sides: choose them
    "win-rates": Row(EVERYONE),
    "imported-compute": Row(ENGINEERS, post={}),
    "comparisons": Row(EVERYONE),
    "judges": Row(EVERYONE),
    "judge": Row(EVERYONE, {"judge": "judge"}),
    "judge-canaries": Row(ENGINEERS, {"judge": "judge"}, post={}),
    "judge-retry": Row(ENGINEERS, {"judge": "judge"}, post={}),
    "judge-new": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "judge-duty": Row(ENGINEERS, {"judge": "judge"}, post={"share": "100", "idle_s": "60"}),
    "judge-anchors": Row(EVERYONE),
    "gold": Row(EVERYONE),
    "judge-anchors-add": Row(ENGINEERS, post={"name": "a", "items": '{"key": "1", "task": "x", "answer": "y"}'}),
    "judge-run-anchors": Row(ENGINEERS, {"judge": "judge"}, post={}),
    "judge-panel-add": Row(ENGINEERS, post={"name": "p", "quorum": "2", "max_spread": "0.5"}),
    "judge-rating": Row(EVERYONE, {"rating": "rating"}),
    "judge-label": Row(ENGINEERS | {"reviewer": 302}, {"rating": "rating"}, post={"value": "1"}),
    "comparison": Row(EVERYONE, {"comparison": "comparison"}),
    "costs": Row(EVERYONE),
    "cost-quality": Row(EVERYONE),
    "budgets": Row(EVERYONE),
    "budget-add": Row(
        OWNERS | {"owner": 302}, post={"kind": "total", "period": "day", "usd": "5", "alert_percents": "50, 80"}
    ),
    "budget-change": Row(OWNERS | {"owner": 400}, {"budget": "budget"}, post={}),  # not said what it was filled from
    "prices": Row(EVERYONE),
    "price-add": Row(
        ENGINEERS,
        post={"kind": "tokens", "model": "m", "input_usd": "1", "date": "2026-11-01", "hour": "0"},
    ),
    "checkpoints": Row(EVERYONE),
    "checkpoint": Row(EVERYONE, {"name": "checkpoint"}),
    "checkpoint-promote": Row(ENGINEERS, {"name": "checkpoint"}, post={"reason": "looked at it"}),
    "checkpoint-reject": Row(ENGINEERS, {"name": "checkpoint"}, post={"reason": "worse"}),
    "checkpoint-roll-back": Row(ENGINEERS, {"name": "checkpoint"}, post={"reason": "worse"}),
    "onboarding": Row(EVERYONE),
    "onboarding-live": Row(EVERYONE),
    "onboarding-key": Row(ENGINEERS | {"owner": 200, "engineer": 200}, post={}),
    "demo-load": Row(OWNERS | {"owner": 302}, post={}),
    "demo-remove": Row(OWNERS | {"owner": 302}, post={}),
    "settings": Row(EVERYONE),
    "settings-change": Row(OWNERS | {"owner": 400}, post={"decision_window_s": "60"}),
    "password": Row(EVERYONE),
    "audit": Row(EVERYONE),
    "members": Row(EVERYONE),
    "member-invite": Row(OWNERS, post={"username": "ann", "role": "viewer"}),
    "member-role": Row(OWNERS | {"owner": 302}, {"member": "member"}, post={"role": "engineer"}),
    "member-link": Row(OWNERS, {"member": "member"}, post={}),
    "member-remove": Row(OWNERS | {"owner": 302}, {"member": "member"}, post={}),
    "keys": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "key-create": Row(ENGINEERS | {"owner": 200, "engineer": 200}, post={"name": "k", "scopes": ["ingest"]}),
    "key-revoke": Row(ENGINEERS, {"prefix": "key"}, post={}),
    "policies": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "policies-live": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "policy-add": Row(ENGINEERS, post={"name": "second", "kind": "default"}),
    "notifications": Row(ENGINEERS | {"owner": 200, "engineer": 200}),
    "channel-create": Row(
        ENGINEERS,
        post={"name": "mail", "kind": "email", "target": "ann@example.org", "events": ["update.failed"]},
    ),
    "channel": Row(ENGINEERS | {"owner": 200, "engineer": 200}, {"channel": "channel"}),
    "channel-change": Row(
        UNSEEN, {"channel": "channel"}, post={"target": "bob@example.org", "events": ["update.failed"]}
    ),
    "channel-switch": Row(ENGINEERS, {"channel": "channel"}, post={"to": "off"}),
    "channel-test": Row(ENGINEERS, {"channel": "channel"}, post={}),
    "channel-renew": Row(ENGINEERS, {"channel": "channel"}, post={}),
    "channel-remove": Row(ENGINEERS, {"channel": "channel"}, post={}),
    "system": Row(OWNERS),
    "system-backup": Row(OWNERS | {"owner": 302}, post={"level": "none"}),
    "system-replay": Row(OWNERS | {"owner": 302}, {"job": "job"}, post={}),
    "system-collect": Row(OWNERS | {"owner": 302}, post={}),
    "system-reset": Row(OWNERS | {"owner": 302}, post={"name": "editor"}),
}


@pytest.fixture
def facts(loop, project):
    return {
        "session": "edit-0",
        "flag": loop.flags[0].pk,
        "turn": loop.turns[0].turn_id,
        "update": loop.updates[-1].id,
        "checkpoint": "editor@3",
        "alarm": factories.make_alarm(project).pk,
        "view": factories.make_view(project, name="rejected", query="q=outcome:reject").pk,
        **evaluate.make_facts(project),
        **settings_rows.make_facts(project),
        "job": factories.make_given_up_job(project).pk,
        **factories.make_recipes(project),
        **factories.make_train_facts(loop),
        **evaluate.make_run_facts(project),
    }


def call(client, name, facts, *, slug="editor"):
    row = TABLE[name]
    url = row.address(name, facts, slug)
    return client.get(url) if row.post is None else client.post(url, row.post)


def test_every_address_under_a_project_has_a_row():
    assert {pattern.name for pattern in urls.pages} == set(TABLE)


def answers(client, facts, names, ask=call) -> dict[str, int]:
    found = {}
    for name in names:
        with undone():
            found[name] = ask(client, name, facts).status_code
    return found


@pytest.mark.parametrize("role", ["viewer", "reviewer", "engineer", "owner"])
def test_each_address_answers_a_member_as_the_table_says(client, request, facts, role):
    client.force_login(request.getfixturevalue(role))
    assert answers(client, facts, TABLE) == {name: row.answers[role] for name, row in TABLE.items()}


def test_each_address_sends_nobody_to_sign_in_and_is_not_found_by_others(client, facts, stranger, django_user_model):
    for name in TABLE:
        assert call(client, name, facts).url.startswith("/sign-in?next="), name
    for user in (stranger, django_user_model.objects.create_user("alone")):  # a member of nothing
        client.force_login(user)
        assert answers(client, facts, TABLE) == dict.fromkeys(TABLE, 404)


def test_objects_of_one_project_are_not_found_under_another(client, stranger, facts):
    client.force_login(stranger)
    names = [name for name, row in TABLE.items() if row.kwargs]
    found = answers(client, facts, names, lambda *asked: call(*asked, slug="other"))
    assert found == dict.fromkeys(names, 404)


CHANGES = [name for name, row in TABLE.items() if row.post is not None]


def test_what_changes_something_is_never_a_get(as_owner, facts):
    found = answers(as_owner, facts, CHANGES, lambda client, name, _: client.get(TABLE[name].address(name, facts)))
    assert found == dict.fromkeys(CHANGES, 405)


def test_a_form_without_its_token_is_refused(facts, owner):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner)
    assert answers(strict, facts, CHANGES) == dict.fromkeys(CHANGES, 403)


def test_the_start_leads_to_the_project_visited_last(client, owner, project, other_project):
    from registry.models import Member

    with tenant(other_project.id):
        Member.objects.create(user=owner, role="viewer")
    client.force_login(owner)
    client.get("/p/other/overview")
    assert client.get("/").url == "/p/other/overview"


def test_the_start_without_a_project_says_how_to_get_one(client, django_user_model):
    client.force_login(django_user_model.objects.create_user("alone"))
    assert "not a member of any project" in client.get("/").content.decode()


def test_a_password_signs_in(client, owner):
    response = client.post("/sign-in", {"username": "owner", "password": "owner-password"})
    assert response.url == "/" and client.get("/").status_code == 302


def test_a_wrong_password_does_not(client, owner):
    page = client.post("/sign-in", {"username": "owner", "password": "guess"}).content.decode()
    assert "do not match" in page


def test_a_sign_in_link_works_once(client, owner, project):
    from registry.signin import sign_in_token

    url = reverse("console:sign-in-link", args=[sign_in_token(owner)])
    assert client.get(url).url == "/"
    client.logout()
    assert client.get(url).url == "/sign-in"


def test_an_error_page_names_the_request(client):
    response = client.get("/no/such/page")
    assert response.status_code == 404 and response["x-request-id"] in response.content.decode()


def test_a_missing_role_is_named(client, viewer, facts):
    client.force_login(viewer)
    page = call(client, "update-trigger", facts).content.decode()
    assert "needs the role engineer; yours is viewer" in page


def test_every_page_forbids_scripts_from_elsewhere(as_owner, facts):
    policy = call(as_owner, "overview", facts)["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe-eval" not in policy
