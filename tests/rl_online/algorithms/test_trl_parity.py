"""Our losses and their parameter gradients equal TRL's on the same tensors, to 1e-6 in float32.

TRL's trainers compute theirs from their own padded batches; ours are scored as this project does it: rows without left
padding, trained tokens alone. A trainer's loss is a function of its attributes, so one of each kind serves all cases.
"""

from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, tensor
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

from rl_online.algorithms.base_kl import kl_base_to_policy_k3, kl_policy_to_base_ratio_k3
from rl_online.algorithms.cispo import cispo
from rl_online.algorithms.dapo import dapo
from rl_online.algorithms.dpo import dpo, robust_dpo
from rl_online.algorithms.dr_grpo import constant_denominator
from rl_online.algorithms.gkd import generalised_jsd
from rl_online.algorithms.gspo import gspo
from rl_online.algorithms.ipo import ipo
from rl_online.algorithms.kto import apo_zero_unpaired, kto, reference_point
from rl_online.algorithms.ppo import clipped_surrogate
from rl_online.algorithms.reduction import sample_sums, sequence_mean_weights, to_tokens
from rl_online.algorithms.reward_model import bradley_terry
from rl_online.algorithms.rloo import sequence_surrogate
from rl_online.algorithms.sequence_ratio import opsm_keep
from rl_online.policy.logprobs import pad_rows, selected_logprobs
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.local import LocalTrainer
from rl_online.training.objective import Objective
from rl_online.training.samples import Teaching, TrainingSample

# S samples, K trained tokens, T padded length

pytestmark = pytest.mark.filterwarnings("ignore")  # of TRL and what it stands on, which are not ours to mend

TOLERANCE = {"rtol": 0.0, "atol": 1e-6}
WORDS = ["<end>", *(f"w{index}" for index in range(63))]
LENGTHS = tensor([7, 7, 4, 1])
LEFT_PADS = [2, 0, 0, 1]
PROMPT, COMPLETION = 5, 7
ADVANTAGE = tensor([0.5, -0.5, 0.25, -0.25])
COMMON = {"use_cpu": True, "bf16": False, "report_to": "none", "gradient_checkpointing": False, "disable_tqdm": True}


@pytest.fixture(scope="module")
def trl(tmp_path_factory):
    """TRL itself, which reads where its caches are when it is imported, and never looks anything up."""
    cache = tmp_path_factory.mktemp("huggingface")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(cache))
        patch.setenv("HF_DATASETS_CACHE", str(cache))
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        import datasets
        import trl
        from trl.experimental.gkd import GKDTrainer

        datasets.disable_progress_bars()
        yield SimpleNamespace(lib=trl, Dataset=datasets.Dataset, GKDTrainer=GKDTrainer, folder=cache)


@pytest.fixture(scope="module")
def tokenizer():
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<end>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<end>")


