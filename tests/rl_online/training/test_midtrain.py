import shutil
from collections import Counter
from dataclasses import replace

import pytest

from rl_online.corpus.build import BuildRequest, build_corpus
from rl_online.corpus.errors import CorruptCorpus
from rl_online.corpus.leaks import Problems
from rl_online.corpus.recipe import Recipe
from rl_online.corpus.shards import open_corpus, read_shard
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training import corpus_steps
from rl_online.training.corpus_steps import CorpusSteps, heldout_of
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.midtrain import learn_from_corpus
from rl_online.training.update import UpdateCancelled, run_update
from tests.rl_online.training import tiny_update

CONFIG = UpdateConfig(
    learning_rate=3e-3, minibatch_size=4, micro_batch_tokens=64, epochs=2, packing=True, schedule="cosine",
    warmup_steps=2, snapshot_steps=1, heldout_every=4, general_texts="",
)  # fmt: skip
TEXTS = {"py": "w1 w2 w3 w4", "md": "w7 w9 w11"}


def write_files(folder):
    folder.mkdir()
    for number in range(24):
        language = ("py", "md")[number % 2]
        extra = " ".join(f"w{(number * place) % 30}" for place in range(1, 12))
        (folder / f"f{number:02}.{language}").write_text(f"{TEXTS[language]} {extra} {TEXTS[language]}")
    return folder


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """An update over a corpus of short files in two languages, of each of which one is set aside."""
    root = tmp_path_factory.mktemp("midtrain")
    request = tiny_update.make_request(root, config=CONFIG, kind="midtrain")
    corpus = build_corpus(
        BuildRequest(
            source=write_files(root / "files"),
            root=root / "corpora",
            work=root / "work",
            checkpoint=request.parent_folder,
            recipe=Recipe(row_tokens=32, shard_tokens=60, heldout=1),
            problems=Problems([]),
        )
    )
    return replace(request, inputs={"corpus": corpus.digest}, folders={"corpus": corpus.folder})


@pytest.fixture(scope="module")
def whole(asked):
    """(what it reported, its result) when nothing went wrong."""
    seen = []
    result = run(asked, on_progress=seen.append)
    return seen, result


def elsewhere(asked, folder, **changes):
    return replace(asked, out_folder=folder / "v000002", deltas_root=folder / "deltas", **changes)


def run(asked, **hooks):
    quiet = {"on_progress": lambda progress: None, "is_cancelled": lambda: False, "crash": lambda name: None}
    return run_update(asked, learn=learn_from_corpus, **(quiet | hooks))


def corpus_of(asked):
    return open_corpus(asked.folders["corpus"])


def steps_of(asked):
    return CorpusSteps(corpus_of(asked), asked.config, seed=asked.seed, crash=lambda name: None)


def keys(samples):
    return [tuple(sample.token_ids) for sample in samples]


def test_every_piece_is_in_one_step_of_each_epoch_and_no_held_out_one_in_any(asked):
    steps, corpus = steps_of(asked), corpus_of(asked)
    rows = [row for number in range(len(corpus.shards)) for row in read_shard(corpus, number)]
    pieces = [tuple(part.token_ids.tolist()) for row in rows if not row.is_heldout for part in row.parts]
    taken = [key for step in range(1, len(steps) + 1) for key in keys(steps.take(step)[0])]
    assert len(corpus.shards) > corpus_steps.SHARDS_AT_ONCE
    assert Counter(taken) == {piece: 2 * count for piece, count in Counter(pieces).items()}
    assert heldout_of(corpus) and not set(keys(heldout_of(corpus))) & set(taken)


def test_epochs_have_orders_of_their_own_and_a_step_asked_again_is_the_same(asked):
    steps = steps_of(asked)
    half = len(steps) // 2
    orders = [[keys(steps.take(step)[0]) for step in range(start + 1, start + half + 1)] for start in (0, half, 0)]
    assert orders[0] == orders[2] != orders[1]


def test_each_shard_is_read_once_an_epoch_and_few_are_held(asked, monkeypatch):
    read = []

    def reading(corpus, number):
        read.append(number)
        return read_shard(corpus, number)

    monkeypatch.setattr(corpus_steps, "read_shard", reading)
    steps, corpus = steps_of(asked), corpus_of(asked)
    for step in range(1, len(steps) + 1):
        steps.take(step)
        held = {part.document for row in steps._held[2] for part in row.parts}
        assert len(held) < sum(row["documents"] for row in corpus.facts["languages"].values())
    assert Counter(read) == dict.fromkeys(range(len(corpus.shards)), 2)


