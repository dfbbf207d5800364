"""The trainer over several processes (FSDP2): each rank holds a share of every weight and takes a share of the passes.

Rank 0 leads: it runs the update as one process would, and every verb it calls on its trainer is called on all ranks
with the same arguments. Losses and gradients are summed over ranks, never averaged: the objective's counts cover the
whole step already. What is written has the format of one process, so an update may go on with another number of ranks.

Not here: starting the processes (torchrun).
"""

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from rl_online.policy.load import choose_device, load_policy
from rl_online.policy.logprobs import run_whole
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.local import LocalTrainer
from rl_online.training.memory import is_out_of_memory
from rl_online.training.objective import Objective
from rl_online.training.optimizer import MasterOptimizer
from rl_online.training.samples import Stream, TrainingSample
from rl_online.training.scoring import by_sample, one_pass
from rl_online.training.trainer import ForwardBackward, Sampled, StepReport, Trainer

WAIT = datetime.timedelta(hours=12)  # for a rank that loads, scores or writes alone; a dead one closes its connection
IDLE = [TrainingSample(token_ids=[0, 0], positions=[1], weights={Stream.CE: 0.0}, reward=0.0)]


class PassesTooLarge(RuntimeError):
    """Memory ran out on a rank while the others wait for it: all must start again, with smaller passes."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__(f"memory ran out; passes of at most {max_tokens} tokens may fit")
        self.max_tokens = max_tokens


class ShardedOptimizer(MasterOptimizer):
    """Masters and moments of this rank's share of each weight; the weights are fp32 and the masters themselves."""

    def _local(self, tensor: Tensor) -> Tensor:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def _whole(self, name: str, part: Tensor) -> Tensor:
        weight = self.parameters[name]
        if part.dim() == 0 or not isinstance(weight, DTensor):
            return part
        shares = DTensor.from_local(
            part, weight.device_mesh, weight.placements, shape=weight.shape, stride=weight.stride(), run_check=False
        )
        return shares.full_tensor()

    def _part(self, name: str, whole: Tensor) -> Tensor:
        weight = self.parameters[name]
        if whole.dim() == 0 or not isinstance(weight, DTensor):
            return whole
        return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None).to_local()

    def _sum(self, value: Tensor) -> Tensor:
        dist.all_reduce(value)
        return value


