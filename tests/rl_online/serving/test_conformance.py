"""What every engine behind the Engine protocol must do. An adapter joins by a factory in conftest."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_online.serving.protocol import (
    Chunk,
    ContextTooLong,
    Engine,
    EngineBusy,
    Final,
    FinishReason,
    GenRequest,
    InvalidRequest,
    LoadRefused,
    Sampling,
    UnknownCheckpoint,
)
from rl_online.weights.manifest import read_manifest
from tests.rl_online.serving import tiny
from tests.rl_online.serving.tiny import CONTEXT, END, POLICY

V1, V2 = f"{POLICY}@1", f"{POLICY}@2"
KOREAN = "안녕하세요, 세계! 👩‍👩‍👧 좋아요 🙂."


@dataclass
class Said:
    """One choice, put together."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    texts: list[str] = field(default_factory=list)
    details: list[Any] = field(default_factory=list)
    final: Final | None = None


async def collect(engine: Engine, request: GenRequest) -> list[Said]:
    choices = [Said() for _ in range(request.n)]
    async for event in engine.generate(request):
        said = choices[event.index]
        if isinstance(event, Final):
            said.final = event
        else:
            said.ids += event.ids
            said.logprobs += event.logprobs
            said.texts.append(event.text)
            said.details += event.details or []
    for said in choices:
        said.text = "".join(said.texts)
    return choices


def ask(
    ids: list[int], *, id: str = "r", checkpoint: str = V1, n: int = 1, top: int | None = None, **sampling
) -> GenRequest:
    return GenRequest(id=id, checkpoint=checkpoint, input_ids=ids, n=n, top_logprobs=top, sampling=Sampling(**sampling))


@pytest.fixture
def with_engine(open_engine) -> Callable:
    """with_engine(test, folder) runs `test(engine)` with the folder loaded as V1."""

    def run(test: Callable[[Engine], Awaitable[Any]], folder: Path | None = None) -> Any:
        async def go():
            async with open_engine() as engine:
                if folder is not None:
                    await engine.load_full(V1, folder)
                return await test(engine)

        return asyncio.run(go())

    return run


def forward_logprobs(folder: Path, ids: list[int]) -> torch.Tensor:
    network = AutoModelForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        return network(torch.tensor([ids])).logits[0].float()


# --- tokens and logprobs ---


def test_greedy_in_a_batch_equals_each_prompt_alone(with_engine, tmp_path):
    prompts = [[65], list(range(60, 90)), [70, 80, 90, 100], [66] * 11]

    async def test(engine):
        alone = [await collect(engine, ask(p, temperature=0, max_tokens=12)) for p in prompts]
        together = await asyncio.gather(
            *(collect(engine, ask(p, id=str(i), temperature=0, max_tokens=12)) for i, p in enumerate(prompts))
        )
        return [a[0].ids for a in alone], [t[0].ids for t in together]

    alone, together = with_engine(test, tiny.write_random(tmp_path))
    assert alone == together