def network(seed):
    """Embeddings of size 1, so that gradients are about 1 at most and 1e-6 is more than float32 rounds them by."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"vocab_size": len(WORDS), "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **ids, initializer_range=0.1, attn_implementation="eager"))
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(10)
    return model


def trainer(trl, tokenizer, kind, rows, model=None, **options):
    """A TRL trainer of this kind on a fresh network, ready to compute a loss."""
    config = getattr(trl.lib, f"{kind}Config")
    built = getattr(trl.lib, f"{kind}Trainer")(
        model=model or network(0),
        args=config(output_dir=str(trl.folder / kind), per_device_train_batch_size=4, **COMMON, **options),
        train_dataset=trl.Dataset.from_list(rows),
        processing_class=tokenizer,
        **({"reward_funcs": lambda completions, **_: [0.0] * len(completions)} if kind in ("GRPO", "RLOO") else {}),
        **({"ref_model": network(4)} if kind in ("DPO", "KTO") else {}),
    )
    built.model.train()
    built.current_gradient_accumulation_steps = 1
    return built


def first_batch(built):
    torch.manual_seed(0)  # decides the order of the rows
    return next(iter(built.get_train_dataloader()))


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def assert_equal(ours, theirs, model):
    """Both losses and their gradients in every parameter of the network."""
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    expected = gradients(theirs, model)
    assert max(gradient.abs().max() for gradient in expected) > 1e-3
    for one, other in zip(gradients(ours, model), expected, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


def logprobs(model, ids_BT, mask_BT, trained_BT):
    """Of the trained tokens, one row after the other, scored without padding on the left."""
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(ids_BT, mask_BT, strict=True)]
    places = [
        trained[mask.bool()].nonzero().flatten().tolist() for trained, mask in zip(trained_BT, mask_BT, strict=True)
    ]
    return selected_logprobs(model, pad_rows(rows, places, [1.0] * len(rows)), is_split=True)


# Groups and policy losses


@pytest.fixture(scope="module")
def grouped(trl, tokenizer):
    """GRPO's and RLOO's trainer on one network, and a batch with left padding and lengths 7, 7, 4, 1."""
    model = network(0)
    rows = [{"prompt": "w1 w2 w3"}] * 4
    options = {"num_generations": 2, "max_completion_length": COMPLETION}
    draw = torch.Generator().manual_seed(2)
    prompt_mask = torch.stack([(torch.arange(PROMPT) >= pad).long() for pad in LEFT_PADS])
    completion_mask = (torch.arange(COMPLETION) < LENGTHS.unsqueeze(1)).long()
    ids = torch.randint(1, len(WORDS), (4, PROMPT + COMPLETION), generator=draw)
    mask = torch.cat([prompt_mask, completion_mask], 1)
    trained = torch.cat([torch.zeros_like(prompt_mask), completion_mask], 1)
    with torch.no_grad():
        now = logprobs(model, ids, mask, trained)
    old_K, base_K = (now + scale * torch.randn(len(now), generator=draw) for scale in (0.25, 0.4))

    def padded(value_K):
        return torch.zeros(4, COMPLETION).masked_scatter(completion_mask.bool(), value_K)

    return SimpleNamespace(
        grpo=trainer(trl, tokenizer, "GRPO", rows, model, **options),
        rloo=trainer(trl, tokenizer, "RLOO", rows, model, beta=0.0, **options),
        model=model,
        old_K=old_K,
        base_K=base_K,
        logp=lambda: logprobs(model, ids, mask, trained),
        inputs={
            "prompt_ids": ids[:, :PROMPT],
            "prompt_mask": prompt_mask,
            "completion_ids": ids[:, PROMPT:],
            "completion_mask": completion_mask,
            "advantages": ADVANTAGE,
            "old_per_token_logps": padded(old_K),
            "old_logps": sample_sums(old_K, LENGTHS),
            "ref_per_token_logps": padded(base_K),
            "num_items_in_batch": completion_mask.sum().float(),
        },
    )


PLAIN = {
    "loss_type": "dapo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.28,
    "beta": 0.0,
    "importance_sampling_level": "token",
    "off_policy_mask_threshold": None,
}


def theirs(grouped, *, delta=None, corrected_kl=True, **attributes):
    for name, value in (PLAIN | attributes).items():
        assert hasattr(grouped.grpo, name)
        setattr(grouped.grpo, name, value)
    grouped.grpo.args.delta = delta
    grouped.grpo.args.use_bias_correction_kl = corrected_kl
    return grouped.grpo._compute_loss(grouped.model, dict(grouped.inputs))


def per_token(grouped, logp_K, **options):
    """The arguments all token losses share: everything kept, DAPO's clip."""
    everything = {"weight_K": torch.ones(len(logp_K)), "keep_K": torch.ones(len(logp_K)).bool()}
    return (
        {"logp_K": logp_K, "old_K": grouped.old_K, "advantage_K": to_tokens(ADVANTAGE, LENGTHS)} | everything | options
    )


def test_dapo(grouped):
    ours = dapo(**per_token(grouped, grouped.logp()), denominator=int(LENGTHS.sum()))
    assert_equal(ours, theirs(grouped), grouped.model)


def test_the_dual_clip_is_trls_delta(grouped):
    ours = clipped_surrogate(
        **per_token(grouped, grouped.logp()), denominator=19, clip_low=0.2, clip_high=0.28, dual_clip=1.3
    )
    assert_equal(ours, theirs(grouped, delta=1.3), grouped.model)


def test_grpo(grouped):
    weights = {"weight_K": sequence_mean_weights(LENGTHS)}
    ours = clipped_surrogate(**per_token(grouped, grouped.logp(), **weights), denominator=4)
    assert_equal(ours, theirs(grouped, loss_type="grpo", epsilon_high=0.2), grouped.model)


def test_dr_grpo(grouped):
    count = constant_denominator(4, max_length=COMPLETION)
    ours = clipped_surrogate(**per_token(grouped, grouped.logp()), denominator=count)
    assert_equal(ours, theirs(grouped, loss_type="dr_grpo", epsilon_high=0.2), grouped.model)


