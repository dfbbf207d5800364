"""The demo's loop as a program beside the processes of `strop up`: `python -m strop.demo.loop '{"seed": 0, ...}'`.

The argument is a rounds.Plan as JSON; the result is one JSON object on standard output. Exit status 1 when the loop
did not go all the way.
"""

import asyncio
import json
import os
import sys

import django
import openai

from strop.demo.mailbox import Undelivered


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")
    os.environ.setdefault("TQDM_DISABLE", "1")  # this output is read by lines
    django.setup()
    from strop.demo.rounds import LoopBroke, Plan, play_rounds  # needs Django set up

    try:
        result = asyncio.run(play_rounds(Plan(**json.loads(sys.argv[1]))))
    except* LoopBroke as broken:
        _say(f"the loop broke: {_first(broken)}")
    except* (openai.APIError, Undelivered) as refused:
        _say(f"the loop broke: users were refused, {_first(refused)!r}")
    else:
        json.dump(result, sys.stdout)
        return 0
    return 1


def _first(error: BaseException) -> BaseException:
    """The first plain exception of a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
