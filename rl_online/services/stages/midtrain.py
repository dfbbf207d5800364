"""Mid-training: every token of a corpus of code and text, learnt by cross-entropy. Inside a tenant.

Its batch is a small folder that names the corpus; the rows are read where they lie, shard by shard.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from registry.errors import InvalidInput, NotFound
from rl_online.corpus.shards import Row, open_corpus, read_shard
from rl_online.corpus.tokens import TOKENIZER
from rl_online.models import Corpus, UpdateKind
from rl_online.rewards.batch import Sample, SealedBatch
from rl_online.rewards.durable import new_folder
from rl_online.services.corpora import find_corpus, folder_of_corpus, usable
from rl_online.services.plans import folder_of
from rl_online.services.stages.stage import Ask, Contents, Option, Ready, Stage

NAMED = "CORPUS.json"


def look(asked: Ask) -> Ready:
    row = _corpus(asked)
    if row is None:
        return Ready(num_ready=0, num_needed=1)
    return Ready(
        num_ready=row.num_rows,
        num_needed=1,
        num_excluded=row.facts["dropped"],
        sources={language: counts["documents"] for language, counts in row.facts["languages"].items()},
        num_tokens=row.num_tokens,
    )


def gather(asked: Ask, at_most: int | None) -> Contents:
    """Of a dry run the first rows as samples, else the corpus by its name. Raises InvalidInput."""
    row = _corpus(asked)
    if row is None:
        return Contents(num_units=0, samples=[], lineage=[], dropped={})
    if row.facts["tokenizer"] != _tokenizer_of(asked):
        raise InvalidInput(
            f"{row} was made with another tokenizer than that of {asked.line.serving}; "
            f"make it again with strop corpus add {row.name}",
            field="corpus",
        )
    if at_most is not None:
        rows = [one for one in read_shard(open_corpus(folder_of_corpus(row)), 0) if not one.is_heldout][:at_most]
        return Contents(
            num_units=len(rows), samples=[sample for one in rows for sample in _samples(one)], lineage=[], dropped={}
        )
    return Contents(
        num_units=row.num_rows,
        samples=[],
        lineage=[],
        dropped=row.facts["dropped"],
        inputs={"corpus": row.digest},
        seal=partial(seal_name, row, asked),
    )


def seal_name(row: Corpus, asked: Ask, root: Path) -> SealedBatch:
    """A folder that says which corpus, under `root`; the same for the same policy and corpus."""
    named = {"corpus": row.digest, "name": str(row), "policy": str(asked.policy.id)}
    data = json.dumps(named, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    if not (root / digest).is_dir():
        with new_folder(root / digest) as draft:
            (draft / NAMED).write_bytes(data)
    return SealedBatch(digest=digest, folder=root / digest, num_samples=row.num_rows, num_tokens=row.num_tokens)


def folders(inputs: Mapping[str, Any]) -> dict[str, Path]:
    """None for a dry run, whose rows are samples in its batch. Raises NotFound."""
    if "corpus" not in inputs:
        return {}
    row = usable(Corpus.objects.filter(digest=inputs["corpus"])).first()
    if row is None:
        raise NotFound(f"the files of corpus {inputs['corpus'][:12]} are deleted")
    return {"corpus": folder_of_corpus(row)}


def _corpus(asked: Ask) -> Corpus | None:
    """The one named, or the newest; None where none is ready. Raises InvalidInput for a name that is not usable."""
    named = asked.options["corpus"]
    if not named:
        return usable(Corpus.objects.filter(made_for__policy=asked.policy)).first()
    try:
        row = find_corpus(named)
    except NotFound as error:
        raise InvalidInput(error.message, field="corpus") from None
    if not usable(Corpus.objects.filter(pk=row.pk)).exists():
        why = "its files are deleted" if row.files_deleted_at else f"it is {row.state}"
        raise InvalidInput(f"{row} cannot be trained on: {why}", field="corpus")
    return row


def _tokenizer_of(asked: Ask) -> str:
    return hashlib.sha256((folder_of(asked.line.serving) / TOKENIZER).read_bytes()).hexdigest()


def _samples(row: Row) -> list[Sample]:
    return [
        Sample(
            token_ids=part.token_ids.tolist(),
            prompt_length=1,
            mask=[0] + [1] * (len(part.token_ids) - 1),
            behaviour_logprobs=None,
            reward=0.0,
            baseline=0.0,
            versions=[-1] * len(part.token_ids),
            row={"kind": "ce", "stage": str(UpdateKind.MIDTRAIN), "slice": part.language, "document": part.document},
        )
        for part in row.parts
    ]


STAGE = Stage(
    kind=UpdateKind.MIDTRAIN,
    title="Mid-training",
    purpose="Learn the code and text of a corpus, before anything is learnt from users.",
    unit="rows",
    options=(Option(name="corpus", default="", help="name or name@version; empty: the newest of this policy"),),
    settings=(
        "learning_rate", "schedule", "warmup_steps", "epochs", "minibatch_size", "micro_batch_tokens", "packing",
        "gradient_checkpointing", "weight_decay", "grad_clip", "heldout_every", "snapshot_s",
    ),
    preset={
        "schedule": "cosine", "warmup_steps": 10, "packing": True, "micro_batch_tokens": 4096, "weight_decay": 0.1,
        "heldout_every": 10, "ce_weight": 1.0, "base_kl": 0.0, "distill_weight": 0.0,
    },
    look=look,
    gather=gather,
    folders=folders,
    fits_as_update=False,
)  # fmt: skip
