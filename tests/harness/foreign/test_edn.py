"""The EDN reader: what is printed is read again, in whichever pieces it comes; what is none is refused where it is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
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
    Unreadable,
    parse_first,
    to_edn,
    to_json,
    to_name,
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


UNUSUAL = (
    "[1 2 a#b #{c} d]", "[:a#, #{1}]", "{:a 1, :b 02 :c 0x1F}", "[-1 +2 0 00 0N 12345678901234567890 007]",
    "[nil true false nilx :a/b :a:b a.b/c / + -]", "{:a ##Inf :b #inst \"1\"}", "[a;comment\nb ;; [\n c]",
    "[foo\"bar\"baz]", "[\\a\\b c]", "[foo^{:a 1}bar #_ x y]", "{:a 1,,,:b\u2003 2}", "[1.5 1e3 1M 3/4 1.x]", "[:a :]",
    "{:a 1 :a 2}", "{1 1 1.0 1 true 1}", "(1 (2 [3 {4 5}]))", "[\u0661 \u00b2]",
)  # fmt: skip
"""Texts in which words stand beside other tokens, or are no usual words."""


@pytest.mark.parametrize("text", UNUSUAL)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_words_that_are_split_have_the_values_of_tokens(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"nil {text}"  # a vector at the start is the history itself
    split = [repr(value) for value in values(text, size)]
    monkeypatch.setattr(EdnReader, "_read_words", lambda self, at: (None, 1 << 30))
    assert split == [repr(value) for value in values(text)]


def test_a_word_that_is_no_value_costs_no_second_look_at_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    read = EdnReader._read_words
    monkeypatch.setattr(EdnReader, "_read_words", lambda self, at: looks.append(at) or read(self, at))
    ((first, *_, last),) = values(f"nil [{'1 ' * 300} 1.x]")[1:]
    assert (first, type(last)) == (1, Unreadable)
    assert len(looks) < 4


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
        '#inst "2020" #inst "2020-01-01T00:00Z" #inst "2020-01-01T00:00:00.000-00:00" #inst "2020-01-01T02:00+02:00"',
        '#inst "2019-12-31T19:30:00.1200-04:30" #inst "2020-01-01T00:00:00.12Z"',
        '#uuid "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6" #uuid "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"',
        '#uuid "0-0-0-0-A" #uuid "00000000-0000-0000-0000-00000000000a"',
        "#{[0.0 #{-0.0}]} #{[-0.0 #{0.0}]}",
    ],
)
def test_values_that_clojure_takes_for_equal_have_one_text(text: str) -> None:
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
        '#inst "2020-01-01T00:00:00Z" #inst "2020-01-01T00:00:00.000000001Z"',
        '#inst "2020-01-01T00:00:00Z" #inst "2020-01-01T00:00:00+01:00"',
        '#inst "2020-01-01T00:00:00Z" "2020-01-01T00:00:00.000-00:00"',
        '#inst "2020-13" #inst "2020-14"',
        '#inst "x" #inst "X"',
        '#uuid "0-0-0-0-a" #uuid "0-0-0-0-b"',
        '#uuid "x" #uuid "X"',
        '#text "A" #text "a"',
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
        ("1\n {:a [1 2}", 2, 10, "`}` where `]` should close `[`"),
        ("1\n {:a [1 2", 2, 6, "this `[` is never closed: the file is cut short"),
        ("{:a 1", 1, 1, "this `{` is never closed"),
        ("#{1", 1, 1, "this `#{` is never closed"),
        ('{:a "b}', 1, 5, "this string is never closed: the file is cut short"),
        ('{:a #"b}', 1, 5, "this string is never closed: the file is cut short"),
        ("{:a #<Object 1}", 1, 5, "the object `#<Object 1}` is never closed by >"),
        ("[1] 2", 1, 5, "there is something after the end of the history"),
        ("1 ]", 1, 3, "`]` closes nothing"),
        ("[1 #_]", 1, 4, "#_ has no value after it"),
        ("{:a #inst}", 1, 5, "the tag `#inst` has no value"),
        ("{:a ^:b}", 1, 5, "the metadata after ^ belongs to no value"),
        ("[" * 200, 1, 102, "nested more than 100 levels deep"),
        ("#_" * 200 + "1", 1, 201, "nested more than 100 levels deep"),
        ("^" * 200 + "1", 1, 101, "nested more than 100 levels deep"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_text_whose_values_have_no_known_end_is_refused(
    text: str, line: int, column: int, reason: str, size: int
) -> None:
    with pytest.raises(MalformedError) as caught:
        values(text, size)
    assert caught.value.reason.find(reason) >= 0, caught.value
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (line, column)
    assert str(caught.value).startswith(f"h.edn: line {line}, column {column}: ")


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("{:a 1 :b}", 1, 1, "this map has 3 forms: a key has no value"),
        ("{:a 1 :a 2}", 1, 1, "the same key is in it twice"),
        ("#:n{:a 1 :n/a 2}", 1, 1, "the same key is in it twice"),
        ("#:n 1", 1, 1, "`#:n` has no map after it"),
        ("#{1 1}", 1, 1, "the same element is in it twice"),
        ("#{1.0M 1.00M}", 1, 1, "the same element is in it twice"),
        ("018", 1, 1, "`018` is no EDN number"),
        ("1x", 1, 1, "`1x` is no EDN number"),
        ("1/0", 1, 1, "`1/0` is no EDN number"),
        ("37rZ", 1, 1, "`37rZ` has digits beyond its base, or a base beyond 36"),
        ("2r12", 1, 1, "`2r12` has digits beyond its base"),
        ("1e99999999999999999999M", 1, 1, "the number `1e99999999999999999999M` is too large"),
        ("9" * 2000, 1, 1, "has more than 1000 digits"),
        (":", 1, 1, "`:` is no EDN token"),
        ("::a", 1, 1, "`::a` is no EDN token"),
        ("a\x00b", 1, 1, "is no EDN token"),
        ("@a", 1, 1, "`@a` is no EDN token"),
        ("##Info", 1, 1, "`##Info` is no EDN token"),
        ("#", 1, 1, "`#` is no EDN token"),
        (r"\zzz", 1, 1, r"`\zzz` is no EDN token"),
        (r'"a\qb"', 1, 3, "is no escape that EDN knows"),
        (r'"\ud800"', 1, 2, "an escape in this string is half of a character"),
        (r"\ud800", 1, 1, "is half of a character"),
        ('#"a[b"', 1, 1, "is a regular expression, and no value"),
        ("#<A #<B> >", 1, 1, "`#<A #<B> >` is an object"),
        ("#'user/x", 1, 1, "`#'user/x` is no EDN token"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_a_value_that_cannot_be_read_has_its_place_and_ends(
    text: str, line: int, column: int, reason: str, size: int
) -> None:
    """The values around it are read."""
    one, unreadable, other = values(f"[1\n{text} 2]", size)
    assert (one, other) == (1, 2)
    assert isinstance(unreadable, Unreadable)
    assert unreadable.reason.find(reason) >= 0, unreadable
    assert (unreadable.place.line, unreadable.place.column) == (line + 1, column)
    ((_, inner),) = values(f"{{:error {text} }}", size)[0].pairs
    assert isinstance(inner, Unreadable)
    assert to_name(inner) == inner.text


def test_everything_that_clojure_prints_is_a_value() -> None:
    text = r"""
    0x10f3 -0xFFN 017 36rZz 2r101 1/3 4/2 -7/1 ##Inf ##-Inf ##NaN 1e999 08.5
    #object[java.net.Socket 0x5f2a3b1c "Socket[addr=n1/10.0.0.1]"] #object["[B" 0x1 "[B@1"]
    ^{:line 3} [1] ^:const ^String x #^{:a 1} {:b 2} #:ns{:a 1, :_/b 2, :c/d 3, "e" 4} \o101 \u0041
    #jepsen.etcd.Node{:name "n1"} #uuid "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    #error {:cause "x" :trace [[a.b$c invoke "f.clj" 3] [java.lang.Thread <init> "T.java" 1]]}
    """
    read = values(text)
    assert repr(read[10]) == "nan"
    assert [*read[:10], *read[11:13]] == [
        4339, -255, 15, 1295, 5, Fraction(1, 3), 2, -7, math.inf, -math.inf, math.inf, 8.5,
    ]  # fmt: skip
    assert read[13] == Tagged("object", (Symbol("java.net.Socket"), 0x5F2A3B1C, "Socket[addr=n1/10.0.0.1]"))
    assert read[15:18] == [(1,), Symbol("x"), Map(((Keyword("b"), 2),))]
    assert read[18] == Map(((Keyword("ns/a"), 1), (Keyword("b"), 2), (Keyword("c/d"), 3), ("e", 4)))
    assert read[19:21] == [Character("A"), Character("A")]
    assert [type(value) for value in read[21:]] == [Tagged, Tagged, Tagged]


@pytest.mark.slow
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
        "[[:r :x nil] [:append \"y\" 1]]", "{2 nil, :a [1 2]}", "#{1 [#{}] :a}", "[]", "{}",
        '#inst "2026-01-01T00:00:00.000-00:00"', "1/3", "##Inf", "##-Inf", "##NaN", "@a",
    ],
)  # fmt: skip
def test_what_was_made_json_is_shown_as_edn_again(text: str) -> None:
    value, _ = parse_first(Path("h.edn"), text, TextPosition(1, 1))
    assert to_edn(to_json(value)) == text
