"""Text of models and users goes through one door, and nothing hides behind it."""

import re
from pathlib import Path

import pytest
from django.conf import settings

from console.templatetags.model_text import edit, model_line, model_text, plain, visible

AROUND_THE_DOOR = re.compile(r"mark_safe|SafeString\(|\|\s*safe\b|autoescape off|SafeData|__html__")
INLINE = re.compile(r'<script(?![^>]*\bsrc=)|\son[a-z]+="|\sstyle=|javascript:', re.IGNORECASE)


def test_markup_is_escaped():
    assert visible("<b>&'\"") == "&lt;b&gt;&amp;&#x27;&quot;"


@pytest.mark.parametrize(
    "character",
    [
        "\x00",
        "\x1b",
        "\x7f",
        "\x9b",
        "\u00ad",
        "\u200b",
        "\u200f",
        "\u202e",
        "\u2066",
        "\ufeff",
        "\U000e0041",
        "\u3164",
    ],
)
def test_an_invisible_character_is_drawn_as_its_code_point(character):
    html = visible(f"a{character}b")
    assert f"U+{ord(character):04X}</span>b" in html and character not in html


def test_line_breaks_and_tabs_stay_and_a_lone_return_is_drawn():
    assert visible("a\r\n\tb") == "a\r\n\tb"
    assert "U+000D" in visible("a\rb")


def test_a_joiner_inside_an_emoji_stays_and_elsewhere_is_drawn():
    assert visible("👨\u200d👩\u200d👧") == "👨\u200d👩\u200d👧"
    assert "U+200D" in visible("pass\u200dword")


def test_korean_and_arabic_letters_are_left_alone():
    assert visible("안녕 مرحبا") == "안녕 مرحبا"


def test_long_text_folds_after_its_beginning():
    html = model_text("a" * 1_500)
    assert html.count("a" * 1_200) == 1 and "300 more characters" in html and "not shown" not in html


def test_text_beyond_what_a_page_carries_is_cut_and_said():
    html = model_text("a" * 50_000)
    assert "48,800 more characters" in html and "30,000 characters beyond this are not shown here" in html


def test_nothing_and_the_empty_text_differ():
    assert "no data" in model_text(None) and "empty" in model_text("")
    assert "no data" in model_line(None) and "empty" in model_line("")


def test_a_line_is_cut_at_160_characters():
    assert model_line("word " * 100).count("…") == 1


def test_plain_text_names_what_is_hidden():
    assert plain("a\u202eb") == "a[U+202E]b"


def test_an_edit_marks_what_was_removed_and_added():
    assert "<del>2</del><ins>b</ins>" in edit("return a + 2", "return a + b")


def test_an_edit_of_hostile_text_is_escaped():
    assert "<script>" not in edit("<script>a</script>", "<script>b</script>")


def test_a_huge_edit_is_shown_as_two_texts():
    html = edit("a" * 5_000, "b" * 5_000)
    assert html.startswith('<del class="edit">') and "<ins" in html


def sources():
    console = Path(settings.BASE_DIR) / "platform" / "console"
    return [*Path(settings.BASE_DIR, "templates").rglob("*.html"), *console.rglob("*.py")]


def test_nothing_walks_around_the_door():
    door = "model_text.py"
    found = [path.name for path in sources() if path.name != door and AROUND_THE_DOOR.search(path.read_text())]
    assert found == []


def test_templates_hold_no_inline_script_style_or_handler():
    found = [path.name for path in sources() if path.suffix == ".html" and INLINE.search(path.read_text())]
    assert found == []
