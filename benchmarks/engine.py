"""How fast the engine decodes, against `transformers` generate at the same batch, in one run on one machine.

`python benchmarks/engine.py [FOLDER] [--threads N]`: FOLDER is a Hugging Face checkpoint folder; without one a small
random network is used, whose ratios say little. Both sides sample at temperature 1 from the same prompts, engine
(through its socket) and peer taking turns; a ratio is the median over the rounds. Also measured: the wait for the
first token at each concurrency, and the time to swap in a delta while streams run.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rl_online.policy.tiny import build_tiny_policy
from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import Chunk, EngineUnavailable, Final, GenRequest, Sampling
from rl_online.weights.manifest import MANIFEST, write_manifest
from rl_online.weights.publish import adopt_folder, publish_delta

POLICY = "0199a3d1-0000-7000-8000-000000000001"
CONCURRENCIES = (1, 8, 32)
PROMPT_TOKENS, NEW_TOKENS = 60, 20
TEXT = 'def running_mean(values, window):\n    """Means of all windows of the list."""\n    totals = [0]\n' * 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    tokens_per_s: float
    ttft_ms: float


async def run_engine(client: EngineClient, prompts: list[list[int]], seed: int) -> Measured:
    async def one(index: int, prompt: list[int]) -> tuple[int, float]:
        sampling = Sampling(max_tokens=NEW_TOKENS, seed=seed + index)
        request = GenRequest(id=f"{seed}-{index}", checkpoint=f"{POLICY}@1", input_ids=prompt, sampling=sampling)
        tokens, first_ms = 0, 0.0
        async for event in client.generate(request):
            if isinstance(event, Chunk):
                tokens += len(event.ids)
            elif isinstance(event, Final):
                first_ms = event.timings.ttft_ms or 0.0
        return tokens, first_ms

    started = time.perf_counter()
    results = await asyncio.gather(*(one(index, prompt) for index, prompt in enumerate(prompts)))
    elapsed = time.perf_counter() - started
    return Measured(
        tokens_per_s=sum(tokens for tokens, _ in results) / elapsed,
        ttft_ms=statistics.median(first_ms for _, first_ms in results),
    )


@torch.inference_mode()
def run_peer(network: torch.nn.Module, prompts: list[list[int]], seed: int) -> float:
    torch.manual_seed(seed)
    ids = torch.tensor(prompts)
    started = time.perf_counter()
    output = network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        min_new_tokens=NEW_TOKENS,
        max_new_tokens=NEW_TOKENS,
        pad_token_id=0,
    )
    return (output.shape[1] - ids.shape[1]) * len(prompts) / (time.perf_counter() - started)


async def swap_under_load(client: EngineClient, prompts: list[list[int]], delta: Path) -> float:
    """Milliseconds to verify and hold a delta while every prompt is being continued."""
    load = asyncio.create_task(run_engine(client, prompts, seed=10_000))
    await asyncio.sleep(0.5)
    started = time.perf_counter()
    await client.apply_delta(f"{POLICY}@2", base=f"{POLICY}@1", delta=delta)
    swap_ms = 1000 * (time.perf_counter() - started)
    await load
    return swap_ms


def small_network(folder: Path) -> Path:
    build_tiny_policy(folder, [f"w{i}" for i in range(2000)], hidden=256)
    return folder


def nudged(parent: Path) -> Path:
    """A child with a few weights changed by one update's worth, and the delta to it."""
    folder = parent.with_name("v000002")
    folder.mkdir()
    for path in parent.iterdir():
        if path.name != MANIFEST and path.suffix != ".safetensors":
            os.link(path, folder / path.name)
    generator = torch.Generator().manual_seed(0)
    for path in parent.glob("*.safetensors"):
        state = load_file(path)
        for name, tensor in state.items():
            mask = torch.rand(tensor.shape, generator=generator) < 0.005
            state[name] = torch.where(mask, tensor * 1.01, tensor)
        save_file(state, folder / path.name, metadata={"format": "pt"})
    write_manifest(folder, policy=POLICY, version=2, parent=1)
    return publish_delta(parent, folder, parent.parent / "deltas").path


async def measure(folder: Path, socket: Path, *, rounds: int) -> dict[str, float]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(TEXT).input_ids
    results: dict[str, float] = {}
    async with EngineClient(socket) as client:
        await client.load_full(f"{POLICY}@1", folder)
        for batch in CONCURRENCIES:
            prompts = [ids[i : i + PROMPT_TOKENS] for i in range(batch)]
            await run_engine(client, prompts, seed=0)
            run_peer(network, prompts, seed=0)
            ours, theirs = [], []
            for seed in range(1, rounds + 1):
                ours.append(await run_engine(client, prompts, seed=100 * seed))
                theirs.append(run_peer(network, prompts, seed=seed))
            ratios = [mine.tokens_per_s / peer for mine, peer in zip(ours, theirs, strict=True)]
            results |= {
                f"engine.tokens_per_s_{batch}": statistics.median(mine.tokens_per_s for mine in ours),
                f"engine.generate_tokens_per_s_{batch}": statistics.median(theirs),
                f"engine.ratio_to_generate_{batch}": statistics.median(ratios),
                f"engine.ttft_ms_{batch}": statistics.median(mine.ttft_ms for mine in ours),
            }
        prompts = [ids[i : i + PROMPT_TOKENS] for i in range(8)]
        results["engine.swap_under_load_ms"] = await swap_under_load(client, prompts, nudged(folder))
    return results


def start_engine(socket: Path, *, threads: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rl_online.commands.engine", "--device", "cpu", "--socket", str(socket)]
    process = subprocess.Popen([*command, "--threads", str(threads)], stderr=subprocess.DEVNULL)
    while not socket.exists():
        if process.poll() is not None:
            raise EngineUnavailable(f"the engine ended with {process.returncode}")
        time.sleep(0.1)
    return process


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="checkpoint folder, e.g. the converted SmolLM2-135M")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        source = options.folder or small_network(Path(scratch) / "small")
        folder = Path(scratch) / POLICY / "v000001"
        adopt_folder(source, folder, policy=POLICY, version=1)
        engine = start_engine(Path(scratch) / "engine.sock", threads=options.threads)
        try:
            results = asyncio.run(measure(folder, Path(scratch) / "engine.sock", rounds=options.rounds))
        finally:
            engine.terminate()
            engine.wait(30)
    for name, value in results.items():
        print(f"RESULT {name}={value:.4g}")
    facts = {
        "results": results,
        "model": options.folder.name if options.folder else "small random network",
        "prompt_tokens": PROMPT_TOKENS,
        "new_tokens": NEW_TOKENS,
        "rounds": options.rounds,
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "threads": options.threads,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    target = Path(__file__).parent / "results" / "engine.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(facts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