@pytest.mark.parametrize("corrected", [True, False], ids=["ratio x k3", "bare k3"])
def test_grpo_with_a_kl(grouped, corrected):
    logp_K, weight_K = grouped.logp(), sequence_mean_weights(LENGTHS)
    policy = clipped_surrogate(**per_token(grouped, logp_K, weight_K=weight_K), denominator=4)
    kl = (
        kl_policy_to_base_ratio_k3(logp_K, grouped.old_K, grouped.base_K, weight_K, denominator=4)
        if corrected
        else kl_base_to_policy_k3(logp_K, grouped.base_K, weight_K, denominator=4)
    )
    expected = theirs(grouped, loss_type="grpo", epsilon_high=0.2, beta=0.04, corrected_kl=corrected)
    assert_equal(policy + 0.04 * kl, expected, grouped.model)


def test_gspo(grouped):
    ours = gspo(grouped.logp(), grouped.old_K, ADVANTAGE, torch.ones(4), LENGTHS, denominator=4)
    options = {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4}
    assert_equal(ours, theirs(grouped, loss_type="grpo", **options), grouped.model)


def test_cispo(grouped):
    ours = cispo(**per_token(grouped, grouped.logp()), denominator=19)
    assert_equal(ours, theirs(grouped, loss_type="cispo", epsilon_high=5.0), grouped.model)


def test_opsm(grouped):
    logp_K = grouped.logp()
    keep_S = opsm_keep(logp_K, grouped.old_K, ADVANTAGE, LENGTHS, threshold=0.01)
    assert keep_S.tolist().count(False) == 1
    ours = dapo(**per_token(grouped, logp_K, keep_K=to_tokens(keep_S, LENGTHS)), denominator=19)
    assert_equal(ours, theirs(grouped, off_policy_mask_threshold=0.01), grouped.model)


def test_rloo(grouped):
    ours = sequence_surrogate(grouped.logp(), grouped.old_K, ADVANTAGE, torch.ones(4), LENGTHS, denominator=4)
    grouped.rloo.epsilon_low = grouped.rloo.epsilon_high = 0.2
    assert_equal(ours, grouped.rloo._compute_loss(grouped.model, dict(grouped.inputs)), grouped.model)


# Good and bad answers

VERDICTS = [
    {"prompt": "w1 w2 w3 ", "completion": "w4 w5 w6", "label": True},
    {"prompt": "w7 ", "completion": "w8", "label": False},
    {"prompt": "w9 w10 ", "completion": "w11 w12 w13 w14 w15", "label": True},
    {"prompt": "w16 w17 ", "completion": "w18 w19", "label": False},
]


@pytest.fixture(scope="module")
def verdicts(trl, tokenizer):
    built = trainer(trl, tokenizer, "KTO", VERDICTS, max_length=32)
    return SimpleNamespace(trainer=built, model=built.model, batch=first_batch(built))


def gains(built, ids, mask, trained) -> Tensor:
    """Of each answer: summed log-probability under the policy minus under the reference."""
    lengths = (trained * mask).sum(1)
    with torch.no_grad():
        reference_K = logprobs(built.ref_model, ids, mask, trained)
    return sample_sums(logprobs(built.model, ids, mask, trained) - reference_K, lengths)


@pytest.mark.parametrize("loss_type", ["kto", "apo_zero_unpaired"])
def test_kto(verdicts, loss_type):
    built, batch = verdicts.trainer, verdicts.batch
    built.loss_type = loss_type
    built.desirable_weight, built.undesirable_weight = 1.0, 1.25
    gain_S = gains(built, batch["input_ids"], batch["attention_mask"], batch["completion_mask"])
    with torch.no_grad():
        mismatched = gains(built, batch["KL_input_ids"], batch["KL_attention_mask"], batch["KL_completion_mask"])
    z = reference_point(mismatched.tolist())
    assert z > 0.01
    options = {"beta": 0.1, "undesirable": 1.25, "denominator": 4}
    good_S = batch["label"].bool()
    ours = (
        kto(gain_S, good_S, torch.ones(4), reference_point=z, **options)
        if loss_type == "kto"
        else apo_zero_unpaired(gain_S, good_S, torch.ones(4), **options)
    )
    theirs = built._compute_loss(built.model, batch, False)
    assert built._metrics["train"]["kl"][-1] == pytest.approx(z, abs=5e-6)  # a sum over tokens, in nats
    assert_equal(ours, theirs, built.model)


# Pairs

PAIRS = [
    {"prompt": "w1 w2 w3 ", "chosen": "w4 w5 w6", "rejected": "w7"},
    {"prompt": "w8 ", "chosen": "w9", "rejected": "w10 w11 w12"},
    {"prompt": "w13 w14 ", "chosen": "w15 w16 w17 w18", "rejected": "w19 w20 w21"},
    {"prompt": "w22 w23 ", "chosen": "w24 w25", "rejected": "w26 w27"},
]


