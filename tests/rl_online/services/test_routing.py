"""Which checkpoint answers for a name."""

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


def test_a_canary_gets_its_share_and_a_session_stays_on_its_side(project, policy, judged, sealed, trained):
    judged("accept"), judged("reject")
    candidate = trained(sealed())
    with tenant(project.id):
        Deployment.objects.update(canary=candidate, canary_share=0.25)
    versions = [resolve(project.id, "editor", sticky=f"session-{number}").version for number in range(200)]
    again = [resolve(project.id, "editor", sticky=f"session-{number}").version for number in range(200)]
    assert versions == again
    assert 30 <= versions.count(2) <= 70  # 50 expected; six sigma is 37


def test_a_share_of_nothing_and_of_everything():
    assert not any(is_in_share(str(number), 1, 0.0) for number in range(100))
    assert all(is_in_share(str(number), 1, 1.0) for number in range(100))