def test_greedy_is_the_argmax_of_a_plain_forward(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    prompt = [72, 101, 108]
    said = with_engine(lambda engine: collect(engine, ask(prompt, temperature=0, max_tokens=8)), folder)[0]
    likeliest = forward_logprobs(folder, prompt + said.ids).argmax(-1).tolist()
    assert said.ids == likeliest[len(prompt) - 1 : -1]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_plain_forward_at_the_temperature(with_engine, tmp_path, temperature):
    folder = tiny.write_random(tmp_path)
    prompts = [[72, 101, 108], [80] * 20]

    async def test(engine):
        asks = [ask(p, id=str(i), temperature=temperature, max_tokens=10, seed=3) for i, p in enumerate(prompts)]
        return await asyncio.gather(*(collect(engine, request) for request in asks))

    for prompt, (said,) in zip(prompts, with_engine(test, folder), strict=True):
        logp = (forward_logprobs(folder, prompt + said.ids) / temperature).log_softmax(-1)
        expected = [logp[len(prompt) - 1 + i, token].item() for i, token in enumerate(said.ids)]
        assert said.logprobs == pytest.approx(expected, abs=1e-4)


def test_top_p_logprobs_are_renormalised_over_what_is_kept(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    said = with_engine(lambda engine: collect(engine, ask([72], top_p=0.5, max_tokens=6, seed=1)), folder)[0]
    logp = forward_logprobs(folder, [72, *said.ids]).log_softmax(-1)
    for position, (token, logprob) in enumerate(zip(said.ids, said.logprobs, strict=True)):
        ordered = logp[position].exp().sort(descending=True)
        kept = int((ordered.values.cumsum(0) < 0.5).sum()) + 1
        assert token in ordered.indices[:kept]
        assert logprob == pytest.approx((logp[position, token] - ordered.values[:kept].sum().log()).item(), abs=1e-4)


def test_a_seed_repeats_and_its_choices_differ(with_engine, tmp_path):
    request = dict(n=3, max_tokens=12, seed=11)

    async def test(engine):
        first = await collect(engine, ask([72, 73], **request))
        again, other, *_ = await asyncio.gather(
            collect(engine, ask([72, 73], id="again", **request)),
            collect(engine, ask([72, 73], id="other", n=3, max_tokens=12, seed=12)),
            collect(engine, ask([90] * 30, id="neighbour", max_tokens=12, seed=11)),
        )
        return first, again, other

    first, again, other = with_engine(test, tiny.write_random(tmp_path))
    assert [s.ids for s in first] == [s.ids for s in again]
    assert len({tuple(s.ids) for s in first}) == 3
    assert [s.ids for s in other] != [s.ids for s in first]


def test_no_seed_gives_other_tokens_each_time(with_engine, tmp_path):
    async def test(engine):
        return [(await collect(engine, ask([72], max_tokens=20)))[0].ids for _ in range(2)]

    first, second = with_engine(test, tiny.write_random(tmp_path))
    assert first != second


def test_top_logprobs_name_the_likeliest_tokens_and_the_sampled_one(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    said = with_engine(lambda engine: collect(engine, ask([72], top=3, max_tokens=4, seed=5)), folder)[0]
    logp = forward_logprobs(folder, [72, *said.ids]).log_softmax(-1)
    assert [[t.id for t in detail.top] for detail in said.details] == logp[:-1].topk(3).indices.tolist()
    assert [d.sampled.id for d in said.details] == said.ids
    assert [d.sampled.logprob for d in said.details] == said.logprobs


def test_usage_counts_ids_and_spans_name_the_version(with_engine, tmp_path):
    said = with_engine(
        lambda engine: collect(engine, ask([72] * 5, n=2, max_tokens=7, seed=2)), tiny.write_random(tmp_path)
    )
    for choice in said:
        assert choice.final.usage.prompt == 5
        assert choice.final.usage.completion == len(choice.ids) == len(choice.logprobs)
        assert choice.final.version_spans == [(0, len(choice.ids), 1)]


def test_max_tokens_ends_with_length(with_engine, tmp_path):
    said = with_engine(
        lambda engine: collect(engine, ask([72], temperature=0, max_tokens=3)),
        tiny.write_reciter(tmp_path, [b"ab", b"cd", b"ef", b"gh"]),
    )[0]
    assert (said.text, said.final.finish_reason, said.final.stop) == ("abcdef", FinishReason.LENGTH, None)


# --- text ---


def in_pieces(text: str, size: int) -> list[bytes]:
    """The text's UTF-8 in distinct pieces of `size` bytes or more: characters are cut anywhere."""
    data, pieces = text.encode(), []
    while data:
        length = size
        while data[:length] in pieces and length < len(data):
            length += 1
        if len(data) - length < 2:
            length = len(data)
        pieces.append(data[:length])
        data = data[length:]
    return pieces


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_korean_and_emoji_arrive_exactly_and_never_in_halves(with_engine, tmp_path, size):
    folder = tiny.write_reciter(tmp_path, in_pieces(KOREAN, size))
    said = with_engine(lambda engine: collect(engine, ask([72], temperature=0, max_tokens=100)), folder)[0]
    assert said.text == KOREAN
    assert all("\ufffd" not in text for text in said.texts)
    assert said.final.finish_reason is FinishReason.STOP
    assert said.ids[-1] == END


def test_a_character_cut_by_max_tokens_is_left_out(with_engine, tmp_path):
    folder = tiny.write_reciter(tmp_path, ["안".encode() + "녕".encode()[:1], "녕".encode()[1:]])
    said = with_engine(lambda engine: collect(engine, ask([72], temperature=0, max_tokens=1)), folder)[0]
    assert said.text == "안"


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (("cde",), "ab"),  # ends inside a later token
        (("bc",), "a"),  # begins inside the first token and ends in the second
        (("zz", "efg"), "abcd"),
        (("abx",), "abcdefgh"),  # looks like it for a while, then is shown after all
        (("hX",), "abcdefgh"),  # held back to the very end
    ],
)
def test_stop_strings_cut_the_text_across_tokens(with_engine, tmp_path, stop, text):
    folder = tiny.write_reciter(tmp_path, [b"ab", b"cd", b"ef", b"gh"])
    said = with_engine(lambda engine: collect(engine, ask([72], temperature=0, stop=stop)), folder)[0]
    assert said.text == text
    assert said.final.finish_reason is FinishReason.STOP


def test_the_tokens_of_a_stop_string_stay_in_the_ids(with_engine, tmp_path):
    folder = tiny.write_reciter(tmp_path, [b"ab", b"cd", b"ef"])
    said = with_engine(lambda engine: collect(engine, ask([72], temperature=0, stop=("bc",))), folder)[0]
    assert said.ids == [tiny.FIRST_PIECE, tiny.FIRST_PIECE + 1]
    assert said.final.stop == "bc"


def test_decode_says_what_each_token_says_and_all_together_what_was_encoded(with_engine, tmp_path):
    async def test(engine):
        return await engine.decode(V1, await engine.encode(V1, prompt=KOREAN))

    tokens = with_engine(test, tiny.write_random(tmp_path))
    assert "".join(token.text for token in tokens) == KOREAN
    assert len(tokens) == len(KOREAN.encode()) and tokens[0].text == "" and tokens[2].text == "안"


def test_decode_names_special_tokens_and_marks_them(with_engine, tmp_path):
    tokens = with_engine(lambda engine: engine.decode(V1, [65, END]), tiny.write_random(tmp_path))
    assert [(token.text, token.is_special) for token in tokens] == [("A", False), ("<|im_end|>", True)]


@pytest.mark.parametrize("token_id", [-1, 10**9])
def test_decode_refuses_what_is_no_token_and_names_its_place(with_engine, tmp_path, token_id):
    async def test(engine):
        with pytest.raises(InvalidRequest, match=r"ids\[1\]"):
            await engine.decode(V1, [65, token_id])

    with_engine(test, tiny.write_random(tmp_path))


def test_decode_of_a_checkpoint_that_is_not_held_is_refused(with_engine):
    async def test(engine):
        with pytest.raises(UnknownCheckpoint):
            await engine.decode(V2, [65])

    with_engine(test)


def test_encode_uses_the_checkpoints_template_for_messages_and_none_for_a_prompt(with_engine, tmp_path):
    async def test(engine):
        chat = await engine.encode(V1, messages=[{"role": "user", "content": "é"}])
        with pytest.raises(InvalidRequest, match="one of messages, prompt and completion"):
            await engine.encode(V1, prompt="é", completion="é")
        return chat, await engine.encode(V1, prompt="é"), await engine.encode(V1, completion="é")

    chat, prompt, completion = with_engine(test, tiny.write_random(tmp_path))
    assert prompt == completion == [0xC3, 0xA9]
    assert chat == [256, *b"user\n", 0xC3, 0xA9, 257, 10, 256, *b"assistant\n"]


# --- refusals ---


def refuse(with_engine, tmp_path, request: GenRequest, error: type[Exception]):
    with pytest.raises(error) as caught:
        with_engine(lambda engine: collect(engine, request), tiny.write_random(tmp_path))
    return caught.value


def test_an_unknown_checkpoint_is_named(with_engine, tmp_path):
    error = refuse(with_engine, tmp_path, ask([72], checkpoint=V2), UnknownCheckpoint)
    assert V2 in error.message


def test_too_long_a_request_names_the_limit(with_engine, tmp_path):
    error = refuse(with_engine, tmp_path, ask([72] * 500, max_tokens=13), ContextTooLong)
    assert error.limit == CONTEXT and str(CONTEXT) in error.message


def test_the_longest_request_that_fits_is_served(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    said = with_engine(lambda engine: collect(engine, ask([72] * (CONTEXT - 2), temperature=0, max_tokens=2)), folder)
    assert said[0].final.usage.prompt == CONTEXT - 2


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ask([]), "input_ids"),
        (ask([9999]), "input_ids"),
        (ask([72], n=9), "n"),
        (ask([72], temperature=-1), "sampling.temperature"),
        (ask([72], top_p=0), "sampling.top_p"),
        (ask([72], stop=("",)), "sampling.stop"),
        (ask([72], top=21), "top_logprobs"),
    ],
)
def test_a_bad_request_names_its_field(with_engine, tmp_path, request_, field):
    assert refuse(with_engine, tmp_path, request_, InvalidRequest).field == field


