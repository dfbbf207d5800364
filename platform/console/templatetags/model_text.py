"""The one door through which text written by models and users reaches a page.

Everything is escaped; characters that are invisible or that reorder what follows are drawn as a marked code point, so
that what a reader sees is what the model wrote; long text folds, and what is beyond `SHOWN` characters is cut and said.
"""

import difflib
import re
import unicodedata

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

register = template.Library()

FOLD_CHARACTERS = 1_200
FOLD_LINES = 24
SHOWN = 20_000  # characters of one text that a page carries
DIFFED = 4_000  # characters on each side beyond which an edit is shown as two texts
JOINER = "\u200d"
HIDDEN = re.compile(
    r"\r(?!\n)|["
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls
    r"\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb"  # drawn as nothing
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, line breaks, direction
    r"\ud800-\udfff\ue000-\uf8ff\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"  # surrogates, private use, tags
)


@register.filter
def model_text(text: object) -> SafeString:
    """Text of a model or a user, for inside a `<div>`."""
    if text is None:
        return format_html('<span class="{}">{}</span>', "unknown", "no data")
    text = str(text)
    if not text:
        return format_html('<span class="{}">{}</span>', "unknown", "empty")
    shown = text[:SHOWN]
    cut = len(text) - len(shown)
    head = _head(shown)
    body = SafeString(f'<bdi class="model-text">{visible(head)}</bdi>')
    if len(head) == len(shown) and not cut:
        return body
    rest = format_html(
        '<details class="fold"><summary>{} more characters</summary><bdi class="model-text">{}</bdi>{}</details>',
        f"{len(text) - len(head):,}",
        visible(shown[len(head) :]),
        format_html('<p class="unknown">{} characters beyond this are not shown here</p>', f"{cut:,}") if cut else "",
    )
    return SafeString(body + rest)


@register.filter
def model_line(text: object) -> SafeString:
    """The beginning of such a text on one line, for a table."""
    if not text:
        return format_html('<span class="{}">{}</span>', "unknown", "empty" if text == "" else "no data")
    line = " ".join(str(text)[:400].split())
    return SafeString(f'<bdi class="model-line">{visible(line[:160])}{"…" if len(line) > 160 else ""}</bdi>')


@register.simple_tag
def edit(before: str | None, after: str | None) -> SafeString:
    """What a user made of a completion: removed and added words marked; two texts when they are too long to compare."""
    before, after = before or "", after or ""
    if max(len(before), len(after)) > DIFFED:
        both = '<del class="edit">{}</del><ins class="edit">{}</ins>'
        return format_html(both, model_text(before), model_text(after))
    old, new = _words(before), _words(after)
    parts = []
    for kind, a, b, c, d in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        removed, added = visible("".join(old[a:b])), visible("".join(new[c:d]))
        if kind == "equal":
            parts.append(removed)
            continue
        parts.append(SafeString(f"<del>{removed}</del>" if removed else ""))
        parts.append(SafeString(f"<ins>{added}</ins>" if added else ""))
    return SafeString(f'<bdi class="model-text edit">{"".join(parts)}</bdi>')


@register.filter
def plain(text: object) -> str:
    """For where no element may stand (an option, a title): hidden characters as [U+202E]."""
    return HIDDEN.sub(lambda match: f"[U+{ord(match[0]):04X}]", str(text))


@register.filter
def visible(text: str) -> SafeString:
    """Escaped, with every invisible or reordering character drawn as its code point."""
    pieces, end = [], 0
    for match in HIDDEN.finditer(text):
        if match[0] == JOINER and _joins_emoji(text, match.start()):
            continue
        name = unicodedata.name(match[0], "control character").lower()
        pieces.append(escape(text[end : match.start()]))
        pieces.append(f'<span class="hidden-character" title="{escape(name)}">U+{ord(match[0]):04X}</span>')
        end = match.end()
    return mark_safe("".join([*pieces, escape(text[end:])]))


def _joins_emoji(text: str, index: int) -> bool:
    """A joiner holds a family of emoji together; anywhere else it hides."""
    around = text[max(0, index - 2) : index] + text[index + 1 : index + 2]
    return any(unicodedata.category(neighbour) in ("So", "Sk") for neighbour in around)


def _head(text: str) -> str:
    lines = text.splitlines(keepends=True)
    head = "".join(lines[:FOLD_LINES])
    return head if len(head) <= FOLD_CHARACTERS else head[:FOLD_CHARACTERS]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|.", text, flags=re.DOTALL)
