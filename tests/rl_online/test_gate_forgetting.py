"""General text in the gate: a candidate that predicts it worse than its base by more than the limit is held."""

import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rl_online.gate.decision import Kind
from rl_online.gate.forgetting import DocumentLoss, Forgetting, check_forgetting
from rl_online.gate.limits import Limits
from rl_online.policy.load import load_tokenizer
from rl_online.policy.tiny import build_tiny_policy
from rl_online.training.forgetting import measure_forgetting, spell
from rl_online.training.general_texts import Document, NoTexts, Texts, builtin_texts, read_texts
from rl_online.training.scoring import frozen_scorer
from rl_online.training.state import FORGETTING, state_folder
from tests.rl_online.test_gate import SAME, half, judged
from tests.rl_online.training.test_update import left_after
from tests.rl_online.training.tiny_update import CONFIG, WORDS, make_request, make_samples, run

TEXTS = "\n\n".join(" ".join(WORDS[(7 * row + place * row) % 30] for place in range(1, 12)) for row in range(1, 7))


def measured(*documents):
    losses = [
        DocumentLoss(name=str(n), num_tokens=tokens, num_bytes=4 * tokens, candidate_nats=after, base_nats=before)
        for n, (tokens, after, before) in enumerate(documents)
    ]
    return Forgetting(texts="t", digest="d", base="b", documents=tuple(losses))


def test_the_rise_is_over_tokens_and_its_error_over_documents():
    # rises 1, 2 and 3 over 10, 20 and 30 tokens: 6 / 60 with no document off it; then 3, 0, 3: residuals 2, -2, 0
    even = check_forgetting(measured((10, 31, 30), (20, 62, 60), (30, 93, 90)), Limits(max_forgetting=0.101))
    assert (even.rise, even.upper, even.passes) == pytest.approx((0.1, 0.1, True))
    found = check_forgetting(measured((10, 33, 30), (20, 60, 60), (30, 93, 90)), Limits(max_forgetting=0.101))
    reach = 2.919986 * math.sqrt(3 / 2 * 8) / 60  # t at .95 with 2 degrees of freedom
    assert (found.lower, found.upper) == pytest.approx((0.1 - reach, 0.1 + reach), abs=1e-6)
    assert not found.passes and "not below +0.101" in found.sentence
    assert found.candidate_bits == pytest.approx(186 / math.log(2) / 240)


@pytest.mark.parametrize(
    ("forgetting", "kind", "said"),
    [
        (measured((10, 31, 30), (10, 31, 30)), Kind.PROMOTE, "+0.100 nats per token on 2 documents of t"),
        (measured((10, 33, 30), (10, 33, 30)), Kind.HOLD, "upper 95% bound +0.300 not below +0.200"),
        (measured((10, 30, 30)), Kind.HOLD, "1 documents of t, too few for a bound"),
        (Forgetting(unmeasured="no set is chosen"), Kind.PROMOTE, "general text: unmeasured, no set is chosen"),
    ],
)
def test_what_was_forgotten_beyond_the_limit_holds_and_what_is_unmeasured_is_said(forgetting, kind, said):
    decision = judged(half(candidate=SAME, serving=SAME), forgetting=forgetting)
    assert decision.kind is kind
    assert any(said in reason for reason in decision.reasons)
    assert decision.to_json()["evidence"]["forgetting"]["sentence"] in decision.reasons


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="max_forgetting"):
        Limits(max_forgetting=0.0)


# Measured after an update


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def update(root, samples=None, **changes):
    (root / "texts").mkdir(parents=True, exist_ok=True)
    (root / "texts" / "own.txt").write_text(TEXTS)
    request = make_request(root, samples, config=replace(CONFIG, general_texts="own.txt", **changes))
    return replace(request, base_folder=request.parent_folder, texts_folder=root / "texts")


def after(request):
    return Forgetting.from_json(json.loads((state_folder(request.out_folder) / FORGETTING).read_text()))


