import pytest

from rl_online.rewards.update_config import UpdateConfig


def test_a_config_survives_json():
    config = UpdateConfig(learning_rate=2e-5, base_kl=0.01, base_kl_estimator="k2")
    assert UpdateConfig.from_json(config.to_json()) == config


def test_a_whole_number_is_a_fine_float():
    assert UpdateConfig.from_json({"grad_clip": 2}).grad_clip == 2.0


def test_equal_settings_have_equal_digests_and_others_do_not():
    assert UpdateConfig().digest == UpdateConfig(learning_rate=1e-5).digest
    assert UpdateConfig().digest != UpdateConfig(learning_rate=2e-5).digest


@pytest.mark.parametrize(
    "values, message",
    [
        ({"lr": 1e-5}, "lr is not a setting"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"learning_rate": 0}, "learning_rate is 0"),
        ({"learning_rate": float("nan")}, "finite"),
        ({"minibatch_size": 1.5}, "minibatch_size is 1.5; it must be int"),
        ({"minibatch_size": True}, "minibatch_size is True"),
        ({"adam_beta1": 1.0}, "adam_beta1 is 1.0; it must be below 1"),
        ({"base_kl_estimator": "k3"}, "base_kl_estimator is 'k3'"),
        ({"max_lag": -1}, "at least 0"),
    ],
)
def test_a_bad_setting_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        UpdateConfig.from_json(values)
