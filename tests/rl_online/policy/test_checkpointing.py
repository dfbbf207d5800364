import pytest
import torch
from transformers import FalconConfig, FalconForCausalLM, OPTConfig, OPTForCausalLM

from rl_online.policy.checkpointing import recompute_layers


def test_dropout_inside_a_layer_stays_off():
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=16, hidden_size=16, word_embed_proj_dim=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, dropout=0.5,
    )  # fmt: skip
    model = OPTForCausalLM(config).eval()
    ids = torch.arange(2, 10)[None]
    before = model(input_ids=ids, use_cache=False).logits
    recompute_layers(model)
    assert torch.equal(model(input_ids=ids, use_cache=False).logits, before)
    assert model.config.dropout == 0.5  # what is saved stays what it was


def test_a_model_whose_layers_drop_out_all_the_same_is_refused():
    torch.manual_seed(0)
    config = FalconConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, attention_dropout=0.5,
        hidden_dropout=0.5,
    )  # fmt: skip
    with pytest.raises(ValueError, match="FalconForCausalLM keeps dropout on"):
        recompute_layers(FalconForCausalLM(config).eval())
