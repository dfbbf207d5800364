"""Which way of learning makes most of the same signals? And do the toys learn what they should?

`python benchmarks/methods.py [--seeds 0 1 2] [--signals 512] [--fresh 256] [--rounds 1]`, about a quarter of an hour on
two cores. Not in CI.

The demo's product: the 135M model completes one-line functions of the demo's families. Each user tries the answer; one
in twenty is mistaken. One signal an answer: an accept, or else the right answer typed in its place. Five methods learn
from it, each by the stage of an update that is made for it, with that stage's own settings but for those named below:

    reinforce   accepts and rejects, with the sampler's log-probabilities and a running baseline for each family
    kto         the same accepts and rejects, without those log-probabilities
    dpo         pairs: what was typed over what it replaced
    ppo         a reward model of the same pairs, then PPO against it on the same prompts
    distil      as reinforce, and besides the policy itself with what was typed as a hint in its prompt, as teacher

In the first round all learn from the very same answers and signals of a seed, drawn once; in a later one each from its
own. After each round the checkpoint answers the same fresh prompts at temperature 1, judged by their tests without any
mistake: accept shares with 95 % Wilson intervals, of each seed and of all seeds together. `separated` is 1 where the
interval lies above the first checkpoint's; a miss is a 0, not an error.

In-process, through the public functions of `rl_online.training` and not over HTTP: what is compared is what is learnt
from equal signals. The whole loop over HTTP is measured by `learning.py`.

Then the small products of `tests/rl_online/training`: when to speak, and the two published reward hacks with the reward
that looks away and with the mended one.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "platform")]

import torch  # noqa: E402

from evals.statistics.proportions import wilson  # noqa: E402
from rl_online.commands.store import ensure_smollm2  # noqa: E402
from rl_online.policy.load import load_policy, load_tokenizer  # noqa: E402
from rl_online.policy.logprobs import can_pack  # noqa: E402
from rl_online.policy.sampling import Completion, sample_batch  # noqa: E402
from rl_online.rewards.baseline import RunningSlice, next_baselines  # noqa: E402
from rl_online.rewards.batch import Sample, seal_batch  # noqa: E402
from rl_online.rewards.composite import DEFAULT_BODY, parse_reward_spec  # noqa: E402
from rl_online.rewards.update_config import UpdateConfig  # noqa: E402
from rl_online.training.ppo import run_ppo  # noqa: E402
from rl_online.training.reward_model import run_reward_model  # noqa: E402
from rl_online.training.update import UpdateRequest, run_update  # noqa: E402
from rl_online.weights.publish import adopt_folder  # noqa: E402
from strop.demo import families  # noqa: E402
from strop.demo.trying import Workbench  # noqa: E402
from strop.demo.users import MISTAKE_RATE  # noqa: E402
from strop.demo.variants import Exercise  # noqa: E402
from tests.rl_online.training import test_published_hacks as hacks  # noqa: E402
from tests.rl_online.training import test_when_to_speak as speaking  # noqa: E402

MAX_TOKENS = 20
REWARDS = parse_reward_spec(DEFAULT_BODY).outcomes
CONFIG = UpdateConfig(general_texts="")  # what an update costs elsewhere is not asked here
QUIET: dict[str, Any] = {
    "on_progress": lambda progress: None, "is_cancelled": lambda: False, "crash": lambda name: None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One answer and the one signal about it."""

    exercise: Exercise
    prompt: list[int]
    answer: Completion
    version: int  # that sampled it
    works: bool
    is_accepted: bool  # else the user typed the right answer instead


@dataclass(frozen=True, kw_only=True)
class Line:
    """One method's checkpoints of one seed, and what it keeps between updates."""

    root: Path
    first: Path
    seed: int
    baselines: dict[str, RunningSlice] = field(default_factory=dict)

    def folder(self, version: int) -> Path:
        return self.first if version == 1 else self.root / f"v{version:06d}"

    def request(self, samples: Sequence[Sample], version: int, config: UpdateConfig, **fields: Any) -> UpdateRequest:
        """Of the update that makes `version` of the one before."""
        return UpdateRequest(
            **{
                "parent_folder": self.folder(version - 1),
                "batch_folder": seal_batch(samples, self.root / "batches").folder,
                "base_folder": self.first,
                "out_folder": self.folder(version),
                "deltas_root": self.root / "deltas",
                "policy": "methods",
                "version": version,
                "parent_version": version - 1,
                "seed": self.seed,
                "device": "cpu",
                "config": config,
                "reward_spec": "default",
                "code_version": "benchmark",
                **fields,
            }
        )


