"""Reward models and PPO as stages: what they seal, whom they ask, and both trained by the updater."""

import itertools
import random
from uuid import UUID, uuid4

import pytest
import torch
from django.conf import settings
from django.utils import timezone

from registry.errors import InvalidInput, NotFound
from registry.services import create_project
from registry.tenancy import tenant
from rl_online.collecting import user_hash
from rl_online.commands import updater
from rl_online.models import RewardModel, UpdateMetric, UpdateRun
from rl_online.policy.tiny import build_tiny_policy
from rl_online.rewards.batch import read_batch
from rl_online.services import disposal, retention, runs, updates
from rl_online.services.disposal import Report
from rl_online.services.reward_models import find_reward_model, folder_of_reward_model
from rl_online.services.stages import ppo
from rl_online.services.stages.starting import ask
from rl_online.services.updater import Made
from rl_online.training.overoptimisation import curve_of
from rl_online.training.pairs import part_of, person_of
from rl_online.weights.publish import adopt_folder

pytestmark = pytest.mark.django_db
QUICK = {"learning_rate": 3e-3, "minibatch_size": 8, "micro_batch_tokens": 2048, "min_pairs": 4, "heldout_samples": 0}


@pytest.fixture
def project(db, monkeypatch):
    """Always with the same id: whom chance puts in which half, and what is drawn, follow from it."""
    with monkeypatch.context() as patched:
        patched.setattr("registry.services.new_uuid", lambda: UUID(int=7))
        return create_project("editor", "Editor")


@pytest.fixture
def held(policy, tmp_path):
    """The policy's weights, where the product looks for them."""
    source = build_tiny_policy(tmp_path / "source", [f"w{number}" for number in range(24)], dtype=torch.float32)
    adopt_folder(source, settings.HOME.checkpoints / str(policy.id) / "v000001", policy=str(policy.id), version=1)


@pytest.fixture
def liked(project, judged, say_signal):
    """liked("proxy", 6): so many new people of that half like an answer with token 7 better than one without."""
    rng, names = random.Random(3), (f"u{number}" for number in itertools.count())

    def make(part: str, count: int) -> None:
        for user in itertools.islice((one for one in names if part_of(user_hash(project.id, one)) == part), count):
            better, worse = [7, rng.randrange(8, 20), 0], [rng.randrange(8, 20), rng.randrange(8, 20), 0]
            for name, ids in (("good", better), ("bad", worse)):
                judged(
                    None,
                    id=f"{name}-{user}",
                    user=user,
                    completion=f"{name} {user}",
                    completion_token_ids=ids,
                    logprobs=[-0.1] * len(ids),
                    weight_versions=[],
                )
            say_signal(f"good-{user}", "preference", text=f"bad-{user}", user=user)

    return make


@pytest.fixture
def start(project, policy):
    def make(kind, *, overrides=None, **options) -> UpdateRun:
        with tenant(project.id):
            return updates.trigger_update(
                policy, kind=kind, actor="ada", options={"at_least": 4} | options, overrides=QUICK | (overrides or {})
            )

    return make


@pytest.fixture
def by_updater(project):
    """Train a run as the updater does; what its runner gave back."""

    def train(run):
        with tenant(project.id):
            order = runs.begin(run.id)
        steps = []
        made = updater.train(order, steps.append, lambda: False)
        with tenant(project.id):
            runs.record_steps(run.id, steps)
            if isinstance(made, Made):
                runs.complete(run.id, result=made.result, timings=made.timings)
            else:
                runs.finish(run.id, tree_digest=made.tree_digest, num_bytes=made.num_bytes,
                            optimizer_step=made.optimizer_step, timings=made.timings)  # fmt: skip
        return made

    return train


@pytest.fixture
def registered(project, policy, start, liked):
    """registered("proxy") -> the reward model of a run that is over, without files."""

    def make(part):
        liked("proxy" if part == "all" else part, 6)
        run = start("reward_model", part=part)
        with tenant(project.id):
            runs.begin(run.id)
            result = {"tree_digest": "d" * 64, "num_bytes": 5, "report": {"part": part, "num_trained": 5}}
            runs.complete(run.id, result=result, timings={"train": 1.0})
            return RewardModel.objects.select_related("run", "policy").get(run=run)

    return make


def test_each_half_of_the_people_is_sealed_apart(project, start, liked):
    liked("proxy", 6), liked("gold", 6)
    sealed = {}
    for part in ("proxy", "gold"):
        run = start("reward_model", part=part)
        sealed[part] = {person_of(one.row) for one in read_batch(settings.HOME.batches / run.batch.digest).samples}
        assert run.inputs == {"part": part}
        with tenant(project.id):
            UpdateRun.objects.filter(pk=run.pk).update(state="done")
    assert len(sealed["proxy"] | sealed["gold"]) == 12 and sealed["proxy"].isdisjoint(sealed["gold"])
    assert all(part_of(person) == part for part, people in sealed.items() for person in people)


