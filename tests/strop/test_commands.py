import json

import click
import pytest
from click.testing import CliRunner, Result

from evals.models import EvalRun
from jobs.services import claim_next
from registry import services
from registry.models import ApiKey, AuditEvent, CheckpointState, Deployment
from registry.signin import redeem
from registry.tenancy import tenant
from rl_online.models import GateReport, UpdateRun
from rl_online.services.dry_runs import Tried, dry_run_job
from strop import cli
from strop.commands import base
from strop.commands.update import overrides
from tests.console import factories


def strop(*arguments: str) -> Result:
    return CliRunner().invoke(cli.group, arguments, prog_name="strop")


def strop_json(*arguments: str) -> dict:
    result = strop(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    return [
        leaf
        for name in command.list_commands(context)
        if name != "demo"
        for leaf in leaves(command.get_command(context, name), (*path, name))
    ]


@pytest.fixture
def editor(project):
    """A policy with version 1 serving and version 2 a candidate that the gate held."""
    with tenant(project.id):
        policy = services.create_policy("editor", source="test", actor="test")
        made = {"tree_digest": "0" * 64, "folder": "f", "num_bytes": 1, "optimizer_step": 0, "actor": "test"}
        first = services.register_checkpoint(policy, version=1, parent=None, state=CheckpointState.SERVING, **made)
        second = services.register_checkpoint(policy, version=2, parent=first, **made)
        Deployment.objects.create(policy=policy, checkpoint=first)
        GateReport.objects.create(checkpoint=second, decision="hold", reasons=["too few"], evidence={"margin": 0.1})
    return policy


@pytest.mark.parametrize("path", leaves(cli.group), ids=" ".join)
def test_every_command_shows_an_example_and_its_json(path: tuple[str, ...]):
    shown = strop(*path, "--help").output
    assert f"Example: strop {' '.join(path)}" in " ".join(shown.split()) or path == ("up",)
    assert path == ("up",) or "--json" in shown


def test_a_key_is_made_listed_and_revoked(project):
    made = strop_json("keys", "create", "--scopes", "ingest,infer", "--name", "plugin", "--days", "3")
    assert made["key"].startswith(made["prefix"] + ".")
    assert (made["name"], made["scopes"], made["project"]) == ("plugin", ["infer", "ingest"], "editor")
    assert [row["live"] for row in strop_json("keys", "list")["keys"]] == [True]

    strop_json("keys", "revoke", made["prefix"], "--reason", "lost")
    assert [row["live"] for row in strop_json("keys", "list")["keys"]] == [False]
    with tenant(project.id):
        assert list(AuditEvent.objects.filter(verb="revoke").values_list("reason", flat=True)) == ["lost"]


def test_a_person_with_an_account_is_added_by_name_and_gets_a_link(project, stranger):
    added = strop_json("members", "add", "stranger", "--project", "editor", "--role", "reviewer")
    assert (added["username"], added["role"], added["project"]) == ("stranger", "reviewer", "editor")
    assert redeem(added["link"].rpartition("/")[2]) == stranger
    assert strop("members", "add", "stranger", "--project", "editor").exit_code == 1


def test_a_member_who_lost_the_link_gets_another_and_keeps_the_password(project, owner):
    told = strop_json("members", "link", "owner")
    assert (told["username"], told["role"], told["project"]) == ("owner", "owner", "editor")
    assert redeem(told["link"].rpartition("/")[2]) == owner
    owner.refresh_from_db()
    assert owner.has_usable_password()
    with tenant(project.id):
        assert AuditEvent.objects.filter(verb="make sign-in link", actor=base.actor()).exists()


def test_a_link_for_nobody_is_refused_with_the_names_that_are_known(project, owner):
    refused = strop("members", "link", "nobody")
    assert refused.exit_code == 1 and "no member 'nobody' in project editor; its members: owner" in refused.stderr


def test_an_unknown_scope_is_wrong_use_and_makes_no_key(project):
    result = strop("keys", "create", "--scopes", "everything", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ingest, read, infer, train, admin" in result.stderr
    with tenant(project.id):
        assert not ApiKey.objects.exists()


def test_with_two_projects_the_one_meant_has_to_be_named(project, other_project):
    result = strop("keys", "list")
    assert result.exit_code == 2
    assert "say which one: editor, other" in result.stderr
    assert strop_json("keys", "list", "--project", "other") == {"keys": []}


def test_a_project_nobody_knows_is_a_failure(project):
    result = strop("keys", "list", "--project", "nobody")
    assert result.exit_code == 1
    assert "no project 'nobody'" in result.stderr


def test_a_gate_that_holds_is_an_answer(editor):
    found = strop_json("gate", "editor@2")
    assert (found["decision"], found["reasons"], found["evidence"]) == ("hold", ["too few"], {"margin": 0.1})


@pytest.mark.parametrize(("name", "status"), [("editor@1", 1), ("editor@9", 1), ("editor", 2)])
def test_a_gate_without_report_or_with_a_wrong_name_prints_nothing_on_stdout(editor, name: str, status: int):
    result = strop("gate", name, "--json")
    assert (result.exit_code, result.stdout) == (status, "")


def test_promoting_against_the_gate_needs_a_reason_and_is_audited(editor, project):
    assert strop("promote", "editor@2").exit_code == 2
    moved = strop_json("promote", "editor@2", "--reason", "checked by hand")
    assert (moved["serving"], moved["previous"]) == ("editor@2", "editor@1")
    back = strop_json("rollback", "--reason", "empty answers")
    assert (back["serving"], back["before"]) == ("editor@1", "editor@2")
    with tenant(project.id):
        actors = set(AuditEvent.objects.filter(object_kind="checkpoint", reason__gt="").values_list("actor", flat=True))
    assert actors == {base.actor()}


def test_policies_are_listed_with_what_serves(editor):
    assert strop_json("models", "list")["policies"] == [
        {"policy": "editor", "source": "test", "serving": "editor@1", "checkpoints": 2}
    ]


def test_a_benchmark_is_added_run_cancelled_and_checked_against_training(editor, project):
    assert strop_json("benchmarks", "add", "humaneval")["problems"] == 164
    assert [row["benchmark"] for row in strop_json("benchmarks", "list")["benchmarks"]] == ["humaneval@1"]
    assert strop_json("benchmarks", "check", "humaneval") == {
        "benchmark": "humaneval@1", "problems": 164, "batches": 0, "checked": 0, "samples": 0, "without_text": 0,
        "overlapping": 0, "overlaps": [],
    }  # fmt: skip
    assert strop("benchmarks", "close", "humaneval").exit_code == 1

    sampled = ("--samples", "2", "--temperature", "0.5", "--limit", "3", "--tokens", "16", "--seconds-per-problem", "9")
    made = strop_json("eval", "run", "humaneval", "--checkpoint", "v2", *sampled, "--stop", "\\nclass")
    assert (made["checkpoint"], made["state"], made["asked"]) == ("editor@2", "running", 6)
    assert made["mean"]["value"] is None and made["pass_at_k"] == {}
    with tenant(project.id):
        run = EvalRun.objects.get()
        assert run.sampling == {"stop": ["\nclass"], "max_tokens": 16, "temperature": 0.5}
        assert (run.num_repeats, run.num_problems, run.seconds_per_answer, run.seed) == (2, 3, 9.0, 0)
    assert strop_json("eval", "cancel", made["id"])["state"] == "cancelled"
    assert strop_json("eval", "resume", made["id"])["state"] == "running"
    assert strop_json("eval", "show", made["id"])["benchmark"] == "humaneval@1"
    wrong = strop("eval", "run", "humaneval", "--samples", "2")
    assert wrong.exit_code == 2 and "temperature: at temperature 0 every sample is the same" in wrong.output
    assert strop("eval", "run", "nothing").exit_code == 1


def test_overrides_are_json_where_they_read_as_json():
    assert overrides(("learning_rate=1e-5", "shuffle=true", "loss=reinforce", "note=a=b")) == {
        "learning_rate": 1e-5,
        "shuffle": True,
        "loss": "reinforce",
        "note": "a=b",
    }


def test_an_override_without_value_is_wrong_use():
    with pytest.raises(click.UsageError, match="write KEY=VALUE"):
        overrides(("learning_rate",))


def test_columns_are_as_wide_as_needed_and_numbers_stand_right():
    rows = [{"key": "a", "turns": 5, "share": 0.36789}, {"key": "long", "turns": 1200, "share": None}]
    assert base.table(rows) == "key   turns  share\na         5  0.368\nlong   1200      -"
    assert base.table([]) == "nothing yet"


def test_real_users_of_four_models_are_imported_once_and_reported(project, data):
    folder = data("realhumaneval")
    first = strop_json("import", "realhumaneval", str(folder))
    assert first["turns"] == 1055
    assert strop_json("import", "realhumaneval", str(folder))["outcomes"] == {
        "duplicate": sum(first["outcomes"].values())
    }
    groups = strop_json("report", "accept-share", "--by", "model", "--source", "import")["groups"]
    assert {row["key"]: (row["accepted"], row["turns"]) for row in groups} == {
        "GPT-3.5 (chat)": (112, 305),
        "GPT-4o (chat)": (105, 280),
        "CodeLlama34b (chat)": (64, 227),
        "CodeLlama7b (chat)": (81, 243),
    }


class TestUpdatesByKind:
    @pytest.fixture
    def ready(self, project):
        """Two accepted turns, and a plan."""
        with tenant(project.id):
            factories.make_policy(min_turns=2)
            for name in ("a", "b"):
                factories.make_turn(name, outcome="accept")

    def test_a_stage_is_started_by_its_kind_with_options_and_settings(self, project, ready):
        started = strop_json(
            "update", "editor", "--kind", "sft", "--option", "at_least=2", "--set", "learning_rate=1e-4"
        )
        with tenant(project.id):
            run = UpdateRun.objects.get(id=started["id"])
        assert (started["kind"], started["state"], run.options["at_least"]) == ("sft", "queued", 2)
        assert run.config["learning_rate"] == 1e-4

    def test_too_few_are_refused_with_how_many_more(self, ready):
        result = strop("update", "editor", "--kind", "sft")
        assert result.exit_code == 1 and "2 of 16 demonstrations ready, 14 more needed" in result.output

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--kind", "magic"], "kind: 'magic' is no kind of update"),
            (["--kind", "sft", "--option", "retries=yes"], "retries is not an option of sft"),
            (["--kind", "sft", "--option", "at_least"], "write KEY=VALUE"),
            (["--option", "edits=no"], "online updates have no options"),
            (["--replay", "editor@2", "--kind", "sft"], "--replay takes kind and samples as they are"),
        ],
    )
    def test_what_cannot_be_meant_is_a_usage_error(self, ready, arguments, message):
        result = strop("update", "editor", *arguments)
        assert result.exit_code == 2 and message in " ".join(result.output.split())

    def test_a_dry_run_waits_for_its_numbers_and_keeps_nothing(self, project, ready, monkeypatch):
        tried = Tried(steps=[{"loss": 2.0}], load_s=0.1, seconds=0.2, tokens_per_s=9.0, peak_bytes=None, device="cpu")

        def updater_works(seconds: float) -> None:
            job = claim_next(["updater"], "test")
            assert job is not None
            dry_run_job(job, lambda trial, should_stop: tried, beat=lambda: None)

        monkeypatch.setattr("strop.commands.update.time.sleep", updater_works)
        found = strop_json("update", "editor", "--kind", "sft", "--dry-run")
        assert (found["kind"], found["state"], found["num_samples"], found["steps"]) == ("sft", "done", 2, tried.steps)
        with tenant(project.id):
            assert not UpdateRun.objects.exists()