@pytest.fixture(scope="module")
def pairs(trl, tokenizer):
    built = trainer(trl, tokenizer, "DPO", PAIRS, max_length=32)
    return SimpleNamespace(trainer=built, batch=first_batch(built))


@pytest.mark.parametrize("loss_type", ["sigmoid", "robust", "ipo"])
def test_pairs(pairs, loss_type):
    built, batch = pairs.trainer, pairs.batch
    built.loss_types, built.loss_weights, built.label_smoothing = [loss_type], [1.0], 0.1
    built.beta = 0.5  # IPO's loss is then about 1: at .1 it is about 25, of which float32 holds 2e-6
    gain = gains(built, batch["input_ids"], batch["attention_mask"], batch["completion_mask"])
    (preferred, rejected), over_all = gain.chunk(2), {"beta": 0.5, "denominator": 4}
    preferred_length, rejected_length = batch["completion_mask"].sum(1).chunk(2)
    ours = {
        "sigmoid": lambda: dpo(preferred, rejected, torch.ones(4), **over_all),
        "robust": lambda: robust_dpo(preferred, rejected, torch.ones(4), **over_all),
        "ipo": lambda: ipo(preferred, rejected, preferred_length, rejected_length, torch.ones(4), **over_all),
    }[loss_type]()
    assert_equal(ours, built.compute_loss(built.model, dict(batch)), built.model)


def test_a_reward_model_with_margins(trl, tokenizer):
    config = network(0).config
    config.num_labels = 1
    scorer = LlamaForSequenceClassification(config)
    rows = [row | {"margin": 0.5 * index} for index, row in enumerate(PAIRS)]
    built = trainer(trl, tokenizer, "Reward", rows, scorer, max_length=32, center_rewards_coefficient=0.01)
    batch = first_batch(built)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    preferred, rejected = scorer(**inputs).logits.squeeze(-1).chunk(2)
    ours = bradley_terry(preferred, rejected, torch.ones(4), margin_P=batch["margin"], centering=0.01, denominator=4)
    assert_equal(ours, built.compute_loss(scorer, dict(batch)), scorer)


# A teacher's logits


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_gkd(trl, beta):
    draw = torch.Generator().manual_seed(2)
    student, teacher = (torch.randn(2, 5, 64, generator=draw) * 2 for _ in range(2))
    labels = tensor([[-100, 3, 4, 5, 6], [-100, -100, 7, 8, -100]])
    trained = labels != -100
    inputs = [student.clone().requires_grad_() for _ in range(2)]
    theirs = trl.GKDTrainer.generalized_jsd_loss(inputs[0], teacher, labels, beta=beta, temperature=0.7)
    ours = generalised_jsd(
        inputs[1][trained], teacher[trained], torch.ones(6), beta=beta, temperature=0.7, denominator=6
    )
    theirs.backward()
    ours.backward()
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad, **TOLERANCE)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_gkd_as_a_term_of_an_update(trl, tmp_path, beta):
    """Two answers, a teacher in a folder, cut into two passes: the trainer's term, and its gradient in every weight."""
    for seed, name in enumerate(("student", "teacher")):
        network(seed).save_pretrained(tmp_path / name)
    ids, labels = tensor([[9, 3, 4, 5, 6], [8, 2, 7, 1, 0]]), tensor([[-100, -100, 4, 5, 6], [-100, 2, 7, -100, -100]])
    model, teacher = network(0), network(1)
    theirs = trl.GKDTrainer.generalized_jsd_loss(
        model(input_ids=ids).logits[:, :-1], teacher(input_ids=ids).logits[:, :-1], labels[:, 1:], beta=beta
    )
    places = [[2, 3, 4], [1, 2]]
    samples = [
        TrainingSample(
            token_ids=row, positions=at, weights={}, reward=0.0, teaching=Teaching(weight=1.0, reads=row, places=at)
        )
        for row, at in zip(ids.tolist(), places, strict=True)
    ]
    config = UpdateConfig(distill_weight=1.0, distill_beta=beta, micro_batch_tokens=5)
    trainer = LocalTrainer(tmp_path / "student", config=config, device="cpu", seed=0, teacher=tmp_path / "teacher")
    seen = trainer.forward_backward(samples, Objective.of(samples, config))
    assert seen.num_passes == 2
    assert seen.losses["distill"] == pytest.approx(theirs.item(), abs=1e-6)
    expected = gradients(theirs, model)
    for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
        torch.testing.assert_close(trainer.optimizer.gradients[name].reshape(gradient.shape), gradient, **TOLERANCE)
