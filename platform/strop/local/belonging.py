"""Whose data the embedded servers find: as root it lies outside the home, and a home may be deleted and made anew.

The data carries the id of the home that made it. Data of a home that is gone is moved aside, never deleted and never
opened: its passwords went with the home.
"""

import time
from pathlib import Path

from strop.home import Home
from strop.local.account import make_open_folder

MARK = "home-id"


def set_aside_strangers(home: Home) -> Path | None:
    """Move data that another home left at this home's place; returns where to, None when there was none."""
    mark, wanted = home.data.parent / MARK, home.secret(MARK)
    if home.data.exists() and (not mark.exists() or mark.read_text() != wanted):
        aside = home.data.with_name(f"data-of-a-deleted-home-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        home.data.rename(aside)
    else:
        aside = None
    make_open_folder(mark.parent)
    mark.write_text(wanted)
    mark.chmod(0o600)
    return aside
