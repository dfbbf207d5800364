"""A trainer behind the `tinker` API: weights and optimizer are on a service, the loop stays here.

Checked against the SDK's own types; never run on a real service. Needs the extra `tinker`; nothing else imports it.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tinker import types

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import UpdateFailed
from rl_online.training.objective import Objective
from rl_online.training.samples import TrainingSample
from rl_online.training.tinker_requests import CROSS_ENTROPY, adam_params, imitated, loss_requests, refuse_for_tinker
from rl_online.training.trainer import ForwardBackward, Sampled, StepReport

REMOTE = "tinker.json"  # of a state: where the service keeps it


class TinkerTrainer:
    """Implements Trainer over a `tinker.TrainingClient`."""

    def __init__(self, client: Any, *, config: UpdateConfig, name: str) -> None:
        """`name` begins the names of the states it saves. Raises ContradictoryUpdate for what it cannot express."""
        refuse_for_tinker(config)
        self.client = client
        self.config = config
        self.name = name
        self.optimizer_step = 0

    def forward_backward(self, samples: Sequence[TrainingSample], objective: Objective) -> ForwardBackward:
        requests = loss_requests(samples, objective)
        sent = [
            self.client.forward_backward(one.data, one.loss_fn, loss_fn_config=one.loss_fn_config) for one in requests
        ]
        logprobs: list[list[float]] = [[] for _ in samples]
        for request, future in zip(requests, sent, strict=True):
            for place, output in zip(request.places, future.result().loss_fn_outputs, strict=True):
                logprobs[place] = _trained(samples[place], output)
        flat = torch.tensor([value for row in logprobs for value in row])
        terms = objective.terms(flat, samples)  # by our own formulas, of what the service saw
        return ForwardBackward(
            losses={name: float(term) for name, term in terms.items()},
            logprobs=logprobs,
            num_passes=len(requests),
            padding_share=0.0,
            padding_share_unsorted=0.0,
        )

    def optim_step(self, *, discard: bool = False, lr_scale: float = 1.0) -> StepReport:
        """Raises UpdateFailed for a gradient to be dropped: the service cannot."""
        if discard:
            raise UpdateFailed("a step is to be skipped, but tinker cannot drop a gradient; train embedded instead")
        metrics = self.client.optim_step(adam_params(self.config, lr_scale=lr_scale)).result().metrics or {}
        self.optimizer_step += 1
        return StepReport(is_applied=True, grad_norm=metrics.get("grad_norm", float("nan")))

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        outputs = self.client.forward([imitated(one, 1.0) for one in samples], CROSS_ENTROPY).result().loss_fn_outputs
        return [_trained(sample, output) for sample, output in zip(samples, outputs, strict=True)]

    def divergences(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        return [[] for _ in samples]  # nobody is taught: refuse_for_tinker

    def sample(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float) -> list[Sampled]:
        sampler = self.client.save_weights_and_get_sampling_client()
        params = types.SamplingParams(max_tokens=max_new_tokens, temperature=temperature)
        sent = [
            sampler.sample(types.ModelInput.from_ints(list(prompt)), num_samples=1, sampling_params=params)
            for prompt in prompts
        ]
        drawn = [future.result().sequences[0] for future in sent]
        return [Sampled(token_ids=list(one.tokens), logprobs=list(one.logprobs or [])) for one in drawn]

    def save_weights(self, folder: Path) -> dict[str, float]:
        raise UpdateFailed("weights trained by tinker stay with its service; download the adapter from there")

    def save_state(self, folder: Path) -> None:
        saved = self.client.save_state(f"{self.name}-{self.optimizer_step:06d}-{time.time_ns()}").result()
        values = {"path": saved.path, "optimizer_step": self.optimizer_step}
        (folder / REMOTE).write_text(json.dumps(values), "utf-8")

    def save_snapshot(self, folder: Path) -> None:
        self.save_state(folder)

    def load_snapshot(self, folder: Path) -> None:
        values = json.loads((folder / REMOTE).read_text("utf-8"))
        self.client.load_state_with_optimizer(values["path"]).result()
        self.optimizer_step = values["optimizer_step"]


def _trained(sample: TrainingSample, output: Any) -> list[float]:
    values = output["logprobs"].to_torch().tolist()
    return [values[position - 1] for position in sample.positions]
