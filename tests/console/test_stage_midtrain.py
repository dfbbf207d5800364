"""What the page of mid-training shows of its kind: its corpus by language, with the loss of each."""

from django.urls import reverse

from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.corpus.recipe import Recipe
from rl_online.models import Corpus, UpdateMetric, UpdateRun

COUNTS = {
    "documents": 40,
    "bytes": 9000,
    "tokens": 3000,
    "heldout_documents": 2,
    "fim_pieces": 0,
    "dropped": {"copy": 3},
}


def page(as_owner, project, loop, *, facts=None) -> str:
    with tenant(project.id):
        run = UpdateRun.objects.get(policy=loop.policy, version=2)
        UpdateRun.objects.filter(pk=run.pk).update(kind="midtrain", inputs={"corpus": "c" * 64})
        UpdateMetric.objects.filter(run=run, step=1).update(
            values={"loss_ce.python": 2.25, "heldout_loss_ce.python": 2.5, "loss_ce.c++": 3.75}
        )
        last = UpdateMetric.objects.filter(run=run).latest("step")
        last.values = {"loss_ce.python": 1.25, "heldout_loss_ce.python": 1.5}
        last.save()
        if facts:
            Corpus.objects.create(
                name="ours",
                version=3,
                made_for=Checkpoint.objects.filter(policy=loop.policy).first(),
                source="src",
                recipe=Recipe(fim=0.5).to_json(),
                state="ready",
                digest="c" * 64,
                facts=facts,
            )
    response = as_owner.get(reverse("console:update", kwargs={"project": "editor", "update": run.pk}))
    assert response.status_code == 200
    return response.content.decode()


def test_each_language_stands_with_its_counts_and_its_losses(as_owner, project, loop):
    languages = {"python": COUNTS, "c++": {**COUNTS, "tokens": 1000, "heldout_documents": 0, "dropped": {}}}
    html = page(as_owner, project, loop, facts={"languages": languages, "dropped": {"copy": 3, "secret": 1}})
    table = html[html.index("Languages of the corpus") :]
    python, other = table.index("<td>python</td>"), table.index("<td>c++</td>")
    assert python < other
    assert [number in table[python:other] for number in ("3,000", "75", "2.25", "1.25", "2.5", "1.5")] == [True] * 6
    assert 'data-figure="language-python"' in html and 'data-figure="language-c++"' in html
    assert "ours@3, rows of 1024 tokens, 50% fill-in-the-middle" in html and "3 copy · 1 secret" in html


def test_a_corpus_that_is_gone_is_said(as_owner, project, loop):
    assert "is not known here any more" in page(as_owner, project, loop)
