"""How many tokens a CPU second trains, against TRL's GRPOTrainer and KTOTrainer, and how much memory it takes.

`python benchmarks/updater.py [--rounds 5]`. Both sides train the same fp32 network on the same samples by the same
loss, each in a process of its own with one thread, in turns. A round is one optimizer step over all samples: passes
forward and backward in micro-batches, clipping, AdamW, and every number a side reports by itself. Generation is left
out on both; KTO includes scoring the frozen reference and the mismatched pairs. The losses of the first round must
agree (KTO's is .5 by definition: policy and reference are still the same).

Micro-batches hold 8 samples at TRL, as its collator gives them, and here as many tokens as 8 of the longest would.
`scaling` is one rank against two under torchrun, by the wall.
`profile` lines say where the CPU time goes, from one more round under cProfile.
"""

import argparse
import cProfile
import importlib
import json
import multiprocessing
import os
import platform
import pstats
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

NUM_SAMPLES, MICRO_BATCH, VOCABULARY = 32, 8, 8192
PROMPT, COMPLETION = (16, 160), (4, 64)  # shortest and longest, drawn evenly
SIZES: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6, "num_attention_heads": 4}
CLIP, BETA, LR = 0.2, 0.1, 1e-6
WORDS = ["<end>", *(f"w{index}" for index in range(VOCABULARY - 1))]
COMMON = {"use_cpu": True, "bf16": False, "report_to": "none", "gradient_checkpointing": False, "disable_tqdm": True}
KTO, GRPO = "kto", "grpo"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One answer as both sides get it."""

    prompt: list[int]
    completion: list[int]
    advantage: float
    old: list[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A trainer that is ready: `step` trains on all samples once and returns the loss."""

    step: Callable[[], float]
    numbers: Callable[[], dict[str, float]]  # of the last step, beside the loss


def rows() -> list[Row]:
    draw = random.Random(0)
    found = []
    for index in range(NUM_SAMPLES):
        prompt, completion = (
            [draw.randrange(1, VOCABULARY) for _ in range(draw.randint(*bounds))] for bounds in (PROMPT, COMPLETION)
        )
        old = [-9.0 + draw.random() / 10 for _ in completion]  # about the log-probability of an untrained network
        found.append(Row(prompt=prompt, completion=completion, advantage=1.0 - 2.0 * (index % 2), old=old))
    return found


def build_policy(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    ids: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    LlamaForCausalLM(LlamaConfig(**SIZES, **ids, tie_word_embeddings=True)).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<end>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<end>").save_pretrained(folder)


# This project


def strop_side(kind: str, folder: Path, open_trainer: Callable[..., Any] | None = None) -> Side:
    from rl_online.rewards.update_config import UpdateConfig
    from rl_online.training.apply import Hooks, take_step, with_references
    from rl_online.training.local import LocalTrainer
    from rl_online.training.samples import Stream, TrainingSample

    config = UpdateConfig(
        policy_loss="ppo_clip",
        correction="none",
        clip_low=CLIP,
        clip_high=CLIP,
        dual_clip=0.0,
        min_ess=0.0,
        max_kl=0.0,
        learning_rate=LR,
        kto_beta=BETA,
        micro_batch_tokens=MICRO_BATCH * (PROMPT[1] + COMPLETION[1]),
    )
    samples = [
        TrainingSample(
            token_ids=row.prompt + row.completion + ([0] if kind == KTO else []),
            positions=list(range(len(row.prompt), len(row.prompt + row.completion) + (kind == KTO))),
            weights={Stream.PREF if kind == KTO else Stream.RL: 1.0},
            reward=row.advantage,
            advantage=row.advantage,
            behaviour=None if kind == KTO else row.old,
            proximal=None if kind == KTO else row.old,
        )
        for row in rows()
    ]
    trainer = (open_trainer or LocalTrainer)(folder, config=config, device="cpu", seed=0)
    frozen = LocalTrainer(folder, config=config, device="cpu", seed=0) if kind == KTO else None
    hooks = Hooks(on_progress=lambda progress: None, is_cancelled=lambda: False, crash=lambda name: None)
    last: dict[str, float] = {}

    def step() -> float:
        filled, partners = (
            with_references(samples, config, frozen.logprobs) if frozen else (samples, [None] * len(samples))
        )
        last.update(take_step(trainer, filled, partners, config, hooks, lr_scale=1.0))
        return last["loss"]

    return Side(step=step, numbers=lambda: last)


# TRL


def trl_side(kind: str, folder: Path) -> Side:
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "HF_DATASETS_CACHE": str(folder)}
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trl: Any = importlib.import_module("trl")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    args = {
        "output_dir": str(folder / "trl"),
        "per_device_train_batch_size": MICRO_BATCH,
        "learning_rate": LR,
        **COMMON,
    }
    accumulation = NUM_SAMPLES // MICRO_BATCH
    if kind == KTO:
        data = [
            {"prompt": _text(row.prompt) + " ", "completion": _text(row.completion), "label": row.advantage > 0}
            for row in rows()
        ]
        trainer = trl.KTOTrainer(
            model=model,
            ref_model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            args=trl.KTOConfig(max_length=sum((PROMPT[1], COMPLETION[1])) + 1, beta=BETA, **args),
            train_dataset=Dataset.from_list(data),
            processing_class=tokenizer,
        )
        batches = list(trainer.get_train_dataloader())
    else:
        trainer = trl.GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=trl.GRPOConfig(
                num_generations=2, max_completion_length=COMPLETION[1], epsilon=CLIP, epsilon_high=CLIP, **args
            ),
            train_dataset=Dataset.from_list([{"prompt": "w1"}] * MICRO_BATCH),
            processing_class=tokenizer,
        )
        batches = [_grpo_inputs(rows()[start : start + MICRO_BATCH]) for start in range(0, NUM_SAMPLES, MICRO_BATCH)]
    model = trainer.model
    model.train()
    trainer.current_gradient_accumulation_steps = 1  # the window's count is in the loss already
    optimizer = trainer.create_optimizer()

    def loss_of(batch: dict[str, Any]) -> Any:
        if kind == GRPO:
            return trainer._compute_loss(model, dict(batch))
        return trainer._compute_loss(model, batch, False) / accumulation

    def step() -> float:
        total = 0.0
        for batch in batches:
            loss = loss_of(batch)
            trainer.accelerator.backward(loss)
            total += float(loss.detach())
        trainer.accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    return Side(step=step, numbers=dict)


