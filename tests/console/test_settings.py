"""The settings pages: what they show, what their forms do, what they refuse."""

import pytest
from django.contrib.auth import get_user_model

from registry.models import ApiKey, AuditEvent, Member, NotificationChannel, Project
from registry.services import create_key
from registry.tenancy import tenant
from tests.console import factories, settings_rows

HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def post(as_owner):
    return lambda path, follow=False, **fields: as_owner.post(f"/p/editor/settings/{path}", fields, follow=follow)


@pytest.fixture
def change(as_owner):
    """Fill in the settings' form as it stands now, with these fields changed."""

    def send(**fields):
        shown = as_owner.get("/p/editor/settings").content.decode()
        seen = settings_rows.seen_on(shown, "/p/editor/settings/change")
        return as_owner.post("/p/editor/settings/change", {"seen": seen} | fields, follow=True).content.decode()

    return send


@pytest.fixture
def page(as_owner):
    return lambda path="": as_owner.get(f"/p/editor/settings{path and '/' + path}").content.decode()


def test_settings_are_changed_and_audited(change, project):
    said = change(decision_window_s="30")
    assert "Changed: decision window." in said and 'value="30"' in said
    with tenant(project.id):
        assert Project.objects.get().settings["decision_window_s"] == 30
        assert AuditEvent.objects.get(object_kind="project settings").actor == "owner"


@pytest.mark.parametrize("value", ["", "soon", "-1", "nan", "1e400"])
def test_a_setting_that_cannot_be_is_refused_with_its_name_and_stays_in_the_form(change, project, value):
    said = change(decision_window_s=value, orphan_hours="3")
    kept = f'name="decision_window_s" inputmode="decimal" required value="{value}"'
    assert "decision_window_s:" in said and kept in said
    assert 'name="orphan_hours" inputmode="decimal" required value="3"' in said
    with tenant(project.id):
        assert Project.objects.get().settings == {}


def test_a_switch_that_is_off_is_not_sent_and_still_switches_off(change, project):
    change(**{"has-collect_weekly": "1", "collect_weekly": "on"})
    change(**{"has-collect_weekly": "1"})
    with tenant(project.id):
        assert Project.objects.get().settings["collect_weekly"] is False


def test_every_setting_of_a_project_stands_on_its_page(page):
    from dataclasses import fields

    from registry.project_settings import ProjectSettings

    shown = page()
    assert [field.name for field in fields(ProjectSettings) if f'id="set-{field.name}"' not in shown] == []


def test_an_invitation_shows_a_link_once_and_it_signs_in(post, page, client):
    shown = post("members/invite", username="ann@example.org", role="reviewer").content.decode()
    link = shown.partition('<pre id="sign-in-link" tabindex="0">')[2].partition("</pre>")[0]
    assert link.startswith("http") and link not in page("members")
    client.logout()
    assert client.get("/" + link.split("/", 3)[3], follow=True).status_code == 200


def test_the_last_owner_is_told_why_nothing_happened(post, owner, project):
    with tenant(project.id):
        pk = Member.objects.get(user=owner).pk
    assert "is the only owner" in post(f"members/{pk}/role", follow=True, role="viewer").content.decode()
    assert "is the only owner" in post(f"members/{pk}/remove", follow=True).content.decode()


def test_a_key_is_shown_once_and_never_again(post, page):
    shown = post("keys/new", name="sdk", scopes=["ingest", "infer"], kind="server", days="30")
    text = shown.content.decode().partition('<pre id="new-key" tabindex="0">')[2].partition("</pre>")[0]
    assert text.startswith("strop_") and "no-store" in shown["cache-control"]
    assert text.split(".")[1] not in page("keys") and text.split(".")[0] in page("keys")


def test_a_browser_key_is_made_with_its_sites(post, project):
    post(
        "keys/new", name="page", kind="browser", origins="https://a.example\nhttps://b.example/", items_per_minute="60"
    )
    with tenant(project.id):
        key = ApiKey.objects.get()
    assert (key.scopes, key.origins) == (["ingest"], ["https://a.example", "https://b.example"])
    assert key.items_per_minute == 60 and key.is_browser


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": "", "scopes": ["ingest"]}, "name:"),
        ({"name": "k"}, "scopes:"),
        ({"name": "k", "scopes": ["ingest"], "days": "x"}, "days:"),
        ({"name": "k", "kind": "browser", "items_per_minute": "60"}, "origins:"),
        ({"name": "k", "kind": "browser", "origins": "https://a.example", "items_per_minute": ""}, "items_per_minute:"),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_the_field(post, project, fields, named):
    reply = post("keys/new", **fields)
    assert reply.status_code == 400 and named in reply.content.decode()
    with tenant(project.id):
        assert not ApiKey.objects.exists()


