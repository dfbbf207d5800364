"""`strop teach`: have a model behind an address say something about answers of ours, for a distillation to learn."""

import time

import click

from strop.commands.base import actor, inside_project, json_option, needs_running, print_json, project_option, say
from strop.commands.update import chosen_policy

POLL_S = 0.5


@click.command(
    "teach", epilog="Example: strop teach big-model --address https://api.example.com/v1 --at-most 200 --wait"
)
@click.argument("model")
@click.option("--address", required=True, metavar="URL", help="Base URL of its OpenAI-compatible server.")
@click.option(
    "--wants",
    type=click.Choice(["text", "logprobs"]),
    default="text",
    show_default=True,
    help="Its own answers to our prompts, or what it holds likely at each token of ours.",
)
@click.option("--at-most", default=512, show_default=True, help="Answers, the newest.")
@click.option("--policy", metavar="NAME", help="Whose answers. Not needed when there is only one policy.")
@click.option("--wait", is_flag=True, help="Stay until none is open.")
@project_option
@json_option
@needs_running
def command(
    model: str,
    address: str,
    wants: str,
    at_most: int,
    policy: str | None,
    wait: bool,
    project: str | None,
    as_json: bool,
) -> None:
    """Ask MODEL about the newest answers that a distillation could take; each is asked once and kept with its cost.

    Keys are bound to addresses by STROP_JUDGE_KEYS. Learn from what it said by
    strop update --kind distill --option teacher=MODEL --option address=URL.

    \b
    JSON: {"open", "answered", "cut", "refused", "failed", "usd", "unpriced"}.
    """
    from rl_online.services.teachers import Teacher, ask_teacher, count_answers, is_asking

    teacher = Teacher(model=model, address=address, wants=wants)
    with inside_project(project) as found:
        chosen = chosen_policy(policy)
        num_open = ask_teacher(chosen, teacher, at_most=at_most, actor=actor())
    say(f"{num_open} questions to {model}")
    while wait:
        with inside_project(found.slug):
            if not is_asking(chosen, teacher):
                break
        time.sleep(POLL_S)
    with inside_project(found.slug):
        result = count_answers(chosen, teacher, at_most=at_most)
    if as_json:
        print_json(result)
    else:
        click.echo(", ".join(f"{value} {name}" for name, value in result.items()))
