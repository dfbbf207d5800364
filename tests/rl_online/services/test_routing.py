"""Which checkpoint answers for a name."""

from uuid import UUID, uuid4

import pytest

from registry.models import Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.models import EngineHolding
from rl_online.services import promotion
from rl_online.services.routing import ModelNotFound, is_in_share, model_names, resolve

pytestmark = pytest.mark.django_db


def hold(checkpoint: Checkpoint) -> None:
    EngineHolding.objects.create(engine="e1", checkpoint=checkpoint, tree_digest=checkpoint.tree_digest)


def test_a_policy_follows_its_deployment_and_a_version_is_itself(project, policy, promoted, judged):
    judged("accept"), judged("reject")
    promoted()
    assert resolve(project.id, "editor", sticky="s").name == "editor@2"
    named = resolve(project.id, "editor@1", sticky="s")
    assert (named.name, named.engine_name, named.follows_deployment) == ("editor@1", f"{policy.id}@1", False)


@pytest.mark.parametrize(
    "model", ["nobody", "editor@9", "editor@", "editor@x", "editor@1@1", "@1", "editor@9999999999"]
)
def test_an_unknown_name_is_not_found(project, policy, model):
    with pytest.raises(ModelNotFound):
        resolve(project.id, model, sticky="s")


def test_another_projects_policy_is_not_found(other_project, policy):
    with pytest.raises(ModelNotFound):
        resolve(other_project.id, "editor", sticky="s")
    assert model_names(other_project.id) == []


def test_the_predecessor_answers_until_an_engine_holds_what_serves(project, policy, promoted, judged):
    judged("accept"), judged("reject")
    with tenant(project.id):
        hold(Checkpoint.objects.get(version=1))
    second = promoted()
    assert resolve(project.id, "editor", sticky="s").version == 1
    with tenant(project.id):
        hold(second)
    assert resolve(project.id, "editor", sticky="s").version == 2
    with tenant(project.id):
        promotion.roll_back(policy, actor="ada", reason="worse")
        EngineHolding.objects.filter(checkpoint__version=1).delete()
    assert resolve(project.id, "editor", sticky="s").version == 2


@pytest.fixture
def canary(project, policy, judged, sealed, trained) -> Checkpoint:
    """Version 2, held by an engine, for a quarter of the users."""
    judged("accept"), judged("reject")
    candidate = trained(sealed())
    with tenant(project.id):
        hold(candidate)
        Deployment.objects.update(canary=candidate, canary_share=0.25)
    return candidate


def versions(project, num: int = 200) -> list[int]:
    return [resolve(project.id, "editor", sticky=f"user-{number}").version for number in range(num)]


def test_a_canary_gets_its_share_and_a_user_stays_on_one_side(project, canary):
    found = versions(project)
    assert found == versions(project)
    assert 13 <= found.count(2) <= 87  # 50 expected; six sigma is 37


def test_a_larger_share_keeps_everyone_who_was_in_the_smaller_one(project, canary):
    before = versions(project)
    with tenant(project.id):
        Deployment.objects.update(canary_share=0.5, fence=9)
    after = versions(project)
    assert all(new == 2 for old, new in zip(before, after, strict=True) if old == 2)
    assert after.count(2) > before.count(2)


def test_a_canary_that_no_engine_holds_gets_nobody(project, canary):
    with tenant(project.id):
        EngineHolding.objects.all().delete()
    assert set(versions(project, 40)) == {1}


def test_a_share_of_nothing_and_of_everything():
    canary = uuid4()
    assert not any(is_in_share(str(number), canary, 0.0) for number in range(100))
    assert all(is_in_share(str(number), canary, 1.0) for number in range(100))


def test_another_canary_draws_anew():
    first, second = UUID(int=1), UUID(int=2)
    drawn = [(is_in_share(str(n), first, 0.5), is_in_share(str(n), second, 0.5)) for n in range(200)]
    assert 60 <= sum(a == b for a, b in drawn) <= 140