def test_a_policy_that_learnt_one_line_by_heart_is_held(tmp_path):
    sample = make_samples(1, seed=3, row={"turn": "t", "kind": "ce"})[0]
    careful = update(tmp_path / "careful", [sample] * 8, learning_rate=1e-4)
    careless = update(tmp_path / "careless", [sample] * 8, learning_rate=1e-2, epochs=25)
    run(careful)
    result = run(careless)
    decisions = [judged(half(candidate=SAME, serving=SAME), forgetting=after(one)) for one in (careful, careless)]
    assert [one.kind for one in decisions] == [Kind.PROMOTE, Kind.HOLD]
    assert decisions[1].forgetting.rise == pytest.approx(result.metrics["forgetting"])
    assert "general text" in decisions[1].reasons[0]


def test_a_killed_update_measures_the_same(tmp_path):
    straight, killed = (update(tmp_path / name, snapshot_steps=1) for name in ("straight", "killed"))
    run(straight)
    left_after(killed, "update.after_snapshot", times=2)
    run(killed)
    assert after(killed) == after(straight) and len(after(straight).documents) == 6


def test_of_an_adapter_the_saved_weights_are_measured(tmp_path):
    request = update(tmp_path, lora_rank=4, learning_rate=1e-2)
    run(request)
    measured_of = partial(
        measure_forgetting,
        folder=request.out_folder,
        base=request.base_folder,
        config=request.config,
        texts_folder=request.texts_folder,
        device="cpu",
    )
    saved = measured_of(frozen_scorer(request.out_folder, request.config, device="cpu"))
    assert after(request) == saved and saved.numbers["forgetting"] != 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"general_texts": ""}, "no set of general texts is chosen"),
        ({"general_texts": "gone.txt"}, "there is no file gone.txt"),
        ({"general_texts": "../own.txt"}, "write the name of a file"),
        ({"general_texts": "builtin"}, "most of builtin is unknown to the policy's tokenizer"),
    ],
)
def test_what_cannot_be_measured_says_why_and_fails_no_update(tmp_path, changes, said):
    request = update(tmp_path, make_samples(2))
    request = replace(request, config=replace(request.config, **changes))
    assert "forgetting" not in run(request).metrics
    assert said in after(request).unmeasured


def test_documents_of_a_file_are_lines_of_json_or_stand_between_blank_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"name": "one", "text": "first"}\n\n{"text": "second"}\n')
    (tmp_path / "a.txt").write_text("first\nline\n\n \n\nsecond\n")
    (tmp_path / "bad.jsonl").write_text('{"words": 1}\n')
    as_rows = [[(one.name, one.text) for one in read_texts(f"a.{end}", tmp_path).documents] for end in ("jsonl", "txt")]
    assert as_rows == [[("one", "first"), ("2", "second")], [("1", "first\nline"), ("2", "second")]]
    with pytest.raises(NoTexts, match=r"bad.jsonl cannot be read: 'text'"):
        read_texts("bad.jsonl", tmp_path)


def test_the_built_in_set_is_the_same_each_time_and_no_copy_of_ours():
    texts = builtin_texts()
    assert texts.digest == builtin_texts().digest
    assert len(texts.documents) >= 20 and {len(one.text) for one in texts.documents} == {480}


def test_a_long_document_is_cut_into_windows_and_one_the_tokenizer_cannot_spell_is_left_out(tmp_path):
    tokenizer = load_tokenizer(build_tiny_policy(tmp_path, WORDS))
    long, strange = " ".join(WORDS[:20] * 40), "nobody knows these w1"
    found = spell(
        Texts(name="t", documents=(Document(name="long", text=long), Document(name="strange", text=strange))), tokenizer
    )
    assert [(one.name, [len(window) for window in one.windows]) for one in found] == [("long", [512, 288])]


def test_only_the_bytes_that_counted_tokens_spell_are_counted(tmp_path):
    tokenizer = load_tokenizer(build_tiny_policy(tmp_path, WORDS))
    words = [WORDS[place % 20] for place in range(513)]  # a window of 512, and a token alone that is not read
    texts = ("w1 w2 é", " ".join(words))
    found = spell(Texts(name="t", documents=tuple(Document(name="d", text=text) for text in texts)), tokenizer)
    counted = [" w2 é", "".join(f" {word}" for word in words[1:512])]
    assert [one.num_bytes for one in found] == [len(text.encode()) for text in counted]