def test_only_an_owner_makes_an_admin_key(as_engineer, project):
    fields = {"name": "k", "scopes": ["admin"], "kind": "server", "days": "0"}
    assert as_engineer.post("/p/editor/settings/keys/new", fields).status_code == 403
    assert 'value="admin"' not in as_engineer.get("/p/editor/settings/keys").content.decode()


def test_a_channel_to_a_private_address_is_refused_with_the_field(post, project):
    reply = post(
        "notifications/new", name="h", kind="webhook", target="http://169.254.169.254/", events="update.failed"
    )
    assert reply.status_code == 400 and "target: this address is not public" in reply.content.decode()
    with tenant(project.id):
        assert not NotificationChannel.objects.exists()


def test_a_channel_shows_each_delivery_with_its_attempts(page, project):
    with tenant(project.id):
        channel = settings_rows.make_channel(HOSTILE, kind="webhook", target="https://hooks.example.com/x")
        settings_rows.make_delivery(channel, statuses=(500, None, 200), title=HOSTILE)
    shown = page(f"notifications/{channel.id}")
    assert "<b>500</b>" in shown and "no answer" in shown and "<b>200</b>" in shown and "state-sent" in shown
    assert "<script>alert" not in shown and "\u202e" not in shown and "whsec_" in shown


def test_a_channel_that_switched_itself_off_says_why_and_is_switched_on_again(post, page, project):
    with tenant(project.id):
        channel = settings_rows.make_channel(
            is_enabled=False, disabled_reason="5 deliveries in a row were given up", num_failures_in_row=5
        )
    assert "5 deliveries in a row were given up" in page(f"notifications/{channel.id}")
    post(f"notifications/{channel.id}/switch", to="on")
    with tenant(project.id):
        channel.refresh_from_db()
    assert channel.is_enabled and channel.num_failures_in_row == 0


def test_a_test_goes_to_one_channel_alone(post, project):
    with tenant(project.id):
        one, _ = settings_rows.make_channel(), settings_rows.make_channel("other")
    post(f"notifications/{one.id}/test")
    with tenant(project.id):
        assert one.deliveries.get().notice.kind == "test"
        assert not NotificationChannel.objects.get(name="other").deliveries.exists()


def test_a_new_secret_replaces_the_old_one(post, page, project):
    with tenant(project.id):
        channel = settings_rows.make_channel(kind="webhook", target="https://hooks.example.com/x")

    def secret() -> str:
        return page(f"notifications/{channel.id}").partition('<pre id="signing-secret" tabindex="0">')[2][:70]

    before = secret()
    post(f"notifications/{channel.id}/renew")
    assert secret() != before


def test_policies_say_whether_an_engine_holds_them(page, project):
    with tenant(project.id):
        factories.make_loop()
        factories.make_policy("second")
        settings_rows.make_import("third", "storing", progress="downloading 40 %")
        settings_rows.make_import("fourth", "failed", error="tokenizer.json is missing")
    shown = page("policies")
    assert "held by an engine" in shown and "no engine holds it yet" in shown
    assert "downloading 40 %" in shown and "tokenizer.json is missing" in shown


def test_the_audit_trail_is_filtered_by_its_query(as_owner, project):
    with tenant(project.id):
        create_key("sdk", ["ingest"], actor="ann")
        factories.make_policy()
    found = as_owner.get("/p/editor/settings/audit?q=actor:ann").content.decode()
    assert found.count("<td>ann</td>") == 1 and "<td>strop</td>" not in found
    export = as_owner.get("/p/editor/export/audit?format=csv&q=actor:ann")
    assert export.status_code == 200


def test_a_password_is_chosen_by_who_has_none_and_then_asked_for(client, project, member):
    user = member(project, "viewer")
    user.set_unusable_password()
    user.save()
    client.force_login(user)
    url = "/p/editor/settings/password"
    assert "old_password" not in client.get(url).content.decode()
    long = "a good long pass phrase"
    assert client.post(url, {"new_password1": long, "new_password2": long}).status_code == 302
    assert get_user_model().objects.get(pk=user.pk).check_password(long)
    assert "old_password" in client.get(url).content.decode()
    assert client.post(url, {"old_password": "no", "new_password1": "x", "new_password2": "x"}).status_code == 400


@pytest.mark.parametrize("path", ["", "members", "keys", "policies", "notifications", "audit", "password"])
def test_empty_pages_stand(page, path):
    assert "<h1>" in page(path)


def test_hostile_names_are_shown_as_text(page, project):
    with tenant(project.id):
        create_key(HOSTILE, ["ingest"], actor=HOSTILE)
        settings_rows.make_channel(HOSTILE)
        settings_rows.make_import("x", "failed", error=HOSTILE, progress=HOSTILE)
    for path in ("keys", "notifications", "policies", "audit"):
        shown = page(path)
        assert "<script>alert" not in shown and "\u202e" not in shown, path
