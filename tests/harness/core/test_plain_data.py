"""Values of a history: equal ones have equal JSON, and values that would be taken for others are refused."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import permutations
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core.history import HistoryError
from assay.harness.core.history.rows import to_json


class Record(msgspec.Struct):
    inner: Any


@dataclass
class Pair:
    inner: Any


class Color(enum.Enum):
    RED = "red"


WRAPPERS = [
    lambda value: value,
    lambda value: [1, [value]],
    lambda value: (value,),
    lambda value: {"a": {"b": value}},
    Record,
    Pair,
    lambda value: Record([Pair({"a": value})]),
]


def encode(value: Any) -> str:
    return to_json(value, "result of read")


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "nan has no JSON form; use text, such as 'nan'"),
        (math.inf, "inf has no JSON form; use text, such as 'inf'"),
        (-math.inf, "-inf has no JSON form; use text, such as '-inf'"),
        (b"ab", "b'ab' would become text in base64; decode it"),
        (bytearray(b"ab"), "bytearray(b'ab') would become text in base64; decode it"),
        (Decimal("1.0"), "Decimal('1.0') would become text; convert it"),
        ({1: 2}, "the key 1 of a dict would become text; make it text"),
        ({None: 2}, "the key None of a dict would become text; make it text"),
    ],
)
def test_a_value_that_would_be_taken_for_another_is_refused_at_any_depth(wrap: Any, value: Any, words: str) -> None:
    with pytest.raises(HistoryError) as caught:
        encode(wrap(value))
    assert f"result of read cannot be written as JSON: {words}" in str(caught.value)


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("value", [None, 0, 0.5, 1e308, "nan", "Infinity", "YWI=", {"1": 2}, [], True])
def test_the_nearest_values_are_kept_as_they_are(wrap: Any, value: Any) -> None:
    assert json.loads(encode(wrap(value))) == json.loads(msgspec.json.encode(wrap(value)))


def test_a_long_value_is_cut_in_its_error() -> None:
    with pytest.raises(HistoryError) as caught:
        encode(b"x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (
            datetime(2026, 1, 1, 12, tzinfo=UTC),
            datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
)
def test_equal_values_have_one_text(wrap: Any, one: Any, other: Any) -> None:
    assert encode(wrap(one)) == encode(wrap(other))


@pytest.mark.parametrize("elements", [(0, 8, 16), ("a", "b", "c"), (1, "a", None), (0.5, 8, 0), ((1, 2), (0, 9), (3,))])
@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_has_one_text_in_whatever_order_it_was_filled(kind: Any, elements: tuple[Any, ...]) -> None:
    assert len({encode(kind(order)) for order in permutations(elements)}) == 1
    if kind is set:
        assert len({encode(Record(set(order))) for order in permutations(elements[:1])}) == 1


def test_the_order_of_a_list_counts() -> None:
    assert encode([8, 0]) != encode([0, 8])


def test_different_kinds_of_numbers_stay_different() -> None:
    assert len({encode(value) for value in (1, 1.0, True, "1")}) == 4


def test_ids_times_and_members_become_text() -> None:
    assert encode([UUID(int=1), datetime(2026, 1, 1), Color.RED]) == (  # noqa: DTZ001 - without a time zone
        '["00000000-0000-0000-0000-000000000001","2026-01-01T00:00:00","red"]'
    )


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1"), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert json.loads(encode(value)) == value
