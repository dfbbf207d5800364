import pytest

from evals.comparing.names import Name
from registry.errors import InvalidInput


def test_a_checkpoint_and_a_model_are_told_apart():
    assert Name.of("editor@3", field="a") == Name(text="editor@3", policy="editor", version=3)
    assert Name.of(" gpt-5 ", field="a") == Name(text="gpt-5", policy=None, version=None)
    assert (Name.of("editor@3", field="a").column, Name.of("gpt-5", field="a").column) == ("checkpoint", "model")


def test_a_version_beyond_any_column_is_the_name_of_a_model():
    assert Name.of("editor@99999999999", field="a").policy is None


@pytest.mark.parametrize("text", ["", "  ", "a\x00b", "x" * 201])
def test_what_is_no_name_is_refused_and_names_the_field(text):
    with pytest.raises(InvalidInput) as refused:
        Name.of(text, field="b")
    assert refused.value.field == "b"
