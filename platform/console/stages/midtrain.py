"""Of mid-training: what its corpus holds in each language, and the loss of each, trained and held out together."""

from dataclasses import dataclass
from typing import Any

from console.charts import updates as plots
from rl_online.models import Corpus, UpdateMetric, UpdateRun

TRAINED, HELDOUT = "loss_ce.", "heldout_loss_ce."


@dataclass(frozen=True, kw_only=True, slots=True)
class Language:
    """One language of the corpus; a loss is None where no step held it, or nothing of it was set aside."""

    name: str
    documents: int
    bytes: int
    tokens: int
    share: float  # of the corpus's tokens
    heldout_documents: int
    num_dropped: int
    first: float | None  # nats per token before the first step that held it
    last: float | None
    first_heldout: float | None
    last_heldout: float | None
    figure: dict[str, Any] | None


def context(run: UpdateRun) -> dict[str, Any]:
    rows = list(UpdateMetric.objects.filter(run=run).order_by("step"))
    corpus = Corpus.objects.filter(digest=run.inputs.get("corpus", "")).order_by("version").first()
    counts = corpus.facts["languages"] if corpus else {}
    total = sum(one["tokens"] for one in counts.values())
    return {
        "corpus": corpus,
        "recipe": _recipe(corpus) if corpus else "",
        "languages": [
            _language(run, rows, name, one, total)
            for name, one in sorted(counts.items(), key=lambda item: (-item[1]["tokens"], item[0]))
            if one["tokens"] or one["heldout_documents"]
        ],
        "dropped": sorted(corpus.facts["dropped"].items(), key=lambda item: (-item[1], item[0])) if corpus else [],
    }


def _language(run: UpdateRun, rows: list[UpdateMetric], name: str, counts: dict[str, Any], total: int) -> Language:
    trained, heldout = ([row.values.get(prefix + name) for row in rows] for prefix in (TRAINED, HELDOUT))
    known, aside = ([value for value in values if value is not None] for values in (trained, heldout))
    figure = plots.curve(
        [row.step for row in rows],
        trained,
        name=f"loss of {name}",
        version=run.version,
        heldout=heldout if aside else None,
    )
    return Language(
        name=name,
        documents=counts["documents"],
        bytes=counts["bytes"],
        tokens=counts["tokens"],
        share=counts["tokens"] / total if total else 0.0,
        heldout_documents=counts["heldout_documents"],
        num_dropped=sum(counts["dropped"].values()),
        first=known[0] if known else None,
        last=known[-1] if known else None,
        first_heldout=aside[0] if aside else None,
        last_heldout=aside[-1] if aside else None,
        figure=figure if known or aside else None,
    )


def _recipe(corpus: Corpus) -> str:
    """In words."""
    recipe = corpus.recipe
    fim = f"{recipe['fim']:.0%} fill-in-the-middle" if recipe["fim"] else "no fill-in-the-middle"
    return f"rows of {recipe['row_tokens']} tokens, {fim}"