class Product:
    """The demo's problems, its model as the first checkpoint, and the users who try its answers."""

    def __init__(self, first: Path) -> None:
        self.first = first
        self.tokenizer = load_tokenizer(first)
        self.bench = Workbench()

    def answers(self, folder: Path, exercises: Sequence[Exercise], *, seed: int) -> list[tuple[list[int], Completion]]:
        """At temperature 1, each with its prompt; equal seeds draw by equal random numbers."""
        model = load_policy(folder)
        prompts = [self.ids(one.prompt) for one in exercises]
        drawn = sample_batch(
            model, prompts, max_new_tokens=MAX_TOKENS, temperature=1.0, can_pad=can_pack(model),
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        return list(zip(prompts, drawn, strict=True))

    def works(self, exercises: Sequence[Exercise], answers: Sequence[Completion]) -> list[bool]:
        """By the problems' tests."""

        async def try_all() -> list[bool]:
            said = [self.tokenizer.decode(one.token_ids).partition("\n")[0] for one in answers]
            return await asyncio.gather(*map(self.bench.passes, exercises, said))

        return asyncio.run(try_all())

    def turns(self, folder: Path, exercises: Sequence[Exercise], *, version: int, seed: int) -> list[Turn]:
        drawn = self.answers(folder, exercises, seed=seed)
        rng = Random(f"users {seed}")
        return [
            Turn(
                exercise=exercise, prompt=prompt, answer=answer, version=version, works=works,
                is_accepted=works != (rng.random() < MISTAKE_RATE),
            )
            for exercise, (prompt, answer), works in zip(
                exercises, drawn, self.works(exercises, [answer for _, answer in drawn]), strict=True
            )
        ]  # fmt: skip

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    def wanted(self, exercise: Exercise) -> list[int]:
        return self.ids(exercise.reference + "\n")

    def hinted(self, exercise: Exercise) -> list[int]:
        return self.ids(f"# The body is:{exercise.reference}\n{exercise.prompt}")


def judged(product: Product, line: Line, turns: Sequence[Turn], *, has_logprobs: bool, is_hinted: bool) -> list[Sample]:
    """Each answer with its reward and baseline; hinted: rejected ones with what was typed as a hint."""
    rewards = [REWARDS["accept" if turn.is_accepted else "reject"] for turn in turns]
    expected = next_baselines(
        line.baselines, [(turn.exercise.family, reward) for turn, reward in zip(turns, rewards, strict=True)]
    )
    line.baselines.clear()
    line.baselines.update(expected.state)
    return [
        Sample(
            token_ids=turn.prompt + turn.answer.token_ids,
            prompt_length=len(turn.prompt),
            mask=[0] * len(turn.prompt) + [1] * len(turn.answer.token_ids),
            behaviour_logprobs=[0.0] * len(turn.prompt) + turn.answer.logprobs if has_logprobs else None,
            reward=reward,
            baseline=baseline,
            versions=[-1] * len(turn.prompt) + [turn.version] * len(turn.answer.token_ids),
            row={
                "kind": "rl", "turn": turn.exercise.problem_id, "slice": turn.exercise.family,
                **({"hinted_prompt": product.hinted(turn.exercise)} if is_hinted and not turn.is_accepted else {}),
            },
        )
        for turn, reward, baseline in zip(turns, rewards, expected.per_sample, strict=True)
    ]  # fmt: skip


def pairs(product: Product, turns: Sequence[Turn]) -> list[Sample]:
    """What was typed over what it replaced, the better one first."""
    found: list[Sample] = []
    for number, turn in enumerate(turns):
        if turn.is_accepted:
            continue
        row = {"kind": "pref", "turn": turn.exercise.problem_id, "user_hash": f"user-{number % 24}"}
        for answer, twin in ((product.wanted(turn.exercise), -1), (turn.answer.token_ids, len(found))):
            found.append(
                Sample(
                    token_ids=turn.prompt + answer,
                    prompt_length=len(turn.prompt),
                    mask=[0] * len(turn.prompt) + [1] * len(answer),
                    behaviour_logprobs=None,
                    reward=0.0,
                    baseline=0.0,
                    versions=[-1] * (len(turn.prompt) + len(answer)),
                    pair=twin,
                    row=row,
                )
            )
    return found


def reinforce(product: Product, line: Line, turns: Sequence[Turn], version: int) -> None:
    samples = judged(product, line, turns, has_logprobs=True, is_hinted=False)
    run_update(line.request(samples, version, CONFIG), **QUIET)


def kto(product: Product, line: Line, turns: Sequence[Turn], version: int) -> None:
    samples = judged(product, line, turns, has_logprobs=False, is_hinted=False)
    run_update(line.request(samples, version, CONFIG), **QUIET)


def dpo(product: Product, line: Line, turns: Sequence[Turn], version: int) -> None:
    config = replace(CONFIG, pref_loss="dpo")
    run_update(line.request(pairs(product, turns), version, config, kind="pairs"), **QUIET)


def ppo(product: Product, line: Line, turns: Sequence[Turn], version: int) -> None:
    samples = pairs(product, turns)
    rewards = line.root / f"reward-v{version:06d}"
    judge = line.request(
        samples, version, CONFIG, kind="reward_model", inputs={"part": "all"}, out_folder=rewards, base_folder=None
    )
    report = run_reward_model(judge, **QUIET).report
    print(f"seed {line.seed} reward model of {report['num_trained']} pairs: {json.dumps(report)[:300]}", flush=True)
    config = replace(
        CONFIG, policy_loss="ppo_clip", correction="none", ppo_iterations=max(1, len(turns) // 64), ppo_watched=16,
        ppo_max_new_tokens=MAX_TOKENS,
    )  # fmt: skip
    prompts = judged(product, line, turns, has_logprobs=True, is_hinted=False)
    run_ppo(line.request(prompts, version, config, kind="ppo", folders={"reward_model": rewards}), **QUIET)


def distil(product: Product, line: Line, turns: Sequence[Turn], version: int) -> None:
    samples = judged(product, line, turns, has_logprobs=True, is_hinted=True)
    run_update(line.request(samples, version, replace(CONFIG, distill_weight=1.0), kind="distill"), **QUIET)


METHODS: dict[str, Callable[[Product, Line, Sequence[Turn], int], None]] = {
    "reinforce": reinforce, "kto": kto, "dpo": dpo, "ppo": ppo, "distil": distil,
}  # fmt: skip


def one_line_policy(models: Path, target: Path) -> Path:
    """The default model as checkpoint 1, for which a line is over where it breaks: such tokens end an answer."""
    source = target.parent / "source"
    shutil.copytree(ensure_smollm2(models, say=lambda text: print(text, file=sys.stderr)).folder, source)
    (source / "MANIFEST.json").unlink(missing_ok=True)
    tokenizer = load_tokenizer(source)
    breaks = [token for token in range(len(tokenizer)) if "\n" in tokenizer.decode([token])]
    for name in ("config.json", "generation_config.json"):
        if (path := source / name).exists():
            known = json.loads(path.read_text("utf-8"))
            path.write_text(json.dumps(known | {"eos_token_id": [tokenizer.eos_token_id, *breaks]}), "utf-8")
    adopt_folder(source, target, policy="methods", version=1)
    return target


def run_seed(product: Product, root: Path, seed: int, options: argparse.Namespace) -> dict[str, list[list[bool]]]:
    """Method -> round -> whether each fresh answer works; round 0 is the checkpoint all begin with."""
    size = options.signals * options.rounds
    asked = families.traffic(seed=seed, volume=1, size=size)
    fresh = families.fresh(seed=seed, size=options.fresh, besides=asked)

    def measure(folder: Path) -> list[bool]:
        return product.works(fresh, [answer for _, answer in product.answers(folder, fresh, seed=10_000 + seed)])

    def signals(folder: Path, version: int) -> list[Turn]:
        part = asked[(version - 1) * options.signals : version * options.signals]
        return product.turns(folder, part, version=version, seed=100 * seed + version)

    shared, start = signals(product.first, 1), measure(product.first)
    accepted = sum(turn.is_accepted for turn in shared)
    print(f"seed {seed}: {len(shared)} signals, {accepted} accepts; fresh {told(start)}", flush=True)
    found = {name: [start] for name in options.methods}
    for name in options.methods:
        line = Line(root=root / f"{name}-{seed}", first=product.first, seed=seed)
        for version in range(2, 2 + options.rounds):
            began = time.monotonic()
            turns = shared if version == 2 else signals(line.folder(version - 1), version - 1)
            METHODS[name](product, line, turns, version)
            found[name].append(measure(line.folder(version)))
            print(f"seed {seed} {name} after {(version - 1) * options.signals} signals: {told(found[name][-1])}, "
                  f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        shutil.rmtree(line.root)
    return found


def told(works: Sequence[bool]) -> str:
    share = wilson(sum(works), len(works))
    return f"{sum(works)}/{len(works)}, {share.share or 0:.1%} [{share.low:.1%}, {share.high:.1%}]"


def report_methods(by_seed: dict[int, dict[str, list[list[bool]]]]) -> dict[str, float]:
    results: dict[str, float] = {}
    for name in next(iter(by_seed.values())):
        rounds = list(zip(*(found[name] for found in by_seed.values()), strict=True))
        first = wilson(sum(map(sum, rounds[0])), sum(map(len, rounds[0])))
        for number, seeds in enumerate(rounds):
            for seed, works in zip(by_seed, seeds, strict=True):
                results[f"methods.{name}.round{number}.seed{seed}"] = round(sum(works) / len(works), 4)
            whole = wilson(sum(map(sum, seeds)), sum(map(len, seeds)))
            assert whole.share is not None
            results[f"methods.{name}.round{number}"] = round(whole.share, 4)
            results[f"methods.{name}.round{number}.low"] = round(whole.low, 4)
            results[f"methods.{name}.round{number}.high"] = round(whole.high, 4)
        results[f"methods.{name}.separated"] = int(whole.low > first.high)
    return results


def report_toys(seeds: Sequence[int], root: Path) -> dict[str, float]:
    """When to speak and both hacks, by seed; `is_right`: whether it ends speaking where it is likely accepted alone."""
    results: dict[str, float] = {}
    for seed in seeds:
        _, after, seen = speaking.learn(root / "tab", seed=seed)
        results |= {f"methods.speaks.{name}.seed{seed}": value for name, value in speaking.numbers(seen).items()}
        shown = {name for name, shares in after.items() if shares[speaking.SHOWS] > 0.5}
        likely = {name for name, accepts in speaking.ACCEPTS.items() if accepts >= speaking.THRESHOLD}
        results[f"methods.speaks.is_right.seed{seed}"] = int(shown == likely)
        for reward, table in (("hacked", hacks.HACKED), ("mended", hacks.MENDED)):
            for name, hack in table.items():
                rule, fact, guard = hacks.WATCHED[name]
                old, new = hacks.learn(hack, root / reward / name, seed=seed)
                key = f"methods.hack.{name.replace(' ', '_')}.{reward}"
                results[f"{key}.before.seed{seed}"] = round(hacks.share(old, fact), 4)
                results[f"{key}.after.seed{seed}"] = round(hacks.share(new, fact), 4)
                results[f"{key}.alarm.seed{seed}"] = int(
                    hacks.verdict_of_alarm(rule, fact, old=old, new=new) == "raised"
                )
                results[f"{key}.rolled_back.seed{seed}"] = int(
                    hacks.canary(old, new, {guard: fact}).kind == "roll_back"
                )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--signals", type=int, default=512, help="of a round")
    parser.add_argument("--fresh", type=int, default=256, help="prompts that measure each checkpoint")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS), help="none: the toys alone")
    parser.add_argument("--model-store", type=Path, help="a home's models folder to take the converted model from")
    options = parser.parse_args()
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="strop-methods-") as scratch:
        root = Path(scratch)
        if options.methods:
            models = options.model_store or root / "models"
            product = Product(one_line_policy(models, root / "policy" / "v000001"))
            results |= report_methods({seed: run_seed(product, root, seed, options) for seed in options.seeds})
        results |= report_toys(options.seeds, root)
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    kept = {**results, "machine": machine, "signals": options.signals, "fresh": options.fresh}
    (folder / "methods.json").write_text(json.dumps(kept, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
