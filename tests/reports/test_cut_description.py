"""Tests what a fault cut, in words."""

from __future__ import annotations

import pytest

from assay.reports.faults import MOST_GROUPS, decode_detail, describe_cut


@pytest.mark.parametrize(
    ("cut", "zookeeper", "words"),
    [
        (["n1|n2", "n2|n3"], False, "cut n2 from n1 and n3, not ZooKeeper"),
        (["n1|n2", "n2|n3", "n2|zk1"], True, "cut n2 from n1, n3 and zk1, ZooKeeper included"),
        (["n1|n3", "n1|n4", "n2|n3", "n2|n4"], None, "cut n1 from n3 and n4; n2 from n3 and n4"),
        (["n1<-n2", "n3<-n2"], False, "cut what n1 gets from n2; what n3 gets from n2, not ZooKeeper"),
        (["n1<-n2", "n1|n3"], False, "cut n1 from n3; what n1 gets from n2, not ZooKeeper"),
        (["n2<-zk1:2181/3"], True, "cut what n2 gets from zk1:2181/3, ZooKeeper included"),
    ],
)
def test_links_are_grouped_by_their_ends(cut: list[str], zookeeper: bool | None, words: str) -> None:
    evidence = {"cut": cut} | ({} if zookeeper is None else {"zookeeper": zookeeper})
    assert describe_cut({"evidence": evidence}) == words


def test_links_that_have_a_name_are_given_it() -> None:
    evidence = {"cut": ["n1|n2", "n1|n3"], "zookeeper": False, "likeness": "partition-one"}
    assert describe_cut({"evidence": evidence}) == "cut n1 from n2 and n3, not ZooKeeper, as partition-one does"


def test_what_cuts_no_link_says_nothing_of_links() -> None:
    assert describe_cut({}) is None
    assert describe_cut({"evidence": {"cut": []}}) is None
    assert describe_cut({"evidence": "none"}) is None


def test_a_long_list_ends_in_how_many_there_are_more() -> None:
    words = describe_cut({"evidence": {"cut": [f"a{number}<-b" for number in range(MOST_GROUPS + 2)]}})
    assert words is not None
    assert words.count("gets from") == MOST_GROUPS
    assert words.endswith(" and 2 more groups of links")


@pytest.mark.parametrize("text", ["[" * 20_000, '{"what": ' + "[" * 20_000, "no JSON", "7"])
def test_a_detail_that_cannot_be_read_leaves_the_times_alone(text: str) -> None:
    assert decode_detail(text) == {}
