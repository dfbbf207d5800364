import pytest
import torch

from rl_online.policy.load import load_policy
from rl_online.policy.logprobs import pad_rows, selected_logprobs
from rl_online.policy.sampling import sample_tokens
from rl_online.policy.tiny import build_tiny_policy

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