def test_a_full_queue_answers_busy_with_a_time_to_come_back(with_engine, tmp_path):
    async def test(engine):
        asks = [ask([72], id=str(i), n=8, max_tokens=400, seed=i) for i in range(4)]
        results = await asyncio.gather(*(collect(engine, request) for request in asks), return_exceptions=True)
        return [result for result in results if isinstance(result, EngineBusy)]

    busy = with_engine(test, tiny.write_random(tmp_path))
    assert busy and all(error.retry_after_s >= 1 for error in busy)


# --- aborting ---


async def until_idle(engine: Engine) -> Any:
    for _ in range(500):
        metrics = await engine.metrics()
        if metrics.running == metrics.waiting == 0:
            return metrics
        await asyncio.sleep(0.01)
    raise AssertionError("the engine still works on something")


def test_a_caller_that_leaves_aborts_its_request(with_engine, tmp_path):
    async def test(engine):
        before = await engine.metrics()
        stream = engine.generate(ask([72], max_tokens=500, n=2, seed=1))
        await anext(stream)
        await stream.aclose()
        after = await until_idle(engine)
        return after.choices_aborted - before.choices_aborted, after.tokens_generated - before.tokens_generated

    aborted, tokens = with_engine(test, tiny.write_random(tmp_path))
    assert aborted == 2 and tokens < 900


