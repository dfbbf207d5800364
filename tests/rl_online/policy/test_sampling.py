import json

import pytest
import torch

from rl_online.policy import sampling
from rl_online.policy.end_tokens import all_ends, named_ends
from rl_online.policy.load import load_policy
from rl_online.policy.logprobs import pad_rows, selected_logprobs
from rl_online.policy.sampling import sample_batch, sample_tokens
from rl_online.policy.tiny import build_tiny_policy
from rl_online.serving.checkpoints import end_ids

PROMPT = [2, 3, 4]


@pytest.fixture
def model(tmp_path):
    return load_policy(build_tiny_policy(tmp_path, [f"w{i}" for i in range(20)]), dtype=torch.float32)


def test_the_recorded_logprobs_are_those_a_trainer_computes_at_that_temperature(model):
    drawn = sample_tokens(model, PROMPT, max_new_tokens=6, temperature=0.7, generator=torch.Generator().manual_seed(3))
    ids = PROMPT + drawn.token_ids
    rows = pad_rows([ids], [list(range(len(PROMPT), len(ids)))], [0.7])
    assert selected_logprobs(model, rows, is_split=True).tolist() == pytest.approx(drawn.logprobs, abs=1e-5)


def test_greedy_takes_the_likeliest_token_each_time(model):
    drawn = sample_tokens(model, PROMPT, max_new_tokens=3, temperature=0)
    for place in range(len(drawn.token_ids)):
        logits = model(input_ids=torch.tensor([PROMPT + drawn.token_ids[:place]])).logits[0, -1]
        assert drawn.token_ids[place] == int(logits.argmax())


def test_one_seed_gives_one_completion(model):
    one, two = (
        sample_tokens(model, PROMPT, max_new_tokens=8, temperature=1.0, generator=torch.Generator().manual_seed(5))
        for _ in range(2)
    )
    assert one == two


def test_drawing_stops_at_the_end_token_and_keeps_it(model):
    model.config.eos_token_id = list(range(22))
    assert len(sample_tokens(model, PROMPT, max_new_tokens=8, temperature=1.0).token_ids) == 1


def test_an_end_token_that_only_the_generation_config_names_ends_it_for_trainer_engine_and_service(model, tmp_path):
    drawn = sample_tokens(model, PROMPT, max_new_tokens=4, temperature=0).token_ids
    folder = build_tiny_policy(tmp_path / "other", [f"w{i}" for i in range(20)])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [drawn[0], 0]}))
    other = load_policy(folder, dtype=torch.float32)
    assert sample_tokens(other, PROMPT, max_new_tokens=4, temperature=0).token_ids == drawn[:1]
    assert end_ids(folder, other.config) == {0, drawn[0]}
    assert all_ends(*(named_ends(folder / name) for name in ("config.json", "generation_config.json"))) == [0, drawn[0]]


PROMPTS = [[2, 3, 4], [5], [6, 7, 8, 9, 10], [11]]


def draw(model, prompts, **changes):
    options = {"max_new_tokens": 6, "temperature": 0.8, "generator": torch.Generator().manual_seed(3), "can_pad": True}
    return sample_batch(model, prompts, **(options | changes))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_each_of_a_batch_is_drawn_as_it_would_be_without_padding(model, attention):
    model.set_attn_implementation(attention)
    padded, by_length = (draw(model, PROMPTS, can_pad=can_pad) for can_pad in (True, False))
    assert [one.token_ids for one in padded] == [one.token_ids for one in by_length]
    for prompt, drawn in zip(PROMPTS, padded, strict=True):
        ids = prompt + drawn.token_ids
        rows = pad_rows([ids], [list(range(len(prompt), len(ids)))], [0.8])
        assert selected_logprobs(model, rows, is_split=True).tolist() == pytest.approx(drawn.logprobs, abs=1e-5)


def test_a_completion_does_not_depend_on_who_shares_its_batch(model):
    others = [[12, 13], *PROMPTS[1:]]
    assert draw(model, PROMPTS)[1:] == [
        type(one)(token_ids=one.token_ids, logprobs=pytest.approx(one.logprobs, abs=1e-6))
        for one in draw(model, others)[1:]
    ]


def test_one_that_ended_stops_while_the_others_go_on(model):
    greedy = draw(model, PROMPTS, temperature=0, max_new_tokens=4)
    model.config.eos_token_id = greedy[0].token_ids[0]
    stopped = draw(model, PROMPTS, temperature=0, max_new_tokens=4)
    assert stopped[0].token_ids == greedy[0].token_ids[:1]
    for one, whole in zip(stopped, greedy, strict=True):
        assert one.token_ids == whole.token_ids[: len(one.token_ids)]
        assert len(one.token_ids) == 4 or one.token_ids[-1] == model.config.eos_token_id


def test_draws_follow_the_policy(model):
    """The share of the likeliest first token over many draws is its probability."""
    logits = model(input_ids=torch.tensor([PROMPT])).logits[0, -1].detach() / 0.1
    expected = float(logits.softmax(-1).max())
    drawn = draw(model, [PROMPT] * 512, max_new_tokens=1, temperature=0.1)
    share = sum(one.token_ids[0] == int(logits.argmax()) for one in drawn) / 512
    assert share == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize(("places", "together"), [(44, [4]), (43, [3, 1]), (22, [2, 2]), (21, [1, 2, 1]), (1, [1] * 4)])
def test_so_many_are_drawn_together_as_places_allow(model, monkeypatch, places, together):
    sizes = []
    draw_group = sampling._draw
    monkeypatch.setattr(sampling, "MAX_PLACES", places)
    monkeypatch.setattr(
        sampling, "_draw", lambda prompts, *args, **how: sizes.append(len(prompts)) or draw_group(prompts, *args, **how)
    )
    found = draw(model, PROMPTS)
    monkeypatch.undo()
    assert sizes == together
    assert [one.token_ids for one in found] == [one.token_ids for one in draw(model, PROMPTS)]
