"""Every partition goes to one member that wants its topic, evenly; the examples of Kafka's documentation come out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.client.assignors import ASSIGNORS, assign_range, assign_round_robin

NAMES = ("t0", "t1", "t2")


@given(
    st.sampled_from(sorted(ASSIGNORS)),
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.lists(st.sampled_from(NAMES), unique=True), min_size=1),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 7)),
)
def test_each_partition_has_one_owner_that_wants_it(
    name: str, subscriptions: dict[str, list[str]], partitions: dict[str, int]
) -> None:
    given_ = ASSIGNORS[name](subscriptions, partitions)
    assert given_.keys() == subscriptions.keys()
    owned = [partition for owned in given_.values() for partition in owned]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(owned) == sorted((t, i) for t, count in partitions.items() if t in wanted for i in range(count))
    assert all(topic in subscriptions[member] for member, owned in given_.items() for topic, _ in owned)


@given(st.integers(1, 6), st.integers(0, 20))
def test_no_one_has_two_more_than_another(members: int, partitions: int) -> None:
    subscriptions = {f"m{number}": ["t0"] for number in range(members)}
    for assign in (assign_range, assign_round_robin):
        sizes = [len(owned) for owned in assign(subscriptions, {"t0": partitions}).values()]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("range", {"c0": ["t0-0", "t0-1", "t1-0", "t1-1"], "c1": ["t0-2", "t1-2"]}),
        ("roundrobin", {"c0": ["t0-0", "t0-2", "t1-1"], "c1": ["t0-1", "t1-0", "t1-2"]}),
    ],
)
def test_the_examples(name: str, expected: dict[str, list[str]]) -> None:
    found = ASSIGNORS[name]({"c0": ["t0", "t1"], "c1": ["t0", "t1"]}, {"t0": 3, "t1": 3})
    assert {member: [f"{topic}-{index}" for topic, index in owned] for member, owned in found.items()} == expected
