import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM, LlamaConfig, LlamaForCausalLM

from rl_online.policy.logprobs import can_split, pad_rows, selected_logprobs

SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture
def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=1, pad_token_id=0, eos_token_id=0)).eval()


def alone(model, ids, position, temperature=1.0):
    logits = model(input_ids=torch.tensor([ids[:position]])).logits[0, -1]
    return (logits / temperature).log_softmax(-1)[ids[position]].item()


def test_only_the_chosen_tokens_are_scored_each_given_what_came_before(llama):
    ids = [5, 6, 7, 8]
    rows = pad_rows([ids], [[2, 3]], [1.0])
    found = selected_logprobs(llama, rows, is_split=True).tolist()
    assert found == pytest.approx([alone(llama, ids, 2), alone(llama, ids, 3)], abs=1e-6)


def test_a_padded_row_scores_as_it_does_alone(llama):
    short, long = [5, 6, 7], [9, 8, 7, 6, 5, 4, 3]
    rows = pad_rows([long, short], [[6], [1, 2]], [1.0, 1.0])
    found = selected_logprobs(llama, rows, is_split=True).tolist()
    expected = [alone(llama, long, 6), alone(llama, short, 1), alone(llama, short, 2)]
    assert found == pytest.approx(expected, abs=1e-5)


def test_an_end_token_that_doubles_as_padding_is_still_scored(llama):
    ended, longer = [5, 6, 0], [5, 6, 7, 8, 9]
    rows = pad_rows([ended, longer], [[2], [4]], [1.0, 1.0])
    found = selected_logprobs(llama, rows, is_split=True).tolist()
    assert found[0] == pytest.approx(alone(llama, ended, 2), abs=1e-6)


def test_the_temperature_divides_the_logits_not_the_log_probabilities(llama):
    # logits (2, 1, 0) at temperature .6 give the first -0.202573; unscaled it has -0.407606
    class ThreeWords(torch.nn.Module):
        def forward(self, hidden):
            return torch.tensor([2.0, 1.0, 0.0]).expand(len(hidden), 3)

    llama.set_output_embeddings(ThreeWords())
    rows = pad_rows([[5, 0], [5, 0]], [[1], [1]], [0.6, 1.0])
    found = selected_logprobs(llama, rows, is_split=True).tolist()
    assert found == pytest.approx([-0.202573, -0.407606], abs=1e-6)


def test_splitting_changes_neither_values_nor_gradients(llama):
    rows = pad_rows([[5, 6, 7, 8], [9, 10]], [[2, 3], [1]], [1.0, 0.7])
    found = []
    for is_split in (True, False):
        llama.zero_grad()
        logp = selected_logprobs(llama, rows, is_split=is_split)
        logp.sum().backward()
        found.append((logp.tolist(), llama.model.layers[0].mlp.up_proj.weight.grad.flatten().tolist()))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-6)


def test_a_model_that_scales_its_logits_is_not_split(llama):
    torch.manual_seed(0)
    granite = GraniteForCausalLM(GraniteConfig(**SIZES, num_key_value_heads=1, logits_scaling=4.0)).eval()
    assert can_split(llama) and not can_split(granite)
    ids = [5, 6, 7]
    found = selected_logprobs(granite, pad_rows([ids], [[2]], [1.0]), is_split=False).item()
    assert found == pytest.approx(alone(granite, ids, 2), abs=1e-6)
