"""The index by time: searches against brute force, what it refuses to load, and that a search by time needs no scan."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.index import TIME_ENTRY, TimeIndex

BASE = 1000
ENTRIES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12).map(
    lambda steps: [
        (sum(t for t, _ in steps[: i + 1]), BASE + sum(o for _, o in steps[: i + 1])) for i in range(len(steps))
    ]
)


def index(entries: list[tuple[int, int]], disk: SimDisk) -> TimeIndex:
    made = TimeIndex(disk.storage().open("index"), BASE)
    for entry in entries:
        made.append(*entry)
    return made


@given(ENTRIES, st.integers(-5, 120))
def test_searches_agree_with_brute_force(entries: list[tuple[int, int]], timestamp: int) -> None:
    made = index(entries, SimDisk(Random(0)))
    assert made.floor(timestamp) == max([o for t, o in entries if t <= timestamp], default=BASE)
    assert made.newest == max([t for t, _ in entries], default=-1)


@given(ENTRIES)
def test_what_was_written_is_loaded_and_what_was_cleared_is_not(entries: list[tuple[int, int]]) -> None:
    disk = SimDisk(Random(0))
    made = index(entries, disk)
    again = TimeIndex(disk.storage().open("index"), BASE)
    assert again.load(BASE + 1000)
    assert [again.floor(time) for time, _ in entries] == [offset for _, offset in entries]
    made.clear()
    assert disk.read("index") == b""


@pytest.mark.parametrize("fault", ["half an entry", "order", "beyond", "twice"])
@given(ENTRIES.filter(lambda entries: len(entries) > 1))
def test_an_impossible_file_is_not_loaded(fault: str, entries: list[tuple[int, int]]) -> None:
    disk = SimDisk(Random(0))
    index(entries, disk)
    data, end = disk.read("index"), entries[-1][1] + 1
    if fault == "half an entry":
        data = data[:-3]
    elif fault == "order":
        data = data[TIME_ENTRY.size :] + data[: TIME_ENTRY.size]
    elif fault == "twice":
        data += data[-TIME_ENTRY.size :]
    else:
        end -= 1
    disk.write("index", data)
    again = TimeIndex(disk.storage().open("index"), BASE)
    assert not again.load(end)
    assert (again.newest, again.floor(10**6)) == (-1, BASE)
