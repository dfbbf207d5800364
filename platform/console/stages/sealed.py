"""Of fine-tuning and of pairs: what the batch was made of, whose it is, and by which options it was chosen."""

import json
from collections import Counter
from typing import Any

from django.conf import settings
from django.db.models import Count

from rl_online.models import BatchSample, UpdateRun
from rl_online.rewards.batch import ROWS


def context(run: UpdateRun) -> dict[str, Any]:
    counted = BatchSample.objects.filter(batch=run.batch_id).aggregate(
        turns=Count("turn_ref", distinct=True), people=Count("user_hash", distinct=True)
    )
    return {
        "sources": made_of(run.batch.digest),
        "num_turns": counted["turns"],
        "num_people": counted["people"],
        "options": sorted(run.options.items()),
    }


def made_of(digest: str) -> list[tuple[str, int]] | None:
    """Samples by what speaks for them, most frequent first; None where the batch's files are gone."""
    path = settings.HOME.batches / digest / ROWS
    if not path.is_file():
        return None
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    return Counter(row.get("label_reason", "deleted") for row in rows).most_common()
