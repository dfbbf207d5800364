"""The query bar's language: every form of a term, and every mistake named."""

import contextlib

import pytest
from django.db.models import Q
from hypothesis import given
from hypothesis import strategies as st

from console.query import Field, Fields, Kind, Term, quoted, with_term, written
from registry.errors import InvalidInput

FIELDS = Fields(
    Field("outcome", choices=("accept", "reject")),
    Field("user"),
    Field("latency_ms", column="latency", kind=Kind.NUMBER),
    Field("logprobs", column="has_logprobs", kind=Kind.BOOLEAN),
    Field("signal", scope="turn", build=lambda term: Q(kind__in=term.values)),
    search=lambda text: Q(text__icontains=text),
)


def condition(text, scope=""):
    return FIELDS.parse(text).condition(scope)


def refusal(text):
    with pytest.raises(InvalidInput) as caught:
        FIELDS.parse(text)
    assert caught.value.field == "q"
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Q()),
        ("user:u-1", Q(user__in=["u-1"])),
        ("user:a,b", Q(user__in=["a", "b"])),
        ('user:"u 17"', Q(user__in=["u 17"])),
        ('user:"a,b",c', Q(user__in=["a,b", "c"])),
        (r'user:"say \"hi\""', Q(user__in=['say "hi"'])),
        ("user:team-*", Q(user__startswith="team-")),
        ('user:"team-*"', Q(user__in=["team-*"])),
        ("-user:u-1", ~Q(user__in=["u-1"])),
        ("has:user", Q(user__isnull=False)),
        ("-has:user", ~Q(user__isnull=False)),
        ("latency_ms:>900", Q(latency__gt=900)),
        ("latency_ms:>=900", Q(latency__gte=900)),
        ("latency_ms:<.5", Q(latency__lt=0.5)),
        ("latency_ms:1..5", Q(latency__gte=1, latency__lte=5)),
        ("latency_ms:1.5..2.5", Q(latency__gte=1.5, latency__lte=2.5)),
        ("latency_ms:1..", Q(latency__gte=1)),
        ("latency_ms:..-5", Q(latency__lte=-5)),
        ("latency_ms:182", Q(latency__in=[182.0])),
        ("logprobs:no", Q(has_logprobs__in=[False])),
        ("outcome:accept user:u", Q(outcome__in=["accept"]) & Q(user__in=["u"])),
        ('"off by one"', Q(text__icontains="off by one")),
        ("off by", Q(text__icontains="off") & Q(text__icontains="by")),
        ("user:http://x:80/y", Q(user__in=["http://x:80/y"])),
    ],
)
def test_a_term_is_this_condition(text, expected):
    assert condition(text) == expected


def test_terms_about_rows_below_are_kept_apart():
    assert condition("signal:edit user:u") == Q(user__in=["u"])
    assert condition("signal:edit user:u", "turn") == Q(kind__in=("edit",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour:red", "no field 'colour' here; known are outcome, user, latency_ms, logprobs, signal"),
        ("has:colour", "no field 'colour'"),
        ("outcome:maybe", "outcome has no 'maybe'; choose from accept, reject"),
        ("latency_ms:fast", "latency_ms compares with a number, found 'fast'"),
        ("latency_ms:>nan", "found 'nan'"),
        ("latency_ms:>1e400", "found '1e400'"),
        ("latency_ms:..", "needs a number on one side"),
        ("logprobs:maybe", "yes or no"),
        ('user:"open', "a quote is not closed"),
        ("outcome:acc*", "takes no *"),
        ("user:*", "needs a value"),
        ("-word", "exclude by -key:value"),
        ("a\x00b", "NUL"),
        ("x " * 50, "50 terms; at most 40"),
        ("y" * 2001, "2,001 characters"),
    ],
)
def test_a_mistake_is_named(text, said):
    assert said in refusal(text)


def test_a_list_without_search_says_so():
    with pytest.raises(InvalidInput, match="no text search here"):
        Fields(Field("user")).parse("word")


@given(st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), min_size=1, max_size=60))
def test_any_value_can_be_written_and_read_back(value):
    term = FIELDS.parse(written("user", value)).terms[0]
    assert term.values == (value,) and not term.prefixes


@given(st.text(max_size=80))
def test_no_text_at_all_breaks_the_parser(text):
    with contextlib.suppress(InvalidInput):
        FIELDS.parse(text)


def test_values_that_need_it_are_quoted():
    assert quoted("editor@3") == "editor@3"
    assert quoted("u 17") == '"u 17"' and quoted("a..b") == '"a..b"' and quoted(">3") == '">3"'


def test_a_facet_replaces_the_values_of_its_field_and_nothing_else():
    text = 'user:a -outcome:accept outcome:reject "off by one"'
    assert with_term(text, "outcome", ["accept", "reject"]) == (
        'user:a -outcome:accept "off by one" outcome:accept,reject'
    )
    assert with_term(text, "outcome", []) == 'user:a -outcome:accept "off by one"'


def test_a_range_of_the_same_field_is_not_a_facet():
    assert with_term("latency_ms:>3", "latency_ms", ["5"]) == "latency_ms:>3 latency_ms:5"


def test_the_values_that_are_on_are_those_asked_for():
    query = FIELDS.parse("outcome:accept -outcome:reject user:u")
    assert query.values_of("outcome") == ("accept",)
    assert query.without("outcome").condition() == ~Q(outcome__in=["reject"]) & Q(user__in=["u"])


def test_a_term_of_its_own_kind_builds_its_condition():
    term = FIELDS.parse("-signal:edit").terms[0]
    assert isinstance(term, Term) and term.plain == Q(kind__in=("edit",)) and term.condition() == ~term.plain
