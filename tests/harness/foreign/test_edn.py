"""The EDN reader: what is printed is read again, in whichever pieces it comes; what is none is refused where it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.foreign.edn import (
    Character,
    EdnReader,
    Keyword,
    Map,
    Set,
    Symbol,
    Tagged,
    parse_first,
    to_edn,
    to_json,
)
from assay.harness.foreign.source import MalformedError, TextPosition

from helpers.examples import some_of
from helpers.foreign_histories import ATOMS, VALUES, edn

PATH = Path("h.edn")


def cut(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def values(text: str, size: int = 1 << 20) -> list[Any]:
    return [value for _, value in EdnReader(PATH, cut(text, size)).iterate_values()]


@settings(max_examples=some_of(150), deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_what_is_printed_is_read_again_in_whichever_pieces(
    those: list[Any], seed: int, size: int, vector: bool
) -> None:
    random = Random(seed)
    if not vector and isinstance(those[0], tuple):
        those = [None, *those]  # a vector at the start is the history itself
    text = "\n".join(edn(value, random) for value in those)
    read = values(f"[{text}\n]" if vector else text, size)
    assert [repr(value) for value in read] == [repr(value) for value in those]


@settings(max_examples=some_of(150), deadline=None)
@given(VALUES, VALUES)
def test_json_tells_values_apart(one: Any, other: Any) -> None:
    same = repr(_normal(one)) == repr(_normal(other))
    assert (to_json(one) == to_json(other)) == same


def _order(value: Any) -> tuple[bool, float, str]:
    number = type(value) in (int, float)
    return not number, value if number else 0, to_json(value)


def _normal(value: Any) -> Any:
    match value:
        case tuple():
            return tuple(_normal(one) for one in value)
        case Set(elements):
            return Set(tuple(sorted((_normal(one) for one in elements), key=_order)))
        case Map(pairs):
            return Map(tuple(sorted(((_normal(key), _normal(one)) for key, one in pairs), key=lambda p: to_json(p[0]))))
        case Tagged(tag, inner):
            return Tagged(tag, _normal(inner))
        case _:
            return value


@given(ATOMS)
def test_json_of_one_value_is_one_line(value: Any) -> None:
    assert "\n" not in to_json(value)


def test_every_notation() -> None:
    text = r"""
    nil true false, 0 -7 +3 12N 9223372036854775808 1.5 -2e3 1.25M "a\tb\"\\é😀"
    :read :a/b :a:b read a.b/c / + \a \newline é (1 [2]) #{1 2} {:a 1, "b" nil}
    #inst "2020-01-01T00:00:00Z" #jepsen.history.Op{:f :read} #_ #_ 1 2 ; the end [
    """
    assert values(text) == [
        None, True, False, 0, -7, 3, 12, 9223372036854775808, 1.5, -2000.0, Decimal("1.25"), 'a\tb"\\é😀',
        Keyword("read"), Keyword("a/b"), Keyword("a:b"), Symbol("read"), Symbol("a.b/c"), Symbol("/"), Symbol("+"),
        Character("a"), Character("\n"), Symbol("é"), (1, (2,)), Set((1, 2)),
        Map(((Keyword("a"), 1), ("b", None))), Tagged("inst", "2020-01-01T00:00:00Z"),
        Tagged("jepsen.history.Op", Map(((Keyword("f"), Keyword("read")),))),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "1.0M 1.00M 1M 1e0M",
        "100M 1e2M 100.0M",
        "0M 0.00M -0.0M",
        "0.0 -0.0",
        "1.0 1.00 1e0",
        f"{'7' * 40}M {'7' * 40}.0M",
    ],
)
def test_numbers_that_clojure_takes_for_equal_have_one_text(text: str) -> None:
    assert len({to_json(value) for value in values(text)}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "1.0M 1.01M",
        "1M 1",
        "1.0M 1.0",
        "1 1.0",
        f"{'7' * 40}.1M {'7' * 40}.2M",
        "1e-999999999M 0M",
        "[1 2] #{1 2}",
        "[] #{}",
        "[#{1}] [[1]]",
        "#{[1]} #{#{1}}",
        "{:set [1]} #{1}",
        '{"set" [1]} #{1}',
    ],
)
def test_values_that_differ_have_texts_that_differ(text: str) -> None:
    one, other = values(f"[{text}]")
    assert to_json(one) != to_json(other)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("[1 2\n {:a 1}", 1, 1, "this vector is never closed: the file is cut short"),
        ("(1 2", 1, 1, "this list is never closed"),
        ("1\n {:a [1 2}", 2, 10, "'}' where ']' should close '['"),
        ("1\n {:a [1 2", 2, 6, "this '[' is never closed: the file is cut short"),
        ("{:a 1", 1, 1, "this '{' is never closed"),
        ("#{1", 1, 1, "this '#{' is never closed"),
        ('{:a "b}', 1, 5, "this string is never closed: the file is cut short"),
        ("[1] 2", 1, 5, "there is something after the end of the history"),
        ("1 ]", 1, 3, "']' closes nothing"),
        ("{:a 1 :b}", 1, 1, "this map has 3 forms: a key has no value"),
        ("{:a 1 :a 2}", 1, 1, "the same key is in it twice"),
        ("#{1 1}", 1, 1, "the same element is in it twice"),
        ("#{1.0M 1.00M}", 1, 1, "the same element is in it twice"),
        ("012", 1, 1, "'012' is no EDN number"),
        ("1x", 1, 1, "'1x' is no EDN number"),
        ("1e999", 1, 1, "the number '1e999' is too large"),
        ("9" * 2000, 1, 1, "has more than 1000 digits"),
        (":", 1, 1, "':' is no EDN token"),
        ("::a", 1, 1, "'::a' is no EDN token"),
        ("a\x00b", 1, 1, "is no EDN token"),
        ("^{:a 1} 2", 1, 1, "'^' is no EDN token"),
        ("@a", 1, 1, "'@a' is no EDN token"),
        ("##Inf", 1, 1, "'##Inf' is no EDN token"),
        ("#", 1, 1, "'#' is no EDN token"),
        (r"\zzz", 1, 1, r"'\\zzz' is no EDN token"),
        (r'"a\qb"', 1, 3, "is no escape that EDN knows"),
        (r'"\ud800"', 1, 2, "an escape in this string is half of a character"),
        (r"\ud800", 1, 1, "is half of a character"),
        ("[1 #_]", 1, 4, "#_ has no value after it"),
        ("{:a #inst}", 1, 5, "the tag '#inst' has no value"),
        ("[" * 200, 1, 102, "nested more than 100 levels deep"),
        ("#_" * 200 + "1", 1, 201, "nested more than 100 levels deep"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_what_is_no_edn(text: str, line: int, column: int, reason: str, size: int) -> None:
    with pytest.raises(MalformedError) as caught:
        values(text, size)
    assert caught.value.reason.find(reason) >= 0, caught.value
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (line, column)
    assert str(caught.value).startswith(f"h.edn: line {line}, column {column}: ")


@pytest.mark.parametrize("end", ["", "\n", "\n2;"])
def test_the_time_for_a_comment_does_not_grow_with_the_square_of_its_length(end: str) -> None:
    begun = time.process_time()
    assert values("1;" + "a;" * 50_000 + end, 1) == values("1" + end)
    assert time.process_time() - begun < 5


@settings(max_examples=some_of(200), deadline=None)
@given(st.text(st.sampled_from('[](){}#_"\\:;, \nabnil01.-+eN/^@u\x00é'), max_size=30), st.integers(1, 5))
def test_any_text_is_read_or_refused_the_same_in_whichever_pieces(text: str, size: int) -> None:
    def outcome(size: int) -> str:
        try:
            return repr(values(text, size))
        except MalformedError as error:
            return str(error)

    assert outcome(size) == outcome(1 << 20)


@pytest.mark.parametrize(
    "text",
    [
        "nil", "true", "5", "1.5", "-9223372036854775809N", "1.5M", ":r", "foo", "\\a", "\\newline", '"a \\"b\\""',
        "[[:r :x nil] [:append \"y\" 1]]", "{2 nil, :a [1 2]}", "#{1 [#{}] :a}", '#inst "2026"', "[]", "{}",
    ],
)  # fmt: skip
def test_what_was_made_json_is_shown_as_edn_again(text: str) -> None:
    value, _ = parse_first(Path("h.edn"), text, TextPosition(1, 1))
    assert to_edn(to_json(value)) == text
