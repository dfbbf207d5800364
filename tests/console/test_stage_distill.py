"""What the page of a distillation shows of its kind: the terms of its loss, and what it forgot."""

import json

from django.conf import settings
from django.urls import reverse

from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.gate.forgetting import DocumentLoss, Forgetting
from rl_online.models import UpdateMetric, UpdateRun
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.state import FORGETTING, state_folder


def page(as_owner, project, loop, **changes) -> str:
    with tenant(project.id):
        run = UpdateRun.objects.get(policy=loop.policy, version=2)
        config = UpdateConfig(distill_weight=0.5, base_kl=0.1, **changes)
        UpdateRun.objects.filter(pk=run.pk).update(
            kind="distill", config=config.to_json(), inputs={"teacher": "<b>big@1</b>"}
        )
        UpdateMetric.objects.filter(run=run, step=1).update(values={"kl_teacher": 1.25, "heldout_kl_teacher": 1.5})
        last = UpdateMetric.objects.filter(run=run).latest("step")
        last.values = {"kl_teacher": 0.75, "loss_distill": 0.375, "advantage": 0.2, "loss_rl": -0.125, "kl_base": 0.03}
        last.save()
    response = as_owner.get(reverse("console:update", kwargs={"project": "editor", "update": run.pk}))
    assert response.status_code == 200
    return response.content.decode()


def test_each_term_stands_with_its_coefficient_and_its_measured_distance(as_owner, project, loop):
    html = page(as_owner, project, loop)
    row = html[html.index("KL(teacher to policy)") : html.index("KL(policy to base)")]
    assert [number in row for number in ("0.5", "1.25", "0.75", "0.375", "−0.125")] == [True] * 5
    assert "&lt;b&gt;big@1" in html and 'data-figure="term-Teacher"' in html
    assert "general text: unmeasured, nothing was measured after its training" in html


def test_an_opinion_that_is_an_advantage_is_named_so(as_owner, project, loop):
    html = page(as_owner, project, loop, distill_estimator="sampled")
    assert "l − log p(teacher)" in html and "the teacher&#x27;s in it" in html


def test_what_was_forgotten_is_said(as_owner, project, loop):
    with tenant(project.id):
        checkpoint = Checkpoint.objects.get(policy=loop.policy, version=2)
    folder = state_folder(settings.HOME.checkpoints / checkpoint.folder)
    folder.mkdir(parents=True)
    lost = DocumentLoss(name="a", num_tokens=10, num_bytes=40, candidate_nats=31.0, base_nats=30.0)
    (folder / FORGETTING).write_text(json.dumps(Forgetting(texts="own", documents=(lost, lost)).to_json()))
    assert "general text: +0.100 nats per token on 2 documents of own" in page(as_owner, project, loop)
