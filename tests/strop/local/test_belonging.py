"""Data outside the home follows the home, and outlives it unopened."""

import shutil

import pytest

from strop.home import Home
from strop.local.belonging import set_aside_strangers


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(Home, "server_root", property(lambda self: tmp_path / "var" / self.digest))
    return Home(tmp_path / "home")


def put_data(home: Home) -> None:
    home.data.mkdir(parents=True)
    (home.data / "rows").write_text("kept")


def test_a_homes_own_data_stays_where_it_is(home):
    assert set_aside_strangers(home) is None
    put_data(home)
    assert set_aside_strangers(home) is None
    assert (home.data / "rows").read_text() == "kept"


def test_data_of_a_deleted_home_is_kept_aside_and_not_opened(home):
    set_aside_strangers(home)
    put_data(home)
    shutil.rmtree(home.root)
    aside = set_aside_strangers(home)
    assert not home.data.exists()
    assert (aside / "rows").read_text() == "kept"
    assert set_aside_strangers(home) is None