class ShardedTrainer(LocalTrainer):
    """One rank's part of a trainer: each verb is called on all ranks at once and returns the same on all."""

    def __init__(self, folder: Path, *, config: UpdateConfig, max_tokens: int | None = None, **rest: Any) -> None:
        """`max_tokens` bounds a pass below what the config asks for. Raises ContradictoryUpdate."""
        refuse_for_ranks(config, dist.get_world_size())
        self.is_writer = dist.get_rank() == 0
        super().__init__(folder, config=config, **rest)
        if max_tokens is not None:
            self.layout.max_tokens = min(self.layout.max_tokens, max_tokens)

    def forward_backward(self, samples: Sequence[TrainingSample], objective: Objective) -> ForwardBackward:
        groups = self.layout.groups(samples)

        def learn(indices: list[int]) -> tuple[dict[str, float], list[list[float]]]:
            terms, values = self._learn(indices, samples, objective)
            assert terms, "samples that feed no loss: the other ranks would wait for this one's gradient"
            return terms, values

        found = self._share(groups, samples, learn)
        losses: dict[str, float] = {}
        for terms, _ in found:
            for name, loss in terms.items():
                losses[name] = losses.get(name, 0.0) + loss
        padding_share, unsorted = self.layout.padding(samples)
        return ForwardBackward(
            losses=losses,
            logprobs=_in_place(groups, [values for _, values in found], len(samples)),
            num_passes=len(groups),
            padding_share=padding_share,
            padding_share_unsorted=unsorted,
        )

    @torch.no_grad()
    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        groups = self.layout.groups(samples)

        def score(indices: list[int]) -> list[list[float]]:
            seen = one_pass(self.model, indices, samples, self.layout)
            return by_sample(seen.logp_K, [samples[index] for index in indices])

        return _in_place(groups, self._share(groups, samples, score), len(samples))

    def _share(
        self, groups: Sequence[list[int]], samples: Sequence[TrainingSample], work: Callable[[list[int]], Any]
    ) -> list[Any]:
        """`work` of each group, done by one rank each, in the order of the groups.

        Every pass gathers weights from all ranks, so one without a group left still takes part in it.
        """
        size, mine = dist.get_world_size(), []
        try:
            for start in range(0, len(groups), size):
                place = start + dist.get_rank()
                if place < len(groups):
                    mine.append(work(groups[place]))
                else:
                    self._idle()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.layout.halve(samples, str(error))
            raise PassesTooLarge(self.layout.max_tokens) from error
        parts: list[list[Any]] = [[] for _ in range(size)]
        dist.all_gather_object(parts, mine)
        return [parts[place % size][place // size] for place in range(len(groups))]

    def _idle(self) -> None:
        nothing = one_pass(self.model, [0], IDLE, self.layout).logp_K.sum() * 0.0
        if torch.is_grad_enabled():
            nothing.backward()

    def _load(self, folder: Path) -> PreTrainedModel:
        return load_policy(folder)  # into plain memory: only this rank's shares go to its device

    def _open_optimizer(self, config: UpdateConfig) -> MasterOptimizer:
        dtypes = {name: parameter.dtype for name, parameter in self.model.named_parameters()}
        shard(self.model, init_device_mesh(self.device.type, (dist.get_world_size(),)))
        return ShardedOptimizer(self.model.named_parameters(), config, dtypes=dtypes)


def refuse_for_ranks(config: UpdateConfig, num_ranks: int) -> None:
    """Raises ContradictoryUpdate for what sharded weights cannot do, and over several ranks what one process must."""
    if config.optimizer != "adamw":
        raise ContradictoryUpdate(f"optimizer is {config.optimizer!r}, which needs whole matrices; choose adamw")
    if config.lora_rank:
        raise ContradictoryUpdate(f"lora_rank is {config.lora_rank}, but an adapter trains in one process; set it to 0")
    if config.distill_weight and num_ranks > 1:
        raise ContradictoryUpdate("distill_weight is set, but a teacher is asked in one process; set it to 0")


def shard(model: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Spread each weight over the ranks, in fp32: gathered in the model's dtype for a pass, gradients summed in fp32.

    Raises ContradictoryUpdate for a model of several dtypes.
    """
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if len(dtypes) > 1:
        raise ContradictoryUpdate(f"the weights have the dtypes {sorted(map(str, dtypes))}; over ranks they need one")
    for parameter in model.parameters():
        parameter.data = parameter.data.float()
    policy = MixedPrecisionPolicy(param_dtype=dtypes.pop(), reduce_dtype=torch.float32, cast_forward_inputs=False)
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            fully_shard(module, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    setattr(model, run_whole.__name__, lambda work: work())
    register_fsdp_forward_method(model, run_whole.__name__)


def _in_place(groups: Sequence[list[int]], values: Sequence[list[list[float]]], count: int) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in range(count)]
    for indices, rows in zip(groups, values, strict=True):
        for index, row in zip(indices, rows, strict=True):
            found[index] = row
    return found


class Leader:
    """Implements Trainer on rank 0: what is asked of it, all ranks do."""

    def __init__(self, folder: Path, **options: Any) -> None:
        """The arguments of ShardedTrainer."""
        _announce("open", folder, **options)
        self._mine = ShardedTrainer(folder, **options)

    @property
    def optimizer_step(self) -> int:
        return self._mine.optimizer_step

    def forward_backward(self, samples: Sequence[TrainingSample], objective: Objective) -> ForwardBackward:
        _announce("forward_backward", samples, objective)
        return self._mine.forward_backward(samples, objective)

    def optim_step(self, *, discard: bool = False, lr_scale: float = 1.0) -> StepReport:
        _announce("optim_step", discard=discard, lr_scale=lr_scale)
        return self._mine.optim_step(discard=discard, lr_scale=lr_scale)

    def logprobs(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        _announce("logprobs", samples)
        return self._mine.logprobs(samples)

    def divergences(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        return self._mine.divergences(samples)  # nobody is taught: refuse_for_ranks

    def sample(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float) -> list[Sampled]:
        _announce("sample", prompts, max_new_tokens=max_new_tokens, temperature=temperature)
        return self._mine.sample(prompts, max_new_tokens=max_new_tokens, temperature=temperature)

    def save_weights(self, folder: Path) -> dict[str, float]:
        _announce("save_weights", folder)
        return self._mine.save_weights(folder)

    def save_state(self, folder: Path) -> None:
        _announce("save_state", folder)
        self._mine.save_state(folder)

    def save_snapshot(self, folder: Path) -> None:
        _announce("save_snapshot", folder)
        self._mine.save_snapshot(folder)

    def load_snapshot(self, folder: Path) -> None:
        _announce("load_snapshot", folder)
        self._mine.load_snapshot(folder)


def _announce(verb: str, *args: Any, **options: Any) -> None:
    dist.broadcast_object_list([(verb, args, options)], src=0, device=torch.device("cpu"))


def follow() -> None:
    """What the other ranks do: each thing the leader does, until it has no more to do."""
    trainer: Trainer | None = None
    while True:
        said: list[Any] = [None]
        dist.broadcast_object_list(said, src=0, device=torch.device("cpu"))
        verb, args, options = said[0]
        if verb == "end":
            return
        if verb == "open":
            trainer = ShardedTrainer(*args, **options)
        else:
            getattr(trainer, verb)(*args, **options)


@contextmanager
def joined(device: str) -> Iterator[bool]:
    """Within the block this process is one rank of those torchrun started; gives whether it is the one that leads.

    The others are to `follow`, and are let go when the leader's block ends. An error ends the process, and torchrun
    then ends the others.
    """
    chosen = choose_device(device)
    if chosen.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo" + (",cuda:nccl" if chosen.type == "cuda" else ""), timeout=WAIT)
    yield dist.get_rank() == 0
    if dist.get_rank() == 0:
        _announce("end")
    dist.destroy_process_group()