def _text(ids: list[int]) -> str:
    return " ".join(WORDS[token] for token in ids)


def _grpo_inputs(members: list[Row]) -> dict[str, Any]:
    """As the trainer lays out what it generated: prompts padded on the left, answers on the right."""
    import torch

    prompt, completion = (max(len(getattr(row, name)) for row in members) for name in ("prompt", "completion"))
    pads = [[0] * (prompt - len(row.prompt)) for row in members]
    tails = [[0] * (completion - len(row.completion)) for row in members]

    def mask(ids: list[int]) -> list[int]:
        return [1] * len(ids)

    return {
        "prompt_ids": torch.tensor([pad + row.prompt for pad, row in zip(pads, members, strict=True)]),
        "prompt_mask": torch.tensor([pad + mask(row.prompt) for pad, row in zip(pads, members, strict=True)]),
        "completion_ids": torch.tensor([row.completion + tail for row, tail in zip(members, tails, strict=True)]),
        "completion_mask": torch.tensor(
            [mask(row.completion) + tail for row, tail in zip(members, tails, strict=True)]
        ),
        "advantages": torch.tensor([row.advantage for row in members]),
        "old_per_token_logps": torch.tensor([row.old + tail for row, tail in zip(members, tails, strict=True)]),
        "num_items_in_batch": torch.tensor(float(sum(len(row.completion) for row in rows()))),
    }


# Measuring


def serve(pipe: Connection, make: Callable[[str, Path], Side], kind: str, folder: Path) -> None:
    """In a process of its own: each word in makes one step, and its numbers out."""
    import torch

    from rl_online.training.memory import peak_memory, reusing_memory

    torch.set_num_threads(1)
    side = make(kind, folder)
    held = _resident()
    with reusing_memory() if make is strop_side else _nothing():
        pipe.send(None)
        while (word := pipe.recv()) != "end":
            with peak_memory(torch.device("cpu")) as peak:
                profiler = cProfile.Profile() if word == "profile" else None
                started = time.process_time()
                loss = profiler.runcall(side.step) if profiler else side.step()
                seconds = time.process_time() - started
                found = {"loss": loss, "cpu_s": seconds, "bytes": (peak() or 0) - held, "numbers": side.numbers()}
            pipe.send(found | {"profile": _costliest(profiler) if profiler else []})


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _costliest(profiler: cProfile.Profile, *, first: int = 12) -> list[tuple[str, float]]:
    """Functions by the time spent in themselves."""
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    spent = [(f"{Path(file).name}:{name}", own) for (file, _, name), (_, _, own, *_) in stats.items()]
    return sorted(spent, key=lambda one: -one[1])[:first]


