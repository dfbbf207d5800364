"""A corpus is asked for by name, made by the updater in slices, and trained on by its digest."""

import hashlib
import os
import shutil
import time

import pytest

from evals.models import Benchmark, Problem
from evals.overlap import hashed
from jobs.models import Job
from jobs.services import NotYet, claim_next
from registry.errors import Conflict, InvalidInput, NotFound
from registry.tenancy import tenant
from rl_online.corpus.leaks import Problems
from rl_online.corpus.shards import open_corpus
from rl_online.models import Corpus, UpdateRun
from rl_online.services import corpora, runs, updates
from rl_online.services.corpora import add_corpus, build_job, find_corpus, folder_of_corpus, work_folder
from rl_online.services.disposal import Report
from rl_online.services.plans import folder_of
from rl_online.services.reset import reset_project
from rl_online.services.retention import collect
from rl_online.services.stages import midtrain
from rl_online.services.stages.starting import ask, prepare_stage
from rl_online.training.general_texts import builtin_texts
from strop.home import Home
from tests.rl_online.corpus.making import byte_tokenizer, code, write_sources

pytestmark = pytest.mark.django_db
OPTIONS = {"row_tokens": 256, "shard_tokens": 1024, "heldout": 0}


@pytest.fixture
def source(tmp_path, settings, project, policy):
    """A folder that may be read, with twelve documents; the policy's checkpoint has a tokenizer."""
    settings.CORPUS_ROOT = str(tmp_path)
    with tenant(project.id):
        folder = folder_of(policy.checkpoints.get())
    byte_tokenizer(folder)
    yield write_sources(tmp_path / "source")
    for path in (folder, settings.HOME.corpora):
        shutil.rmtree(path, ignore_errors=True)


def add(project, policy, source="source", name="ours", **options) -> Corpus:
    with tenant(project.id):
        return add_corpus(name, source, policy, options=OPTIONS | options, actor="ada")


def work(*, is_stopping=lambda: False) -> None:
    job = claim_next(["updater"], "test")
    assert job is not None
    build_job(job, beat=lambda: None, is_stopping=is_stopping)


def made(project, policy, **options) -> Corpus:
    row = add(project, policy, **options)
    work()
    return reread(project, row)


def reread(project, row: Corpus) -> Corpus:
    with tenant(project.id):
        return Corpus.objects.select_related("made_for__policy").get(pk=row.pk)


def test_a_folder_becomes_a_corpus_with_its_counts_and_its_digest_for_a_name(project, policy, source):
    row = made(project, policy)
    corpus = open_corpus(folder_of_corpus(row))
    assert (str(row), row.state, row.error, row.digest) == ("ours@1", "ready", "", corpus.digest)
    assert (row.num_rows, row.num_tokens, row.facts) == (corpus.num_rows, corpus.num_tokens, corpus.facts)
    assert not work_folder(row).exists()


def test_what_holds_a_problem_of_the_project_is_left_out(project, policy, source):
    with tenant(project.id):
        benchmark = Benchmark.objects.create(name="held", version=1)
        Problem.objects.create(benchmark=benchmark, problem_id="p", prompt=code(5))
    row = made(project, policy)
    assert row.facts["dropped"] == {"in_benchmark": 1}


def test_what_the_gate_measures_forgetting_on_is_left_out(project, settings, tmp_path):
    home = Home(tmp_path / "home")
    home.texts.mkdir(parents=True)
    (home.texts / "own.txt").write_text(f"{code(3)}\n\nnobody wrote this")
    (home.texts / "broken.jsonl").write_text("{")
    settings.HOME = home
    with tenant(project.id):
        problems = Problems(corpora._problems())
    assert problems.leak_into(hashed(code(3))) and not problems.leak_into(hashed(code(4)))
    assert all(problems.leak_into(hashed(f"so says {one.text}")) for one in builtin_texts().documents)


@pytest.mark.parametrize("source_given", ["/etc", "../..", "escape"])
def test_what_lies_outside_of_the_one_folder_is_refused(project, policy, source, source_given):
    (source.parent / "escape").symlink_to("/etc")
    with pytest.raises(InvalidInput, match="outside of STROP_CORPUS_ROOT"):
        add(project, policy, source_given)


