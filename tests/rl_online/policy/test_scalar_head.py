import pytest
import torch
from transformers import AutoModelForSequenceClassification

from rl_online.policy.logprobs import pad_rows
from rl_online.policy.scalar_head import load_scalar, read_scalars
from rl_online.policy.tiny import build_tiny_policy

ROWS = [[2, 3, 4, 0], [5, 6]]  # 0 is the end token, and the padding token of the tokenizer


@pytest.fixture
def model(tmp_path):
    model = load_scalar(build_tiny_policy(tmp_path / "policy", [f"w{i}" for i in range(20)], dtype=torch.float32))
    torch.nn.init.normal_(model.score.weight, generator=torch.Generator().manual_seed(0))
    return model


def read(model, rows, places):
    return read_scalars(model, pad_rows(rows, places, [1.0] * len(rows))).detach()


def test_a_new_head_says_nothing_yet(tmp_path):
    fresh = load_scalar(build_tiny_policy(tmp_path, ["a", "b"]))
    assert read(fresh, [[2, 3, 0]], [[0, 1, 2]]).tolist() == [0, 0, 0]


def test_the_number_is_the_head_times_the_state_at_the_place(model):
    hidden = model.model(input_ids=torch.tensor([ROWS[0]])).last_hidden_state[0]
    assert torch.equal(read(model, ROWS[:1], [[1, 3]]), hidden[[1, 3]] @ model.score.weight[0])


def test_the_end_token_is_read_though_it_is_the_padding_token_too(model):
    last = read(model, ROWS, [[3], [1]])
    alone = torch.cat([read(model, [row], [[len(row) - 1]]) for row in ROWS])
    assert last.tolist() == pytest.approx(alone.tolist(), abs=1e-6)
    assert abs(float(last[0] - read(model, [ROWS[0][:3]], [[2]])[0])) > 1e-3


def test_what_is_saved_loads_with_the_plain_loader_and_says_the_same(model, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    plain, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for row in ROWS:
        said = float(plain(input_ids=torch.tensor([row])).logits.detach())
        assert said == pytest.approx(float(read(model, [row], [[len(row) - 1]])), abs=1e-5)
    assert torch.equal(load_scalar(tmp_path / "saved").score.weight, model.score.weight)