def test_abort_by_id_ends_the_stream_with_what_there_is(with_engine, tmp_path):
    async def test(engine):
        events, aborted = [], None
        async for event in engine.generate(ask([72], id="mine", max_tokens=500, seed=1)):
            events.append(event)
            aborted = aborted or await engine.abort("mine")
        return events, aborted, await engine.abort("mine")

    events, aborted, again = with_engine(test, tiny.write_random(tmp_path))
    assert (aborted, again) == (True, False)
    assert events[-1].finish_reason is FinishReason.ABORT
    assert events[-1].usage.completion == sum(len(e.ids) for e in events if isinstance(e, Chunk)) < 500


# --- weights ---


def test_eight_streams_held_open_across_a_swap_end_on_the_version_they_began_with(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    child, delta = tiny.write_child(folder, version=2, scale=3.0)

    async def test(engine):
        streams = [engine.generate(ask([72 + i], id=f"old{i}", max_tokens=300, temperature=0)) for i in range(8)]
        firsts = [await anext(stream) for stream in streams]
        held = await engine.apply_delta(V2, base=V1, delta=delta.path)
        await engine.unload(V1)
        new = await collect(engine, ask([72], id="new", checkpoint=V2, max_tokens=5, temperature=0))
        rest = [[event async for event in stream] for stream in streams]
        return firsts, held, new, rest, (await engine.info()).checkpoints

    firsts, held, new, rest, left = with_engine(test, folder)
    assert held.tree_digest == read_manifest(child).tree_digest
    assert all(isinstance(first, Chunk) for first in firsts)
    for first, events in zip(firsts, rest, strict=True):
        num_ids = len(first.ids) + sum(len(e.ids) for e in events if isinstance(e, Chunk))
        assert {e.version for e in [first, *events] if isinstance(e, Chunk)} == {1}
        assert events[-1].version_spans == [(0, num_ids, 1)]
    assert new[0].final.version_spans == [(0, len(new[0].ids), 2)]
    assert [row.checkpoint for row in left] == [V2]


def test_a_delta_gives_the_same_tokens_as_the_full_checkpoint(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    child, delta = tiny.write_child(folder, version=2, scale=3.0)

    async def test(engine):
        await engine.apply_delta(V2, base=V1, delta=delta.path)
        by_delta = await collect(engine, ask([72], checkpoint=V2, max_tokens=20, seed=1))
        await engine.unload(V2)
        await engine.load_full(V2, child)
        return by_delta, await collect(engine, ask([72], checkpoint=V2, max_tokens=20, seed=1))

    by_delta, in_full = with_engine(test, folder)
    assert (by_delta[0].ids, by_delta[0].logprobs) == (in_full[0].ids, in_full[0].logprobs)


def refused_and_served_on(with_engine, folder: Path, load: Callable[[Engine], Awaitable[Any]]) -> None:
    async def test(engine):
        before = await collect(engine, ask([72], max_tokens=8, seed=4))
        with pytest.raises(LoadRefused):
            await load(engine)
        with pytest.raises(UnknownCheckpoint):
            await collect(engine, ask([72], checkpoint=V2))
        return before, await collect(engine, ask([72], max_tokens=8, seed=4))

    before, after = with_engine(test, folder)
    assert before[0].ids == after[0].ids


def test_one_flipped_byte_in_a_delta_is_refused_and_the_old_version_serves_on(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    _, delta = tiny.write_child(folder, version=2)
    tiny.flip_byte(delta.path)
    refused_and_served_on(with_engine, folder, lambda engine: engine.apply_delta(V2, base=V1, delta=delta.path))


def test_one_flipped_byte_in_a_checkpoint_is_refused_and_the_old_version_serves_on(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    child, _ = tiny.write_child(folder, version=2)
    tiny.flip_byte(child / "model.safetensors")
    refused_and_served_on(with_engine, folder, lambda engine: engine.load_full(V2, child))


def test_a_delta_for_another_base_is_refused_and_the_old_version_serves_on(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    other = tiny.write_random(tmp_path / "other", seed=1)
    _, delta = tiny.write_child(other, version=2)
    refused_and_served_on(with_engine, folder, lambda engine: engine.apply_delta(V2, base=V1, delta=delta.path))


def test_a_folder_under_another_name_is_refused(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path)
    refused_and_served_on(with_engine, folder, lambda engine: engine.load_full(V2, folder))


def test_two_checkpoints_answer_side_by_side(with_engine, tmp_path):
    folder = tiny.write_reciter(tmp_path, [b"old", b"wine"])
    second = tiny.write_reciter(tmp_path, [b"new", b"bottles"], version=2)

    async def test(engine):
        await engine.load_full(V2, second)
        asks = [ask([72], id=f"{i}", checkpoint=V1 if i % 2 else V2, temperature=0) for i in range(6)]
        return await asyncio.gather(*(collect(engine, request) for request in asks))

    assert [said[0].text for said in with_engine(test, folder)] == ["newbottles", "oldwine"] * 3


def test_info_and_health_tell_what_is_held(with_engine, tmp_path):
    folder = tiny.write_random(tmp_path, dtype=torch.bfloat16)

    async def test(engine):
        return await engine.info(), await engine.health()

    info, health = with_engine(test, folder)
    (held,) = info.checkpoints
    assert (held.checkpoint, held.dtype, held.context_limit) == (V1, "bfloat16", CONTEXT)
    assert held.tree_digest == read_manifest(folder).tree_digest
    assert health.is_ready and health.stalled_s == 0