def test_the_loss_falls_and_is_shown_by_language_for_what_is_trained_and_held_out(asked, whole):
    seen, result = whole
    steps = [progress.metrics for progress in seen if progress.metrics]
    assert sum(one["loss"] for one in steps[-3:]) < sum(one["loss"] for one in steps[:3])
    assert {"loss_ce.python", "loss_ce.markdown"} <= result.metrics.keys()
    assert any(name.startswith("heldout_loss_ce.") for name in result.metrics)
    looked = [number for number, metrics in enumerate(steps, 1) if "heldout_loss" in metrics]
    assert looked == sorted({*range(4, len(steps) + 1, 4), len(steps)})
    assert result.metrics["num_tokens"] == corpus_of(asked).num_tokens


def test_the_languages_weighed_by_their_tokens_make_the_loss_of_the_step(asked, whole):
    steps, mixed = steps_of(asked), set()
    for progress in whole[0][1:]:
        tokens = Counter()
        for sample in steps.take(progress.step)[0]:
            tokens[sample.slice] += len(sample.positions)
        by_language = sum(progress.metrics[f"loss_ce.{name}"] * count for name, count in tokens.items())
        assert by_language / tokens.total() == pytest.approx(progress.metrics["loss_ce"], abs=1e-5)
        mixed.add(len(tokens))
    assert 2 in mixed


def test_the_learning_rate_warms_up_and_ends_near_nothing(whole):
    rates = [progress.metrics["learning_rate"] for progress in whole[0][1:]]
    assert rates[:2] == pytest.approx([CONFIG.learning_rate / 2, CONFIG.learning_rate])
    assert rates[-1] < CONFIG.learning_rate / 10 and max(rates) <= CONFIG.learning_rate


def test_a_document_in_a_packed_row_is_scored_as_if_it_stood_alone(asked, whole, tmp_path):
    alone = []
    other = elsewhere(asked, tmp_path, config=replace(CONFIG, packing=False))
    with pytest.raises(UpdateCancelled):
        run(other, on_progress=alone.append, is_cancelled=lambda: len(alone) == 2)
    packed = whole[0][1].metrics
    assert packed["loss"] == pytest.approx(alone[1].metrics["loss"], abs=1e-5)
    assert packed["padding_share"] == 0.0 < alone[1].metrics["padding_share"]


class Killed(BaseException):
    """What kill -9 is to a test in one process."""


def killed_at(wanted, count):
    seen = Counter()

    def crash(name):
        seen[name] += 1
        if name == wanted and seen[name] == count:
            raise Killed

    return crash


@pytest.mark.parametrize(("point", "count"), [("update.next_shards", 3), ("update.after_optimizer", 5)])
def test_an_update_killed_between_shards_ends_with_the_same_bits(asked, whole, tmp_path, point, count):
    killed = elsewhere(asked, tmp_path)
    with pytest.raises(Killed):
        run(killed, crash=killed_at(point, count))
    seen = []
    run(killed, on_progress=seen.append)
    file = "model.safetensors"
    assert (killed.out_folder / file).read_bytes() == (asked.out_folder / file).read_bytes()
    assert [progress.metrics.get("loss") for progress in seen] == [one.metrics.get("loss") for one in whole[0]]


def test_a_corpus_that_was_changed_is_not_trained_on(asked, tmp_path):
    folder = tmp_path / corpus_of(asked).digest
    shutil.copytree(asked.folders["corpus"], folder)
    rows = folder / "shard-000000" / "rows.jsonl"
    rows.write_bytes(rows.read_bytes().replace(b"python", b"pythom"))
    changed = elsewhere(asked, tmp_path / "out", folders={"corpus": folder})
    with pytest.raises(CorruptCorpus, match="shard-000000"):
        run(changed)
    assert not changed.out_folder.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ce_weight": 0.0}, "ce_weight is 0"),
        ({"base_kl": 0.1}, "base_kl is 0.1, .* set it to 0"),
        ({"distill_weight": 0.5}, "distill_weight is 0.5, .* set it to 0"),
    ],
)
def test_settings_that_a_corpus_cannot_follow_are_refused(asked, tmp_path, changes, said):
    with pytest.raises(ContradictoryUpdate, match=said):
        run(elsewhere(asked, tmp_path, config=replace(asked.config, **changes)))
