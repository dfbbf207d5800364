import pytest

from console.failures import KNOWN, OTHERWISE, advise


@pytest.mark.parametrize(
    ("error", "starts"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", "The updater ran out of memory"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "The updater ran out of memory"),
        ("the gradient was not finite in 3 steps in a row, up to step 3", "The gradient was not finite"),
        (
            "the policy was too far from its sampler, or the gradient not finite, in 3 steps in a row, up to step 9",
            "The policy moved too far",
        ),
        ("no step was taken: 3 of 3 had too few effective samples", "No step was taken"),
        ("no sample of the batch can be trained on: {'too_stale': 8}", "Every sample of the batch was left out"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("CorruptCheckpoint: model.safetensors differs", "Files on disk are not what was written"),
        ("the worker died each time it ran this job", "The updater was killed"),
    ],
)
def test_a_known_error_is_told_in_plain_words_with_what_to_do(error, starts):
    advice = advise(error)
    assert advice.reason.startswith(starts) and advice.steps


def test_an_unknown_error_leads_to_the_log():
    assert advise("KeyError: 'x'") is OTHERWISE
    assert "updater.log" in OTHERWISE.steps[0]


def test_every_known_reason_says_what_to_do():
    assert all(words and advice.steps for words, advice in KNOWN)