def compare(kind: str, *, rounds: int) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    num_tokens = sum(len(row.prompt) + len(row.completion) for row in rows())
    with tempfile.TemporaryDirectory() as folder:
        builder = context.Process(target=build_policy, args=(Path(folder),))
        builder.start()
        builder.join()
        sides = {}
        for name, make in (("strop", strop_side), ("trl", trl_side)):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, make, kind, Path(folder)), daemon=True)
            process.start()
            ours.recv()
            sides[name] = (process, ours)

        def ask(name: str, word: str = "go") -> dict[str, Any]:
            sides[name][1].send(word)
            return sides[name][1].recv()

        first = {name: ask(name) for name in sides}
        seen: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name in sides:
                seen[name].append(ask(name))
        for name in sides:
            for place, seconds in ask(name, "profile")["profile"]:
                print(f"profile {kind} {name} {seconds:.3f} s {place}")
            sides[name][1].send("end")
            sides[name][0].join()
    gap = abs(first["strop"]["loss"] - first["trl"]["loss"])
    print(
        f"{kind}: losses of the first step {first['strop']['loss']:.7f} and {first['trl']['loss']:.7f}, gap {gap:.1e}"
    )
    if gap > 1e-4:
        raise SystemExit(f"the two sides do not minimise the same {kind} loss; nothing was measured")
    rates = {name: num_tokens / statistics.median(one["cpu_s"] for one in found) for name, found in seen.items()}
    peaks = {name: max(one["bytes"] for one in [first[name], *found]) for name, found in seen.items()}
    ratios = sorted(b["cpu_s"] / a["cpu_s"] for a, b in zip(seen["strop"], seen["trl"], strict=True))
    numbers = first["strop"]["numbers"]
    return {
        f"updater.tokens_vs_trl_{kind}": round(statistics.median(ratios), 3),
        f"updater.tokens_vs_trl_{kind}.low": round(ratios[0], 3),
        f"updater.tokens_vs_trl_{kind}.high": round(ratios[-1], 3),
        f"updater.tokens_per_cpu_s_{kind}": round(rates["strop"], 1),
        f"updater.trl_tokens_per_cpu_s_{kind}": round(rates["trl"], 1),
        f"updater.peak_memory_vs_trl_{kind}": round(peaks["strop"] / peaks["trl"], 3),
        f"updater.peak_mib_{kind}": round(peaks["strop"] / 2**20, 1),
        f"updater.padding_before_{kind}": round(numbers["padding_share_unsorted"], 4),
        f"updater.padding_after_{kind}": round(numbers["padding_share"], 4),
        f"updater.loss_gap_{kind}": gap,
    }


# Ranks


def scaling(*, rounds: int) -> dict[str, float]:
    """One optimizer step over all samples by one rank and by two, under torchrun: how much faster two are.

    By the wall, with one thread each, so that two ranks have twice the cores; imports are left out.
    """
    seconds = {}
    with tempfile.TemporaryDirectory() as name:
        builder = multiprocessing.get_context("spawn").Process(target=build_policy, args=(Path(name),))
        builder.start()
        builder.join()
        for ranks in (1, 2):
            command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"]
            settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
            out = Path(name) / f"{ranks}.json"
            subprocess.run([*command, __file__, "--rank", name, str(out), str(rounds)], env=settings, check=True)
            seconds[ranks] = statistics.median(json.loads(out.read_text()))
    num_tokens = sum(len(row.prompt) + len(row.completion) for row in rows())
    return {
        "updater.scaling_2_ranks": round(seconds[1] / seconds[2], 3),
        **{f"updater.tokens_per_s_{ranks}_ranks": round(num_tokens / one, 1) for ranks, one in seconds.items()},
    }


def run_rank(folder: Path, out: Path, rounds: int) -> None:
    """In each process that torchrun starts."""
    import torch

    from rl_online.training.distributed import Leader, follow, joined

    torch.set_num_threads(1)
    with joined("cpu") as is_leader:
        if not is_leader:
            follow()
            return
        side = strop_side(GRPO, folder, open_trainer=Leader)
        seconds = []
        for _ in range(rounds + 1):
            started = time.monotonic()
            side.step()
            seconds.append(time.monotonic() - started)
        out.write_text(json.dumps(seconds[1:]))


def main() -> int:
    if sys.argv[1:2] == ["--rank"]:
        run_rank(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results: dict[str, float] = {}
    for kind in (GRPO, KTO):
        results |= compare(kind, rounds=options.rounds)
    results |= scaling(rounds=options.rounds)
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "updater.json").write_text(
        json.dumps({**results, "rounds": options.rounds, "machine": machine}, indent=1)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
