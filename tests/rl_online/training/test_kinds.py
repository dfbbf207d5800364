"""The kind of an update and its inputs are part of what a checkpoint was made by; an online one keeps neither."""

from dataclasses import replace

import pytest

from rl_online.training.state import state_folder, verify_state
from rl_online.weights.errors import CorruptCheckpoint
from tests.rl_online.training.tiny_update import make_request, make_samples, run


def facts_of(request, digest: str) -> dict:
    return verify_state(state_folder(request.out_folder), tree_digest=digest)


def test_an_online_update_is_known_by_what_it_was_always_known_by(tmp_path):
    request = make_request(tmp_path, make_samples(8))
    facts = facts_of(request, run(request).tree_digest)
    assert not {"kind", "inputs"} & facts.keys()


def test_a_checkpoint_of_another_kind_or_other_inputs_is_not_taken_for_ours(tmp_path):
    request = replace(make_request(tmp_path, make_samples(8)), kind="pairs", inputs={"of": "one"})
    facts = facts_of(request, run(request).tree_digest)
    assert (facts["kind"], facts["inputs"]) == ("pairs", {"of": "one"})
    run(request)  # finds that it was done already
    for other in ({"inputs": {"of": "another"}}, {"kind": "sft"}):
        with pytest.raises(CorruptCheckpoint, match="made by another update"):
            run(replace(request, **other))