def test_without_a_folder_that_may_be_read_none_is(project, policy, source, settings):
    settings.CORPUS_ROOT = ""
    with pytest.raises(InvalidInput, match="set STROP_CORPUS_ROOT"):
        add(project, policy)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"source": "nothing"}, "no such folder"),
        ({"name": "Not a name"}, "small letters"),
        ({"fim": 2.0}, "fim is 2.0"),
        ({"languages": ["pyton"]}, "languages names pyton"),
        ({"row_length": 5}, "row_length is not an option"),
        ({"fim": 0.5, "fim_tokens": ["<a>", "<b>", "<c>"]}, "fim_tokens names <a>, <b>, <c>"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(project, policy, source, given, says):
    with pytest.raises(InvalidInput, match=says):
        add(project, policy, **given)


def test_a_name_is_made_once_at_a_time_and_then_gets_a_new_version(project, policy, source):
    add(project, policy)
    with pytest.raises(Conflict, match="ours is being made"):
        add(project, policy)
    work()
    assert str(made(project, policy, fim=0.5)) == "ours@2"
    with tenant(project.id):
        assert (str(find_corpus("ours")), str(find_corpus("ours@1"))) == ("ours@2", "ours@1")


def test_a_build_takes_slices_of_the_updaters_time_and_ends_the_same(project, policy, source, monkeypatch):
    whole = made(project, policy)
    monkeypatch.setattr(corpora, "SLICE_S", 0.0)
    row = add(project, policy, name="sliced")
    job = claim_next(["updater"], "test")
    slices = 0
    while reread(project, row).state != "ready":
        slices += 1
        try:
            build_job(job, beat=lambda: None, is_stopping=lambda: False)
        except NotYet:
            continue
    assert (reread(project, row).digest, slices > 2) == (whole.digest, True)


def test_an_updater_that_stops_gives_the_build_back(project, policy, source):
    row = add(project, policy)
    with pytest.raises(NotYet, match="the updater stops"):
        work(is_stopping=lambda: True)
    assert reread(project, row).state == "building"


def test_a_source_that_is_gone_fails_with_the_reason_and_can_be_asked_for_again(project, policy, source):
    row = add(project, policy)
    os.rename(source, source.with_name("elsewhere"))
    work()
    found = reread(project, row)
    assert (found.state, "no such folder" in found.error, work_folder(row).exists()) == ("failed", True, False)
    assert made(project, policy, source="elsewhere").state == "ready"


def test_a_corpus_whose_job_was_given_up_has_failed_and_can_be_asked_for_again(project, policy, source):
    row = add(project, policy)
    work_folder(row).mkdir(parents=True)
    updates.consider_all()
    assert reread(project, row).state == "queued"
    Job.objects.update(state="quarantined", last_error="out of memory")
    updates.consider_all()
    found = reread(project, row)
    assert (found.state, found.error, work_folder(row).exists()) == ("failed", "out of memory", False)
    assert made(project, policy).state == "ready"


def test_a_reset_fails_what_was_not_yet_made(project, policy, source):
    done, row = made(project, policy), add(project, policy)
    with tenant(project.id):
        reset_project(project, actor="ada")
    assert (reread(project, done).state, reread(project, row).error) == ("ready", "its job is gone; ask for it again")
    assert made(project, policy).state == "ready"


def test_a_reset_leaves_alone_what_is_being_made(project, policy, source):
    row = add(project, policy)
    job = claim_next(["updater"], "test")
    with tenant(project.id):
        reset_project(project, actor="ada")
    build_job(job, beat=lambda: None, is_stopping=lambda: False)
    assert reread(project, row).state == "ready"


def test_a_corpus_of_another_project_is_not_there(project, other_project, policy, source):
    made(project, policy)
    with tenant(other_project.id), pytest.raises(NotFound):
        find_corpus("ours")


def asked_of(policy, **options):
    return ask(midtrain.STAGE, policy, options=options)


def test_the_stage_counts_rows_and_names_the_newest_corpus_of_the_policy(project, policy, source):
    row = made(project, policy)
    with tenant(project.id):
        asked = asked_of(policy)
        ready = midtrain.look(asked)
        prepared = prepare_stage(midtrain.STAGE, asked)
    assert (ready.num_ready, ready.num_tokens, ready.sources["python"]) == (row.num_rows, row.num_tokens, 4)
    assert (prepared.inputs, prepared.lineage, prepared.sealed.num_tokens) == (
        {"corpus": row.digest},
        [],
        row.num_tokens,
    )
    assert (asked.config.schedule, asked.config.packing) == ("cosine", True)


def test_a_dry_run_takes_the_first_rows_as_samples(project, policy, source, tmp_path):
    made(project, policy)
    with tenant(project.id):
        prepared = prepare_stage(midtrain.STAGE, asked_of(policy, corpus="ours@1"), root=tmp_path / "dry", at_most=2)
    assert {one.row["stage"] for one in prepared.samples} == {"midtrain"}
    assert 0 < sum(len(one.token_ids) for one in prepared.samples) <= 2 * OPTIONS["row_tokens"]


def test_a_policy_with_another_tokenizer_is_refused(project, policy, source):
    made(project, policy)
    with tenant(project.id):
        byte_tokenizer(folder_of(policy.checkpoints.get()), special=["<|endoftext|>", "<more>"])
        with pytest.raises(InvalidInput, match=r"ours@1 was made with another tokenizer than that of editor@1"):
            prepare_stage(midtrain.STAGE, asked_of(policy))


@pytest.mark.parametrize(("named", "says"), [("theirs", "there is no corpus theirs"), ("ours@1", "it is queued")])
def test_a_corpus_that_cannot_be_trained_on_is_refused_with_the_reason(project, policy, source, named, says):
    add(project, policy)
    with tenant(project.id), pytest.raises(InvalidInput, match=says):
        prepare_stage(midtrain.STAGE, asked_of(policy, corpus=named))


def test_old_versions_go_but_for_the_one_an_update_reads(project, policy, source):
    first, second, third = (made(project, policy, seed=seed, fim=0.5) for seed in range(3))
    with tenant(project.id):
        run = updates.trigger_update(policy, kind="midtrain", options={"corpus": "ours@1"}, actor="ada")
        assert runs.begin(run.id).folders == {"corpus": folder_of_corpus(first)}
    collect(project.id, actor="ada", report=(report := Report(is_dry_run=False)))
    assert [folder_of_corpus(row).is_dir() for row in (first, second, third)] == [True, False, True]
    assert (report.kinds["corpora"].count, "corpus ours@2" in report.deleted) == (1, True)
    with tenant(project.id):
        UpdateRun.objects.filter(pk=run.pk).update(state="failed")
    collect(project.id, actor="ada", report=Report(is_dry_run=False))
    assert not folder_of_corpus(first).exists() and folder_of_corpus(third).is_dir()
    with tenant(project.id), pytest.raises(InvalidInput, match="ours@1 cannot be trained on: its files are deleted"):
        prepare_stage(midtrain.STAGE, asked_of(policy, corpus="ours@1"))


@pytest.mark.parametrize(("age_s", "is_there"), [(-3600, True), (3600, False)])
def test_a_folder_that_was_made_anew_since_its_row_let_go_of_it_is_left_alone(project, policy, source, age_s, is_there):
    first, _ = (made(project, policy, seed=seed, fim=0.5) for seed in range(2))
    collect(project.id, actor="ada", report=Report(is_dry_run=False))
    folder = folder_of_corpus(first)
    assert not folder.exists()
    folder.mkdir()  # by a build whose row is not yet ready
    os.utime(folder, (time.time() - age_s,) * 2)
    collect(project.id, actor="ada", report=Report(is_dry_run=False))
    assert folder.is_dir() == is_there


def test_the_sealed_name_is_the_same_for_the_same_corpus(project, policy, source, tmp_path):
    made(project, policy)
    with tenant(project.id):
        first, again = (prepare_stage(midtrain.STAGE, asked_of(policy), root=tmp_path / "b").sealed for _ in range(2))
    data = (first.folder / midtrain.NAMED).read_bytes()
    assert first == again and first.digest == hashlib.sha256(data).hexdigest()
