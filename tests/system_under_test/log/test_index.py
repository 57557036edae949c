"""The sparse index: searches against brute force, and what it refuses to load."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.index import OFFSET_ENTRY, OffsetIndex

BASE = 1000
ENTRIES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 90)), max_size=12).map(
    lambda steps: [
        (BASE + sum(o for o, _ in steps[: i + 1]), sum(p for _, p in steps[: i + 1])) for i in range(len(steps))
    ]
)


def index(entries: list[tuple[int, int]], disk: SimDisk) -> OffsetIndex:
    made = OffsetIndex(disk.storage().open("index"), BASE)
    for entry in entries:
        made.append(*entry)
    return made


@given(ENTRIES, st.integers(BASE, BASE + 120), st.integers(0, 1200))
def test_searches_agree_with_brute_force(entries: list[tuple[int, int]], offset: int, position: int) -> None:
    made = index(entries, SimDisk(Random(0)))
    assert made.floor(offset) == max([e for e in entries if e[0] <= offset], default=(BASE, 0))
    assert made.floor_position(position) == max([p for _, p in entries if p <= position], default=0)
    assert made.ceiling_position(position, 5000) == min([p for _, p in entries if p > position], default=5000)
    assert made.offset_at(position) == max([o for o, p in entries if p <= position], default=BASE)


@given(ENTRIES, st.integers(0, 1200))
def test_what_is_left_after_a_cut_is_loaded_again(entries: list[tuple[int, int]], position: int) -> None:
    disk = SimDisk(Random(0))
    index(entries, disk).truncate(position)
    again = OffsetIndex(disk.storage().open("index"), BASE)
    assert again.load(segment_size=5000)
    left = [entry for entry in entries if entry[1] < position]
    assert again.size == len(left) * OFFSET_ENTRY.size
    assert [again.floor(offset) for offset, _ in left] == left
    assert again.last_position == (left[-1][1] if left else 0)


@given(ENTRIES.filter(lambda entries: len(entries) > 1), st.sampled_from(["half an entry", "order", "beyond", "twice"]))
def test_an_impossible_file_is_not_loaded(entries: list[tuple[int, int]], fault: str) -> None:
    disk = SimDisk(Random(0))
    index(entries, disk)
    data, size = disk.read("index"), entries[-1][1] + 1
    if fault == "half an entry":
        data = data[:-3]
    elif fault == "order":
        data = data[OFFSET_ENTRY.size :] + data[: OFFSET_ENTRY.size]
    elif fault == "twice":
        data += data[-OFFSET_ENTRY.size :]
    else:
        size -= 1
    disk.write("index", data)
    again = OffsetIndex(disk.storage().open("index"), BASE)
    assert not again.load(size)
    assert again.size == 0
