import pytest

from rl_online.rewards.presets import DEFAULT, preset, presets
from rl_online.rewards.update_config import UpdateConfig


@pytest.mark.parametrize("kind", ["rl", "kto"])
def test_every_preset_is_a_config_the_trainer_takes(kind):
    assert [one.name for one in presets(kind)] == ["careful", DEFAULT, "bold"]
    for one in presets(kind):
        assert UpdateConfig.from_json(dict(one.settings)).to_json() == {**UpdateConfig().to_json(), **one.settings}


@pytest.mark.parametrize("kind", ["rl", "kto"])
def test_careful_takes_smaller_and_bold_larger_steps_than_the_default(kind):
    rates = [
        UpdateConfig.from_json(dict(preset(kind, name).settings)).learning_rate for name in ("careful", DEFAULT, "bold")
    ]
    assert rates == sorted(rates) and len(set(rates)) == 3


def test_an_unknown_preset_is_an_error():
    with pytest.raises(KeyError):
        preset("rl", "reckless")
