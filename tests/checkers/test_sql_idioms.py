"""The idioms of the checks' SQL say what their names say, by brute force over small tables."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from assay.checkers.engine import DuckDB, Engine, SQLite
from assay.checkers.judging.verdict import MOST_FINDINGS
from assay.checkers.sql_idioms import (
    TARGETS_ZOOKEEPER,
    extract_incarnation,
    extract_topic,
    first_rows_subquery,
    greatest_before,
    list_covers,
    order_by,
    previous,
    row_number,
    select_late_calls,
    select_nearest_pairs,
    strip_incarnation,
    strip_partition_incarnation,
    strip_topic_incarnation,
    sum_so_far,
    total_of,
)

RNG = random.Random("idioms")
ROWS = [
    {"key": key, "place": place, "last_call": RNG.choice([None, *range(40)]), "first_ret": RNG.randrange(40)}
    for key in "abc"
    for place in RNG.sample(range(100), 25)
]


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDB]:
    with DuckDB() as duck:
        duck.load("places", pa.Table.from_pylist(ROWS))
        yield duck


def before(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of its key with smaller places, in order."""
    smaller = [other for other in ROWS if other["key"] == row["key"] and other["place"] < row["place"]]
    return sorted(smaller, key=lambda other: other["place"])


def test_a_row_is_seen_with_the_rows_before_it(engine: DuckDB) -> None:
    given = {"by": "key", "order": "place"}
    found = engine.rows(
        f"select key, place, {greatest_before('last_call', **given)} as greatest, "
        f"{sum_so_far('first_ret', **given)} as total, {previous('first_ret', **given)} as former, "
        f"{row_number(**given)} as number from places"
    )
    assert len(found) == len(ROWS)
    rows = {(row["key"], row["place"]): row for row in ROWS}
    for one in found:
        row = rows[one["key"], one["place"]]
        others = before(row)
        assert one["greatest"] == max((other["last_call"] for other in others if other["last_call"] is not None),
                                      default=None)  # fmt: skip
        assert one["total"] == sum(other["first_ret"] for other in (*others, row))
        assert one["former"] == (others[-1]["first_ret"] if others else None)
        assert one["number"] == len(others) + 1


def test_a_late_call_is_one_row_however_many_places_it_came_too_late_for(engine: DuckDB) -> None:
    late: Counter[tuple[str, int]] = Counter()
    earliest: dict[tuple[str, int], int] = {}
    for row in ROWS:
        call = max((other["last_call"] for other in before(row) if other["last_call"] is not None), default=-1)
        if call > row["first_ret"]:
            late[row["key"], call] += 1
            earliest[row["key"], call] = min(row["first_ret"], earliest.get((row["key"], call), row["first_ret"]))
    found = {(row["key"], row["before"]): row for row in engine.rows(select_late_calls("places", "place"))}
    assert {at: row["overtaken"] for at, row in found.items()} == late
    assert {at: row["first_ret"] for at, row in found.items()} == earliest
    assert late


def test_nulls_come_first_and_so_many_rows_are_explained(engine: DuckDB) -> None:
    calls = [row["last_call"] for row in engine.rows(f"select last_call from places {order_by('last_call')}")]
    assert calls == sorted(calls, key=lambda call: -1 if call is None else call)
    assert calls[0] is None
    rows = engine.rows(f"select f.last_call as last_call from {first_rows_subquery('places', 'last_call, place')} f")
    assert sorted(row["last_call"] or -1 for row in rows) == sorted(call or -1 for call in calls[:MOST_FINDINGS])


def test_a_sum_over_nothing_is_nought(engine: DuckDB) -> None:
    (row,) = engine.rows(f"select {total_of('place')} as some from places where 1 = 0")
    assert row["some"] == 0


@pytest.mark.parametrize("known_first", [False, True])
def test_of_all_that_contradict_each_other_the_two_nearest_in_time_are_taken(
    engine: DuckDB, *, known_first: bool
) -> None:
    rng = random.Random("pairs")
    recorded = [
        {
            "key": key,
            "side": rng.randrange(2 if known_first else 3),
            "moment": rng.randrange(60),
            "op": op,
            "word": f"w{op}",
        }
        for key in range(60)
        for op in range(rng.randrange(1, 9))
    ]
    engine.load("recorded", pa.Table.from_pylist(recorded))
    found = engine.rows(select_nearest_pairs("select * from recorded", "key", carry="word", known_first=known_first))

    def distance(first: dict[str, Any], second: dict[str, Any]) -> tuple[bool, int]:
        """Whether it is the less telling order, and how far apart; at one moment nothing precedes."""
        return known_first and not (first["side"] < second["side"] and first["moment"] < second["moment"]), abs(
            second["moment"] - first["moment"]
        )

    near: dict[int, tuple[bool, int]] = {}
    for first in recorded:
        for second in recorded:
            if first["key"] == second["key"] and first["side"] != second["side"] and (
                first["moment"] <= second["moment"]
            ):  # fmt: skip
                key = first["key"]
                near[key] = min(near.get(key, (True, 10**9)), distance(first, second))
    assert {row["key"]: distance(former(row), row) for row in found} == near
    assert all((row["word"], row["former_word"]) == (f"w{row['op']}", f"w{row['former_op']}") for row in found)
    assert len(near) > 30


