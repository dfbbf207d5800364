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


def test_settings_that_came_later_leave_the_digest_of_older_updates_alone():
    # what the first release computed for its defaults: stored checkpoints carry it
    assert UpdateConfig().digest == "2d37c92e7bd8f4f47c735b6185a406414d7736eecc60b0e52dcf27996e319d12"
    assert UpdateConfig(schedule="cosine").digest != UpdateConfig().digest


def test_a_config_stored_before_they_came_loads_with_their_defaults():
    first = {"learning_rate": 5e-6, "kto_beta": 0.3, "base_kl_estimator": "k2", "max_lag": 2}
    config = UpdateConfig.from_json(first)
    assert (config.policy_loss, config.correction, config.pref_loss) == ("reinforce", "dppo", "kto")
    assert config == UpdateConfig(**first)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"policy_loss": "ppo"}, "policy_loss is 'ppo'; choose from"),
        ({"policy_loss": "ppo_clip"}, "correction is 'dppo', which ppo_clip cannot carry: the DPPO mask belongs to"),
        ({"policy_loss": "gspo", "correction": "tis"}, "one ratio for each answer"),
        ({"policy_loss": "gspo", "correction": "none", "loss_norm": "sequences"}, "one term for each answer"),
        ({"loss_norm": "constant"}, "max_response_tokens is 0"),
        ({"dual_clip": 0.5}, "dual_clip is 0.5; it must be above 1, or 0"),
        ({"icepop_low": 9.0}, "must be below icepop_high"),
        ({"kl_on_dead_groups": True}, "base_kl is 0"),
        ({"label_smoothing": 0.1}, "which only cdpo and robust_dpo use, not kto"),
        ({"pref_loss": "cdpo", "label_smoothing": 0.5}, "says nothing"),
        ({"pref_loss": "dpo", "kto_weight": 0}, "would take no pair"),
        ({"overlong_buffer": 4}, "overlong_buffer is 4; it must be below max_response_tokens 0"),
        ({"overlong_buffer": 20, "max_response_tokens": 20}, "must be below max_response_tokens 20"),
        ({"policy_loss": "dro", "correction": "none", "sequence_mask": "mean_ratio"}, "dro takes answers of any age"),
        ({"sequence_ratio_low": 2.0}, "must be below sequence_ratio_high 2.0"),
        ({"policy_loss": "dapo", "correction": "dppo"}, "which dapo cannot carry"),
        ({"packing": 1}, "packing is 1; it must be bool"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_reason(values, message):
    with pytest.raises(ValueError, match=message):
        UpdateConfig.from_json(values)


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
        ({"dpo_beta": 0}, "dpo_beta is 0.0; it must be above 0"),
        ({"tis_cap": 0}, "tis_cap is 0.0"),
        ({"ratio_cap": 0}, "ratio_cap is 0.0"),
    ],
)
def test_a_bad_setting_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        UpdateConfig.from_json(values)
