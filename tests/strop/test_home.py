"""The home folder: secrets made once and kept private, paths short enough for sockets."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from strop.home import MAX_SOCKET_PATH, Home


def test_a_secret_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path):
    home = Home(tmp_path / "home")
    first = home.secret("internal")
    file = home.root / "secrets" / "internal"
    assert home.secret("internal") == first
    assert len(first) == 64  # 384 bits in base64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700


def test_two_homes_share_no_secret(tmp_path: Path):
    assert Home(tmp_path / "a").secret("internal") != Home(tmp_path / "b").secret("internal")


def test_processes_that_ask_at_once_get_the_same_secret(tmp_path: Path):
    home = Home(tmp_path / "home")
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(home.secret, ["internal"] * 8))) == 1


def test_sockets_move_to_a_short_folder_when_the_home_lies_deep(tmp_path: Path):
    home = Home(tmp_path / ("deep" * 40))
    assert len(str(home.sockets / ".s.PGSQL.5432")) <= MAX_SOCKET_PATH
    assert len(str(home.engine_socket)) <= MAX_SOCKET_PATH
