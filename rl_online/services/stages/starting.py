"""Looking at, sealing and starting a stage, whichever it is. Inside a tenant."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings

from registry.models import Deployment, Policy
from rl_online.collecting import line_of
from rl_online.models import LearningPlan
from rl_online.rewards.batch import seal_batch
from rl_online.services.plans import effective_config
from rl_online.services.sealing import Prepared, TooFewSamples
from rl_online.services.stages.stage import Ask, Stage, parse_options


def ask(
    stage: Stage,
    policy: Policy,
    *,
    options: Mapping[str, object] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Ask:
    """What is asked of the stage. Settings are the plan's, the stage's preset on top, then what somebody says.

    Raises InvalidInput naming the option or setting that is wrong.
    """
    plan = LearningPlan.objects.select_related("reward_spec").get(policy=policy)
    deployment = Deployment.objects.select_related("checkpoint").get(policy=policy, alias="default")
    return Ask(
        policy=policy,
        plan=plan,
        line=line_of(policy, deployment.checkpoint),
        options=parse_options(stage, options or {}),
        config=effective_config(plan, {**stage.preset, **(overrides or {})}),
    )


def prepare_stage(stage: Stage, asked: Ask, *, root: Path | None = None, at_most: int | None = None) -> Prepared:
    """Seal what the stage gathers, under the home's batches unless another `root` is named.

    With `at_most` for a dry run: one unit is enough. Raises TooFewSamples.
    """
    started = time.monotonic()
    needed = 1 if at_most is not None else stage.look(asked).num_needed
    contents = stage.gather(asked, at_most)
    if contents.num_units < max(1, needed):
        raise TooFewSamples(too_few(stage, contents.num_units, max(1, needed)))
    seal = contents.seal or partial(seal_batch, contents.samples)
    return Prepared(
        policy=asked.policy,
        plan=asked.plan,
        parent=asked.line.serving,
        kind=stage.kind,
        config=asked.config,
        sealed=seal(root or settings.HOME.batches),
        samples=contents.samples,
        lineage=contents.lineage,
        dropped=contents.dropped,
        seal_s=time.monotonic() - started,
        update_kind=stage.kind,
        options=dict(asked.options),
        inputs=contents.inputs,
    )


def too_few(stage: Stage, num_ready: int, num_needed: int) -> str:
    return f"{num_ready} of {num_needed} {stage.unit} ready, {num_needed - num_ready} more needed"
