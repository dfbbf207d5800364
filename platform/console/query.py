"""What a query bar's text means.

    outcome:reject -source:import latency_ms:>900 user:"u 17",u-18 has:edit "off by one"

is a list of terms that must all hold: `key:value` (one of several values with commas), `-key:value` for not,
`key:>3`, `key:>=3`, `key:<3`, `key:1..5`, `key:1..`, `has:key`, `key:start*`, and free text. Quotes keep spaces, commas
and colons. A list declares its `Fields`; any other key raises InvalidInput, which names it and the known ones.

    FIELDS = Fields(
        Field("outcome", column="outcome", choices=("accept", "reject"), help="of the current label"),
        Field("latency_ms", column="latency_ms", kind=Kind.NUMBER),
        search=lambda text: Q(turn_id=text),
    )
    query = FIELDS.parse(request.GET.get("q", ""))
    Turn.objects.filter(query.condition())

Fields about rows below the listed ones name their `scope`: `query.condition("turn")` is for inside an Exists.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from django.db.models import Q

from registry.errors import InvalidInput

MAX_CHARACTERS = 2000
MAX_TERMS = 40
TOKEN = re.compile(
    r'\s*(?P<sign>-?)(?:(?P<key>[A-Za-z_][A-Za-z0-9_.]*):)?(?P<value>(?:"(?:\\.|[^"\\])*"|[^\s"])+)', flags=re.DOTALL
)
PIECE = re.compile(r'"((?:\\.|[^"\\])*)"|([^,"]+)|(,)', flags=re.DOTALL)
RANGE = re.compile(r"(?P<low>[^.\s]+(?:\.\d+)?)?\.\.(?P<high>.+)?")
COMPARISONS = {">=": "gte", "<=": "lte", ">": "gt", "<": "lt"}


class Kind(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "yes or no"


Build = Callable[["Term"], Q]


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a query bar."""

    name: str
    column: str = ""  # ORM path; empty: the name
    kind: Kind = Kind.TEXT
    choices: tuple[str, ...] = ()  # closed set; empty: anything
    scope: str = ""  # which rows it speaks of; empty: the listed ones
    help: str = ""  # a few words for the sheet of keys
    build: Build | None = None  # the condition of a term without its sign, where a column is not enough

    @property
    def path(self) -> str:
        return self.column or self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One condition. Exactly one of `values`, `bounds` and `is_presence` says something."""

    field: Field
    is_negated: bool = False
    values: tuple[str, ...] = ()  # any of these; one that ends in an unquoted * is a beginning
    prefixes: tuple[str, ...] = ()  # texts that a value may begin with
    bounds: tuple[tuple[str, float], ...] = ()  # (gt | gte | lt | lte, number): all hold
    is_presence: bool = False  # has:key

    @property
    def plain(self) -> Q:
        """Without its sign."""
        return self.field.build(self) if self.field.build else self._column()

    def condition(self) -> Q:
        return ~self.plain if self.is_negated else self.plain

    def _column(self) -> Q:
        path = self.field.path
        if self.is_presence:
            return Q(**{f"{path}__isnull": False})
        if self.bounds:
            return Q(**{f"{path}__{operator}": number for operator, number in self.bounds})
        found = Q(**{f"{path}__in": [self._typed(value) for value in self.values]}) if self.values else Q()
        for prefix in self.prefixes:
            found |= Q(**{f"{path}__startswith": prefix})
        return found

    def _typed(self, value: str) -> object:
        if self.field.kind == Kind.NUMBER:
            return float(value)
        return value == "yes" if self.field.kind == Kind.BOOLEAN else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """All terms hold, and every text is found."""

    text: str = ""  # as it was written
    terms: tuple[Term, ...] = ()
    texts: tuple[str, ...] = ()
    search: Callable[[str], Q] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.terms or self.texts)

    def condition(self, scope: str = "") -> Q:
        """Of the terms about `scope`; free text belongs to the listed rows."""
        found = Q()
        for term in self.about(scope):
            found &= term.condition()
        for text in self.texts if not scope else ():
            assert self.search is not None, "parse refuses text where nothing can be searched"
            found &= self.search(text)
        return found

    def about(self, scope: str) -> list[Term]:
        return [term for term in self.terms if term.field.scope == scope]

    def without(self, name: str) -> "Query":
        """The same but for exact values asked of one field."""
        kept = tuple(term for term in self.terms if term.field.name != name or term.is_negated or not term.values)
        return replace(self, terms=kept)

    def values_of(self, name: str) -> tuple[str, ...]:
        """What is asked of a field by exact value, without negations: which facets are on."""
        return tuple(
            value for term in self.terms if term.field.name == name and not term.is_negated for value in term.values
        )


@dataclass(frozen=True, slots=True, init=False)
class Fields:
    """Every key a list understands; `search` makes the condition of free text, None: there is none."""

    fields: tuple[Field, ...] = field(default=())
    search: Callable[[str], Q] | None = None

    def __init__(self, *fields: Field, search: Callable[[str], Q] | None = None) -> None:
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "search", search)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, name: str) -> Field:
        """Raises InvalidInput for a name that is none of them."""
        for one in self.fields:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.fields)
        raise InvalidInput(f"no field {name[:60]!r} here; known are {known}, and has:<field>", field="q")

    def parse(self, text: str) -> Query:
        """Raises InvalidInput that says which word is wrong and what would be right."""
        if len(text) > MAX_CHARACTERS:
            raise InvalidInput(f"the query has {len(text):,} characters; at most {MAX_CHARACTERS:,}", field="q")
        if "\x00" in text:
            raise InvalidInput("the query holds a NUL character; remove it", field="q")
        terms: list[Term] = []
        texts: list[str] = []
        for sign, key, value in _tokens(text):
            if key is None:
                texts.append(self._text(sign, value))
            else:
                terms.append(self._term(bool(sign), key, value))
        if len(terms) + len(texts) > MAX_TERMS:
            raise InvalidInput(f"the query has {len(terms) + len(texts)} terms; at most {MAX_TERMS}", field="q")
        return Query(text=text.strip(), terms=tuple(terms), texts=tuple(texts), search=self.search)

    def _text(self, sign: str, value: str) -> str:
        if sign:
            raise InvalidInput(f"-{value} excludes text, which cannot be searched; exclude by -key:value", field="q")
        if self.search is None:
            raise InvalidInput(f"no text search here; write key:value instead of {value[:60]}", field="q")
        return _pieces(value)[0][0] if value.startswith('"') else value

    def _term(self, is_negated: bool, key: str, value: str) -> Term:
        if key == "has":
            return Term(field=self[_pieces(value)[0][0]], is_negated=is_negated, is_presence=True)
        one = self[key]
        if one.kind == Kind.NUMBER and (bounds := _bounds(one, value)):
            return Term(field=one, is_negated=is_negated, bounds=bounds)
        pieces = _pieces(value)
        exact = tuple(text for text, is_quoted in pieces if is_quoted or not text.endswith("*"))
        prefixes = tuple(text[:-1] for text, is_quoted in pieces if not is_quoted and text.endswith("*"))
        if not pieces or "" in prefixes:
            raise InvalidInput(f"{key}: needs a value; has:{key} asks for any", field="q")
        for text in exact:
            _check(one, text)
        if prefixes and (one.kind != Kind.TEXT or one.choices):
            raise InvalidInput(f"{key} takes no *; give a whole value", field="q")
        return Term(field=one, is_negated=is_negated, values=exact, prefixes=prefixes)


def quoted(value: str) -> str:
    """A value as it must be written after a colon: `u 17` -> `"u 17"`."""
    if re.fullmatch(r"[\w@./+=~:-]+", value) and ".." not in value:
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written(key: str, value: str, *, is_negated: bool = False) -> str:
    return f"{'-' if is_negated else ''}{key}:{quoted(value)}"


def with_term(text: str, key: str, values: Sequence[str]) -> str:
    """The query `text` with exactly `values` of `key`: earlier plain terms of that key are replaced, others stay."""
    kept = []
    for sign, name, value in _tokens(text):
        if name == key and not sign and not _is_range(value):
            continue
        kept.append(f"{sign}{name}:{value}" if name else value)
    if values:
        kept.append(f"{key}:{','.join(quoted(value) for value in values)}")
    return " ".join(kept)


def _tokens(text: str) -> Iterator[tuple[str, str | None, str]]:
    place = 0
    while text[place:].strip():
        match = TOKEN.match(text, place)
        if match is None:
            raise InvalidInput(f"a quote is not closed at {text[place : place + 40].strip()!r}", field="q")
        yield match["sign"] or "", match["key"], match["value"]
        place = match.end()


def _pieces(value: str) -> list[tuple[str, bool]]:
    """Comma-separated values with whether they were quoted: `a,"b,c"` -> a, "b,c"."""
    found = []
    for match in PIECE.finditer(value):
        if match[1] is not None:
            found.append((re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL), True))
        elif match[2]:
            found.append((match[2], False))
    return found


def _is_range(value: str) -> bool:
    return value.startswith((">", "<")) or (".." in value and not value.startswith('"'))


def _bounds(one: Field, value: str) -> tuple[tuple[str, float], ...]:
    for sign, operator in COMPARISONS.items():
        if value.startswith(sign):
            return ((operator, _number(one, value[len(sign) :])),)
    match = RANGE.fullmatch(value)
    if match is None:
        return ()
    low, high = match["low"], match["high"]
    if not low and not high:
        raise InvalidInput(f"{one.name}:.. needs a number on one side", field="q")
    ends = (("gte", low), ("lte", high))
    return tuple((operator, _number(one, text)) for operator, text in ends if text)


def _check(one: Field, text: str) -> None:
    if one.kind == Kind.NUMBER:
        _number(one, text)
    if one.kind == Kind.BOOLEAN and text not in ("yes", "no"):
        raise InvalidInput(f"{one.name} is yes or no, found {text[:60]!r}", field="q")
    if one.choices and text not in one.choices:
        raise InvalidInput(f"{one.name} has no {text[:60]!r}; choose from {', '.join(one.choices)}", field="q")


def _number(one: Field, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"{one.name} compares with a number, found {text[:60]!r}", field="q")
    return value
