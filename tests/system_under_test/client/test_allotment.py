"""Who gets what in the old design: the worked examples, and the laws of the algorithm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.client.zookeeper_groups.subscription import (
    StaticSubscription,
    StreamSubscription,
    TopicFilter,
    to_subscription,
)
from assay.system_under_test.client.zookeeper_groups.view import GroupView, assign_partitions, to_thread_id
from assay.system_under_test.zookeeper.znodes import ConsumerRegistration, ZnodeError

names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8)


def shares(partitions: int, members: dict[str, int]) -> list[list[list[int]]]:
    """By member, by thread: its partitions of the one topic."""
    view = GroupView(
        {name: StaticSubscription({"t": count}) for name, count in members.items()}, {"t": tuple(range(partitions))}
    )
    found = []
    for name, count in members.items():
        mine = view.find_share(name)
        threads = [to_thread_id(name, index) for index in range(count)]
        found.append([[index for (_, index), owner in mine.items() if owner == thread] for thread in threads])
    return found


def test_four_partitions_for_three_consumers_of_one_thread() -> None:
    assert shares(4, {"c1": 1, "c2": 1, "c3": 1}) == [[[0, 1]], [[2]], [[3]]]


def test_four_partitions_for_three_consumers_of_two_threads() -> None:
    assert shares(4, {"c1": 2, "c2": 2, "c3": 2}) == [[[0], [1]], [[2], [3]], [[], []]]


def test_three_partitions_while_consumers_join_and_leave_one_by_one() -> None:
    joining = [shares(3, {f"c{n}": 1 for n in range(1, count + 1)}) for count in range(1, 5)]
    assert joining == [
        [[[0, 1, 2]]],
        [[[0, 1]], [[2]]],
        [[[0]], [[1]], [[2]]],
        [[[0]], [[1]], [[2]], [[]]],
    ]
    leaving = [shares(3, {f"c{n}": 1 for n in range(first, 5)}) for first in range(2, 5)]
    assert leaving == [[[[0]], [[1]], [[2]]], [[[0, 1]], [[2]]], [[[0, 1, 2]]]]


def test_threads_sort_as_strings() -> None:
    found = shares(11, {"c": 11})[0]
    assert [found[0], found[1], found[10], found[2]] == [[0], [1], [2], [3]]


@given(
    st.dictionaries(names, st.lists(st.integers(0, 40), unique=True, max_size=20), max_size=4),
    st.dictionaries(names, st.integers(1, 12), max_size=6),
)
def test_every_partition_has_one_thread_and_shares_are_contiguous_and_even(
    partitions: dict[str, list[int]], members: dict[str, int]
) -> None:
    topics = {topic: tuple(indexes) for topic, indexes in partitions.items()}
    threads = {
        topic: [to_thread_id(m, index) for m, count in members.items() for index in range(count)] for topic in topics
    }
    owners = assign_partitions(topics, threads)
    if members:
        assert owners.keys() == {(topic, index) for topic, indexes in topics.items() for index in indexes}
    for topic, indexes in topics.items():
        in_order = list(indexes)
        by_thread = {name: [i for i in in_order if owners.get((topic, i)) == name] for name in threads[topic]}
        sizes = [len(share) for share in by_thread.values()]
        assert not sizes or max(sizes) - min(sizes) <= 1
        assert [i for name in sorted(by_thread) for i in by_thread[name]] == (in_order if members else [])


@given(
    st.dictionaries(names, st.integers(1, 4), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "logs.x", "logs.y"]), st.integers(1, 9), min_size=1),
    st.data(),
)
def test_all_members_come_to_the_same_end(members: dict[str, int], counts: dict[str, int], data: st.DataObject) -> None:
    """Each from the topics that it looks at, and all together leave nothing over that any of them wants."""
    subscriptions: dict[str, StreamSubscription] = {
        name: data.draw(
            st.sampled_from(
                [
                    StaticSubscription({"a": count}),
                    StaticSubscription({"a": 1, "b": count}),
                    TopicFilter("logs.*,b", count),
                ]
            ),
            label=name,
        )
        for name, count in members.items()
    }
    taken: dict[tuple[str, int], str] = {}
    for name, mine in subscriptions.items():
        topics = {topic: tuple(range(count)) for topic, count in counts.items() if mine.count_streams([topic])}
        for partition, owner in GroupView(subscriptions, topics).find_share(name).items():
            assert partition not in taken, f"{partition} is {taken[partition]}'s and {owner}'s"
            taken[partition] = owner
    wanted = {topic for topic in counts if any(one.count_streams([topic]) for one in subscriptions.values())}
    assert taken.keys() == {(topic, index) for topic in wanted for index in range(counts[topic])}


def test_filters_let_through_whole_names_and_never_the_offsets_topic() -> None:
    white, black = TopicFilter("orders.*, audit", 1), TopicFilter("orders.*", 1, exclude=True)
    topics = ["orders", "orders-2", "audit", "audit2", "my-orders", "__consumer_offsets"]
    assert list(white.count_streams(topics)) == ["orders", "orders-2", "audit"]
    assert list(black.count_streams(topics)) == ["audit", "audit2", "my-orders"]
    for wrong in ("*", "(", "["):
        with pytest.raises(ValueError, match="not a regular expression"):
            TopicFilter(wrong, 1)
    with pytest.raises(ValueError, match="at least one stream"):
        TopicFilter(".*", 0)
    with pytest.raises(ValueError, match="at least one topic"):
        StaticSubscription({})


@pytest.mark.parametrize(
    "wanted", [StaticSubscription({"a": 2, "b": 1}), TopicFilter("a.*", 3), TopicFilter("a.*", 3, exclude=True)]
)
def test_what_one_registers_is_what_others_read(wanted: StreamSubscription) -> None:
    assert to_subscription("/consumers/g/ids/c", wanted.to_registration(7)) == wanted


@pytest.mark.parametrize("subscription", [{}, {"a": 1, "b": 2}, {"(": 1}, {"a": 0}])
def test_a_registration_that_makes_no_sense_is_reported_by_its_path(subscription: dict[str, int]) -> None:
    with pytest.raises(ZnodeError, match="/consumers/g/ids/c"):
        to_subscription("/consumers/g/ids/c", ConsumerRegistration(subscription, "white_list", "7"))
