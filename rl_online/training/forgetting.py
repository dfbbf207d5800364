"""What an update cost in general language: the loss of candidate and base on the same texts, document by document.

Measured once the last step is done, whatever kind of update it was, and kept beside the checkpoint. Whether it is too
much is the gate's to decide (`rl_online.gate.forgetting`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from rl_online.gate.forgetting import DocumentLoss, Forgetting
from rl_online.policy.load import load_tokenizer
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.general_texts import NoTexts, Texts, read_texts
from rl_online.training.samples import TrainingSample
from rl_online.training.scoring import Scorer, frozen_scorer
from rl_online.weights.manifest import read_manifest

WINDOW = 512  # tokens read at once; a longer document is cut, and the first token of each piece is not counted
MAX_UNKNOWN = 0.5  # of a document's tokens: a tokenizer that cannot spell a text has nothing to forget of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Spelled:
    """A document as the policy reads it."""

    name: str
    num_bytes: int  # of what the counted tokens spell; 0 where the tokenizer does not say where they stand
    windows: list[list[int]]


def measure_forgetting(
    candidate: Scorer, *, folder: Path, base: Path | None, config: UpdateConfig, texts_folder: Path | None, device: str
) -> Forgetting:
    """`candidate` scores under the weights as they are after the last step; `folder` has the tokenizer they read by.

    Where nothing can be measured, the result says why.
    """
    if not config.general_texts:
        return Forgetting(unmeasured="no set of general texts is chosen")
    if base is None:
        return Forgetting(unmeasured="there is no base to compare with")
    try:
        texts = read_texts(config.general_texts, texts_folder)
    except NoTexts as error:
        return Forgetting(unmeasured=str(error))
    documents = spell(texts, load_tokenizer(folder))
    if not documents:
        return Forgetting(unmeasured=f"most of {texts.name} is unknown to the policy's tokenizer")
    samples = [sample for one in documents for sample in _samples(one)]
    after, before = candidate(samples), frozen_scorer(base, config, device=device)(samples)
    return Forgetting(
        texts=texts.name,
        digest=texts.digest,
        base=read_manifest(base).tree_digest,
        documents=tuple(_losses(documents, after, before)),
    )


def spell(texts: Texts, tokenizer: PreTrainedTokenizerBase) -> list[Spelled]:
    """Documents that the tokenizer knows at least half the tokens of, and that have two tokens or more."""
    found = []
    for document in texts.documents:
        spelling = tokenizer(document.text, add_special_tokens=False, return_offsets_mapping=tokenizer.is_fast)
        ids = spelling["input_ids"]
        unknown = 0 if tokenizer.unk_token_id is None else ids.count(tokenizer.unk_token_id)
        windows = [ids[start : start + WINDOW] for start in range(0, len(ids), WINDOW)]
        windows = [window for window in windows if len(window) > 1]
        if windows and unknown <= MAX_UNKNOWN * len(ids):
            num_bytes = _counted_bytes(document.text, spelling.get("offset_mapping", []))
            found.append(Spelled(name=document.name, num_bytes=num_bytes, windows=windows))
    return found


def _counted_bytes(text: str, spans: Sequence[tuple[int, int]]) -> int:
    """Of each window what follows its first token; `spans` are the characters of all tokens."""
    windows = [spans[start : start + WINDOW] for start in range(0, len(spans), WINDOW)]
    return sum(len(text[window[0][1] : window[-1][1]].encode()) for window in windows)


def _samples(one: Spelled) -> list[TrainingSample]:
    return [
        TrainingSample(token_ids=window, positions=list(range(1, len(window))), weights={}, reward=0.0)
        for window in one.windows
    ]


def _losses(
    documents: Sequence[Spelled], after: Sequence[Sequence[float]], before: Sequence[Sequence[float]]
) -> list[DocumentLoss]:
    rows = iter(zip(after, before, strict=True))
    found = []
    for one in documents:
        parts = [next(rows) for _ in one.windows]
        found.append(
            DocumentLoss(
                name=one.name,
                num_tokens=sum(len(now) for now, _ in parts),
                num_bytes=one.num_bytes,
                candidate_nats=-sum(sum(now) for now, _ in parts),
                base_nats=-sum(sum(then) for _, then in parts),
            )
        )
    return found
