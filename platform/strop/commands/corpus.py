"""`strop corpus`: folders of code and text, made into what mid-training reads."""

import time
from typing import TYPE_CHECKING, Any

import click

from strop.commands.base import (
    actor,
    inside_project,
    json_option,
    needs_running,
    print_json,
    project_option,
    say,
    table,
)
from strop.commands.update import chosen_policy

if TYPE_CHECKING:
    from rl_online.models import Corpus

POLL_S = 0.5


@click.group("corpus", epilog="Example: strop corpus add our-code src --languages python,markdown")
def command() -> None:
    """Code and text for mid-training: screened, de-duplicated, tokenised, packed."""


@command.command("add", epilog="Example: strop corpus add our-code src --fim .5 --languages python --wait")
@click.argument("name")
@click.argument("source", metavar="FOLDER")
@click.option("--policy", metavar="NAME", help="Whose tokenizer it is made with. Not needed when there is only one.")
@click.option("--languages", metavar="A,B", help="Take these alone, e.g. python,markdown. Default: all that are known.")
@click.option("--fim", type=float, help="Share of pieces turned into fill-in-the-middle. Default 0.")
@click.option("--fim-tokens", metavar="PREFIX,SUFFIX,MIDDLE", help="Its tokens, where the tokenizer's are not known.")
@click.option("--row-tokens", type=int, help="Most tokens of a row; longer documents are cut. Default 1024.")
@click.option("--heldout", type=int, help="Documents of each language set aside and only measured. Default 8.")
@click.option("--seed", type=int, help="Of fill-in-the-middle. Default 0.")
@click.option("--wait", is_flag=True, help="Stay until it is ready or failed.")
@project_option
@json_option
@needs_running
def add(
    name: str, source: str, policy: str | None, wait: bool, project: str | None, as_json: bool, **options: Any
) -> None:
    """Make the next version of NAME of a FOLDER, or of one .jsonl, .jsonl.gz or .jsonl.zst file with a `text` a line.

    The path is one of the machine that Strop runs on, below STROP_CORPUS_ROOT. Documents that hold a benchmark's
    problem are left out.

    \b
    JSON: as of show; status 1 when it failed.
    """
    from rl_online.models import Corpus, CorpusState
    from rl_online.services.corpora import add_corpus

    given = {key: value for key, value in options.items() if value is not None}
    for key in given.keys() & {"languages", "fim_tokens"}:
        given[key] = [part.strip() for part in given[key].split(",")]
    with inside_project(project) as found:
        row = add_corpus(name, source, chosen_policy(policy), options=given, actor=actor())
    say(f"{row}: {row.state}")
    while wait and row.state in (CorpusState.QUEUED, CorpusState.BUILDING):
        time.sleep(POLL_S)
        with inside_project(found.slug):
            row = Corpus.objects.select_related("made_for__policy").get(pk=row.pk)
    with inside_project(found.slug):
        _tell(row, as_json=as_json)
    if row.state == CorpusState.FAILED:
        raise click.ClickException(row.error)


@command.command("list", epilog="Example: strop corpus list")
@project_option
@json_option
@needs_running
def list_(project: str | None, as_json: bool) -> None:
    """Show the corpora, newest first.

    \b
    JSON: {"corpora": [...]}, each as of show
    """
    from rl_online.models import Corpus

    with inside_project(project):
        rows = [described(row) for row in Corpus.objects.select_related("made_for__policy").order_by("-created_at")]
    if as_json:
        return print_json({"corpora": rows})
    shown = ("corpus", "policy", "state", "documents", "rows", "tokens")
    click.echo(table([{key: row[key] for key in shown} for row in rows]))
    return None


@command.command("show", epilog="Example: strop corpus show our-code")
@click.argument("name", metavar="NAME[@VERSION]")
@project_option
@json_option
@needs_running
def show(name: str, project: str | None, as_json: bool) -> None:
    """Show one with its counts by language and what was left out.

    \b
    JSON: {"corpus", "policy", "state", "error", "source", "digest", "documents", "rows", "tokens", "recipe",
           "progress", "languages": {language: {"documents", "bytes", "tokens", "heldout_documents", "fim_pieces",
           "dropped"}}, "dropped": {reason: documents}}
    """
    from rl_online.services.corpora import find_corpus

    with inside_project(project):
        _tell(find_corpus(name), as_json=as_json)


def described(row: "Corpus") -> dict[str, Any]:
    languages = row.facts.get("languages", {})
    return {
        "corpus": str(row),
        "policy": row.made_for.policy.name,
        "state": "deleted" if row.files_deleted_at else row.state,
        "error": row.error or None,
        "source": row.source,
        "digest": row.digest or None,
        "documents": sum(counts["documents"] for counts in languages.values()) if languages else None,
        "rows": row.num_rows,
        "tokens": row.num_tokens,
        "recipe": row.recipe,
        "progress": row.progress,
        "languages": languages,
        "dropped": row.facts.get("dropped", {}),
    }


def _tell(row: "Corpus", *, as_json: bool) -> None:
    told = described(row)
    if as_json:
        return print_json(told)
    click.echo(
        f"{told['corpus']} is {told['state']}: {told['rows']} rows, {told['tokens']} tokens, from {told['source']}"
    )
    if told["progress"]:
        click.echo("so far " + ", ".join(f"{number} {what}" for what, number in told["progress"].items()))
    if told["languages"]:
        shown = ("documents", "bytes", "tokens", "heldout_documents", "fim_pieces")
        click.echo(
            table([{"language": name} | {key: row[key] for key in shown} for name, row in told["languages"].items()])
        )
    if told["dropped"]:
        click.echo("left out: " + ", ".join(f"{number} {reason}" for reason, number in told["dropped"].items()))
    return None
