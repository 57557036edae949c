"""At rest: one broker or one move that does not come to its end is one finding, and two causes are two."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Verdict
from assay.checkers.liveness.family import LIVENESS_ANOMALIES

from helpers.judging import judge
from helpers.log_histories import write
from helpers.looks import ALWAYS, CREATED, KEY, Change, Row, adding, all_of, changing, looked, partition, without

Shown = dict[str, str | None]


def shown(folder: Path, change: Change) -> Shown:
    """By anomaly and key: beneath which other one it is shown. All count for the verdict."""
    history = write(folder, [], looks=looked((ALWAYS, change), every=4))
    judgement = judge(history, Contract(forbidden=LIVENESS_ANOMALIES))
    assert judgement.verdict is Verdict.FAIL
    assert sum(judgement.anomalies.values()) == len(judgement.findings)

    def name(place: int) -> str:
        return f"{judgement.findings[place].anomaly} {judgement.findings[place].key}"

    heads = [one.same_cause_as for one in judgement.findings]
    return {name(place): None if head is None else name(head) for place, head in enumerate(heads)}


def partition_of(key: str, **given: object) -> tuple[Row, ...]:
    """Another partition, with a replica on each broker, that all obey."""
    replicas = [
        {"what": "role", "node": f"n{n}", "key": key, "epoch": 4, "high_watermark": 9, "settings": 77}
        for n in (1, 2, 3)
    ]
    return ({**partition(**given), "key": key}, *replicas)


def waiting_for(*brokers: int, leader: int = 1) -> tuple[Row, ...]:
    """A move of orders-1 that these brokers are not in sync for."""
    members = ",".join(str(n) for n in (1, 2, 3) if n not in brokers)
    move = {"what": "move", "key": "orders-1", "replicas": "1,2,3", "removing": ""}
    return (*partition_of("orders-1", members=members, leader=leader), move)


OUT = changing("partition", {"members": "1,2"}, key=KEY)
UNREGISTERED = all_of(
    without("broker", node="n3"), changing("partition", {"members": "1,2", "replicas": "1,2"}), without("folder")
)
ROUTED = adding(
    *(
        {"what": "routed", "key": KEY, "node": f"n{n}", "leader": 1, "replicas": "1,2,3", "members": "1,2,3"}
        for n in (1, 2, 3)
    )
)
STALE = all_of(ROUTED, changing("routed", {"leader": 2}, node="n3"))


def deaf(node: str) -> Change:
    return changing("role", {"epoch": 3}, node=node)


def other_settings(*nodes: str) -> Change:
    return all_of(*(changing("role", {"settings": 78}, node=node) for node in nodes))


def moved_unknown_to(node: str) -> Change:
    """Returns a move away from n3, whose end this node does not know of."""
    moved = {"replicas": "1,2", "members": "1,2"}
    routed = changing("routed", moved)
    return all_of(ROUTED, changing("partition", moved), routed, changing("routed", {"replicas": "1,2,3"}, node=node))


ONE: dict[str, tuple[Change, Shown]] = {
    "a move waits for the broker that is out of sync elsewhere": (
        all_of(OUT, adding(*waiting_for(3))),
        {"no-rejoin orders-0": None, "unfinished-move orders-1": "no-rejoin orders-0"},
    ),
    "a broker is out of sync with one leader in two partitions": (
        all_of(OUT, adding(*partition_of("orders-1", members="1,2"))),
        {"no-rejoin orders-0": None, "no-rejoin orders-1": "no-rejoin orders-0"},
    ),
    "a broker without a registration learns of no settings": (
        all_of(UNREGISTERED, other_settings("n3")),
        {"unregistered n3": None, "disobeyed-settings orders-0": "unregistered n3"},
    ),
    "a broker without a registration still knows a topic": (
        all_of(UNREGISTERED, adding({"what": "known", "key": "gone", "node": "n3"})),
        {"unregistered n3": None, "undeleted-topic gone": "unregistered n3"},
    ),
    "a topic's settings are missing in two of its partitions": (
        all_of(adding(*partition_of("orders-1")), other_settings("n3")),
        {"disobeyed-settings orders-0": None, "disobeyed-settings orders-1": "disobeyed-settings orders-0"},
    ),
    "a broker that does not obey a state routes by the one before": (
        all_of(STALE, deaf("n3")),
        {"disobeyed-state orders-0": None, "stale-metadata orders-0": "disobeyed-state orders-0"},
    ),
    "a broker with files left behind routes to itself": (
        moved_unknown_to("n3"),
        {"unfinished-move orders-0": None, "stale-metadata orders-0": "unfinished-move orders-0"},
    ),
    "a member that does not obey holds the high watermark back": (
        all_of(changing("role", {"log_end": 101}, node="n1"), deaf("n3")),
        {"disobeyed-state orders-0": None, "late-high-watermark orders-0": "disobeyed-state orders-0"},
    ),
    "a broker has files of a deleted topic, and knows it": (
        adding(
            {"what": "folder", "key": "gone-0", "node": "n2", "zxid": CREATED - 10},
            {"what": "known", "key": "gone", "node": "n2"},
        ),
        {"undeleted-topic gone": None, "undeleted-topic gone-0": "undeleted-topic gone"},
    ),
}

APART: dict[str, tuple[Change, set[str]]] = {
    "a move waits for another broker too": (
        all_of(OUT, adding(*waiting_for(2, 3))),
        {"no-rejoin orders-0", "unfinished-move orders-1"},
    ),
    "a move waits for a broker that follows another leader": (
        all_of(OUT, adding(*waiting_for(3, leader=2))),
        {"no-rejoin orders-0", "unfinished-move orders-1"},
    ),
    "a move waits for no one": (
        all_of(OUT, adding(*waiting_for())),
        {"no-rejoin orders-0", "unfinished-move orders-1"},
    ),
    "a broker is out of sync with two leaders": (
        all_of(OUT, adding(*partition_of("orders-1", members="1,2", leader=2))),
        {"no-rejoin orders-0", "no-rejoin orders-1"},
    ),
    "a broker without a registration, and another without settings": (
        all_of(UNREGISTERED, other_settings("n2")),
        {"unregistered n3", "disobeyed-settings orders-0"},
    ),
    "a broker without a registration, and another that knows a topic": (
        all_of(UNREGISTERED, adding({"what": "known", "key": "gone", "node": "n2"})),
        {"unregistered n3", "undeleted-topic gone"},
    ),
    "a broker without a registration, and one that does not obey": (
        all_of(UNREGISTERED, deaf("n2")),
        {"unregistered n3", "disobeyed-state orders-0"},
    ),
    "one broker does not obey, another routes by the state before": (
        all_of(STALE, deaf("n2")),
        {"disobeyed-state orders-0", "stale-metadata orders-0"},
    ),
    "one broker has files left behind, another routes to it": (
        moved_unknown_to("n2"),
        {"unfinished-move orders-0", "stale-metadata orders-0"},
    ),
    "a broker does not obey in another partition than the one with a late mark": (
        all_of(
            adding(*partition_of("orders-1")),
            changing("role", {"log_end": 101}, node="n1", key=KEY),
            changing("role", {"epoch": 3}, node="n3", key="orders-1"),
        ),
        {"disobeyed-state orders-1", "late-high-watermark orders-0"},
    ),
    "one broker has files of a deleted topic, another knows it": (
        adding(
            {"what": "folder", "key": "gone-0", "node": "n2", "zxid": CREATED - 10},
            {"what": "known", "key": "gone", "node": "n3"},
        ),
        {"undeleted-topic gone", "undeleted-topic gone-0"},
    ),
}


@pytest.mark.parametrize(("change", "expected"), ONE.values(), ids=ONE)
def test_one_cause_is_one_finding(tmp_path: Path, change: Change, expected: Shown) -> None:
    assert shown(tmp_path, change) == expected


@pytest.mark.parametrize(("change", "expected"), APART.values(), ids=APART)
def test_two_causes_are_two(tmp_path: Path, change: Change, expected: set[str]) -> None:
    assert shown(tmp_path, change) == dict.fromkeys(expected)