def test_too_few_people_are_refused_before_anything_is_spent(project, start, liked):
    liked("proxy", 6)
    with pytest.raises(InvalidInput, match=r"leave 4 to learn from .* min_pairs asks for 12"):
        start("reward_model", overrides={"min_pairs": 12})
    with tenant(project.id):
        assert not UpdateRun.objects.exists()


def test_a_reward_model_is_made_and_ppo_trained_against_it(
    project,
    policy,
    held,
    start,
    liked,
    judged,
    by_updater,
):
    for part in ("proxy", "gold"):
        liked(part, 8)
        made = by_updater(start("reward_model", part=part, overrides={"epochs": 3}))
        assert made.result["report"]["part"] == part
    with tenant(project.id):
        proxy, gold = RewardModel.objects.select_related("run", "policy").order_by("created_at")
        assert (folder_of_reward_model(proxy) / "reward.json").is_file() and proxy.run.state == "done"
        assert find_reward_model(policy, str(proxy.run.version), field="x") == proxy
        assert UpdateMetric.objects.filter(run=proxy.run).count() == proxy.run.num_steps
    for number in range(8):
        judged("accept", prompt_token_ids=[5, 8 + number])
    quick = {"ppo_iterations": 2, "ppo_prompts": 8, "ppo_watched": 4, "ppo_max_new_tokens": 3, "gold_margin": 9.0}
    run = start("ppo", overrides=quick | {"learning_rate": 1e-2})
    assert run.inputs == {"reward_model": str(proxy.pk), "gold": str(gold.pk)}
    by_updater(run)
    with tenant(project.id):
        run.refresh_from_db()
        points = curve_of(list(UpdateMetric.objects.filter(run=run).order_by("step").values_list("values", flat=True)))
        assert [one.iteration for one in points] == [0, 1, 2] and all(one.gold is not None for one in points)
        assert run.state == "proving" and run.checkpoint.version == run.version


def test_the_newest_judges_are_asked_and_may_be_named(project, policy, registered):
    old, gold, new = registered("proxy"), registered("gold"), registered("proxy")
    with tenant(project.id):

        def judges(**options):
            return ppo.judges_of(ask(ppo.STAGE, policy, options=options))

        assert judges() == {"reward_model": new, "gold": gold}
        assert judges(reward_model=str(old.pk), gold="none") == {"reward_model": old}
        assert judges(reward_model=str(old.pk)) == {"reward_model": old, "gold": gold}
        with pytest.raises(InvalidInput, match=r"from part gold of the people and .* from part proxy"):
            judges(reward_model=str(gold.run.version), gold=str(new.run.version))
        for named in (str(uuid4()), "99", "nonsense"):
            with pytest.raises(InvalidInput, match="is no reward model of editor"):
                judges(reward_model=named)


def test_a_newer_model_of_all_people_does_not_send_away_who_watches(project, policy, registered):
    proxy, gold, everybody = registered("proxy"), registered("gold"), registered("all")
    with tenant(project.id):

        def judges(**options):
            return ppo.judges_of(ask(ppo.STAGE, policy, options=options))

        assert judges() == {"reward_model": proxy, "gold": gold}
        with pytest.raises(InvalidInput, match="or gold none"):
            judges(reward_model=str(everybody.pk))
        assert judges(reward_model=str(everybody.pk), gold="none") == {"reward_model": everybody}
        assert judges(gold="none") == {"reward_model": everybody}
        RewardModel.objects.filter(pk=proxy.pk).update(files_deleted_at=timezone.now())
        with pytest.raises(InvalidInput, match="--option part=proxy"):
            judges()


def test_without_a_reward_model_ppo_says_how_to_make_one(project, policy, start):
    with pytest.raises(InvalidInput, match="strop update editor --kind reward_model"):
        start("ppo")


def test_collection_keeps_the_newest_of_each_part_and_what_is_trained_against(project, policy, registered):
    old, gold, new = registered("proxy"), registered("gold"), registered("proxy")
    with tenant(project.id):
        rows = [old, gold, new]
        for row in rows:
            folder_of_reward_model(row).mkdir(parents=True)
            (folder_of_reward_model(row) / "reward.json").write_text("{}")
        assert {row.folder for row in rows} <= disposal._known().folders
    report = Report(is_dry_run=False)
    retention.collect(project.id, actor="test", report=report)
    with tenant(project.id):
        old.refresh_from_db()
        assert str(old) in report.deleted and old.files_deleted_at and not folder_of_reward_model(old).exists()
        assert folder_of_reward_model(new).exists() and folder_of_reward_model(gold).exists()
        with pytest.raises(NotFound, match="are deleted"):
            ppo.folders({"reward_model": str(old.pk)})
        RewardModel.objects.filter(pk=new.pk).update(files_deleted_at=timezone.now())
        with pytest.raises(InvalidInput, match="there are"):
            find_reward_model(policy, str(new.pk), field="reward_model")