@pytest.mark.parametrize("known_first", [False, True])
def test_the_first_pair_is_named_as_well(engine: DuckDB, *, known_first: bool) -> None:
    rng = random.Random("first pairs")
    recorded = [
        {"key": key, "side": rng.randrange(2), "moment": moment, "op": op}
        for key in range(60)
        for op, moment in enumerate(rng.sample(range(60), 6))
    ]
    engine.load("recorded", pa.Table.from_pylist(recorded))
    found = {
        row["key"]: row
        for row in engine.rows(select_nearest_pairs("select * from recorded", "key", known_first=known_first))
    }
    others = 0
    for key, row in found.items():
        stated = sorted((one for one in recorded if one["key"] == key), key=lambda one: one["moment"])
        pairs = [pair for pair in itertools.pairwise(stated) if pair[0]["side"] != pair[1]["side"]]
        preferred = [pair for pair in pairs if pair[0]["side"] < pair[1]["side"]] if known_first else []
        first, second = (preferred or pairs)[0]
        assert (row["contradicted_at"], row["earliest"], row["earliest_op"]) == (
            first["moment"], second["moment"], second["op"],
        )  # fmt: skip
        others += row["earliest_op"] != row["op"]
    assert others > 10


def former(row: Any) -> dict[str, Any]:
    return {name: row[f"former_{name}"] for name in ("side", "moment", "op")}


@pytest.mark.parametrize("engine_type", [DuckDB, SQLite])
@pytest.mark.parametrize(
    ("brokers", "others", "covered"),
    [
        ("1,2,3", "3,1", True), ("1,2", "2,3", False), ("1", "11", False), ("11", "1", False), ("", "1", False),
        ("1,12", "12,1,12", True), ("1,1", "1", True), ("-1,2", "2,-1", True),
        (".*", "7,8,9", False), ("(", "1", False), ("1,2\n", "1", False),
        ("(1|1)+", "1" * 60 + "!", False), ("11," * 40 + "11", "11," * 40 + "9", False),
        ("," * 40, "," * 99 + "9", False),
    ],
)  # fmt: skip
def test_a_list_covers_another_by_its_numbers_alone(
    engine_type: type[DuckDB | SQLite], brokers: str, others: str, covered: bool
) -> None:
    with engine_type() as one:
        one.load("lists", pa.table({"brokers": [brokers], "others": [others]}))
        assert one.rows(f"select brokers from lists where {list_covers('brokers', 'others')}") == (
            [{"brokers": brokers}] if covered else []
        )


KEYS = {
    "orders#2-0": ("orders#2", "orders-0", "orders-0", "orders#2-0", 1),
    "orders#12": ("orders#12", "orders", "orders#12", "orders", 12),
    "orders-0\n": ("orders-0\n", "orders-0\n", "orders-0\n", "orders-0\n", 1),
    "orders#2\n": ("orders#2\n", "orders\n", "orders#2\n", "orders#2\n", 1),
    "orders-0\r\n": ("orders-0\r\n", "orders-0\r\n", "orders-0\r\n", "orders-0\r\n", 1),
    "a-1\n-2#3-4": ("a-1\n-2#3", "a-1\n-2-4", "a-1\n-2-4", "a-1\n-2#3-4", 1),
    "a#2#3-0": ("a#2#3", "a#3-0", "a#2-0", "a#2#3-0", 1),
    "a#1-2#3-4": ("a#1-2#3", "a-2#3-4", "a-2#3-4", "a#1-2#3-4", 1),
    "": ("", "", "", "", 1),
}
"""Keys, and their topics, their names, their names as partitions, their names as topics, and their incarnations."""


def require_equal_names(engine: Engine) -> None:
    """Loads keys and targets of faults, and compares the texts that the SQL makes of them."""
    engine.load("keys", pa.table({"key": list(KEYS)}))
    rows = engine.rows(
        f"select key, {extract_topic('key')} as topic, {strip_incarnation('key')} as name, "
        f"{strip_partition_incarnation('key')} as partition_name, {strip_topic_incarnation('key')} as topic_name, "
        f"{extract_incarnation('key')} as incarnation from keys"
    )
    assert {row["key"]: tuple(row.values())[1:] for row in rows} == KEYS
    targets = {
        '["n1", "zk1"]': True,
        '["zk12"]': True,
        '["zka"]': False,
        '["zk_"]': False,
        '["azk1"]': False,
        "n1": False,
    }
    engine.load("struck", pa.table({"targets": list(targets)}))
    found = engine.rows(f"select targets from struck where {TARGETS_ZOOKEEPER}")
    assert {row["targets"] for row in found} == {text for text, has_zookeeper in targets.items() if has_zookeeper}


@pytest.mark.parametrize("engine_type", [DuckDB, SQLite])
def test_engines_agree_on_names_with_line_breaks_and_several_incarnations(engine_type: type[DuckDB | SQLite]) -> None:
    with engine_type() as one:
        require_equal_names(one)


@pytest.mark.spark
def test_spark_agrees_on_names(application: Any) -> None:
    with application.engine(effects=100) as spark:
        require_equal_names(spark)
