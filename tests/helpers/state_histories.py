"""Random events of partitions' states, and an oracle that finds their anomalies by loops over all events."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from helpers.epoch_histories import event
from helpers.log_histories import Row

Found = tuple[Any, ...]


def said(
    seq: int, name: str, epoch: int, version: int, isr: Sequence[int], *, elr: Sequence[int] = (), **given: Any
) -> Row:
    """A line with an in-sync set."""
    named = {"isr": isr, "elr": elr, **{name: given.pop(name) for name in ("replicas", "gone") if name in given}}
    return event(seq, name, epoch, version=version, **{name: packed(ids) for name, ids in named.items()}, **given)


def packed(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def ids_of(one: Row, name: str) -> list[int]:
    return [int(word) for word in (one.get(name) or "").split(",") if word]


def written(seq: int, epoch: int, leader: int, isr: Sequence[int], **given: Any) -> Row:
    """By the controller of epoch 1, as version ``epoch`` of the state."""
    rest = {"min_insync": 2, "unclean": False, "controller_epoch": 1, "version": epoch, **given}
    return said(seq, "partition-state-written", epoch, rest.pop("version"), isr, value=leader, **rest)


def recorded(seq: int, node: str, last_epoch: int, log_end: int, epoch: int = 0, **given: Any) -> Row:
    """Returns where a replica's log ended, to the controller of epoch 1."""
    return event(
        seq,
        "log-end-answered",
        epoch,
        node=node,
        value=last_epoch,
        position=log_end,
        **{"controller_epoch": 1, **given},
    )


def registered(node: str, broker: int, seq: int = 1) -> Row:
    return event(seq, "registered", 0, node=node, value=broker, key=None)


def numbered(events: list[Row]) -> list[Row]:
    """Returns the events with each node's lines numbered from 1 on."""
    lines: dict[str, int] = {}
    for one in events:
        one["seq"] = lines[one["node"]] = lines.get(one["node"], 0) + 1
    return events


def states(key: str, rng: random.Random, first: int) -> list[Row]:
    """Returns events of three nodes of its own, numbered from ``first``.

    There are sets that some nodes describe wrongly, moves, and elections by the length of logs.
    """
    nodes = {broker: f"{key}-n{broker}" for broker in range(first, first + 3)}
    events = [registered(node, broker) for broker, node in nodes.items()]
    for epoch in range(1, 13, 2):
        members = sorted(rng.sample(list(nodes), rng.choice((1, 2, 3))))
        eligible = [b for b in nodes if b not in members and rng.random() < 0.3]
        leader = rng.choice(members)
        here = {"key": key, "node": rng.choice(list(nodes.values()))}
        events.append(written(0, epoch, -1, members, elr=eligible, **here))
        for broker in (*members, *eligible):
            for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 2))):
                late = rng.choice((0, 0, 0, 0, 0, 0, epoch + 1))
                asked = {"key": key, "controller_epoch": rng.choice((epoch, epoch, epoch, epoch, 99))}
                events.append(recorded(0, nodes[broker], rng.choice((2, 3)), rng.choice((8, 9)), late, **asked))
        others = rng.choice(([], [], [], [first + 1]))
        elected = {**here, "min_insync": rng.choice((1, 2, 2)), "unclean": rng.random() < 0.1, "elr": others}
        events.append(written(0, epoch + 1, leader, [leader], **elected, controller_epoch=epoch))
        seen = rng.choice(([leader], [leader], [leader], members))
        name = rng.choice(("became-leader", "isr-change", "partition-state-read"))
        events.append(said(0, name, epoch + 1, epoch + 1, seen, elr=others, **here))
        ended = {**here, "replicas": rng.choice(([leader], [leader], [leader, 4], [leader + 10]))}
        if rng.random() < 0.5:
            ended["gone"] = rng.choice(([], [5], [5, 6]))
        name = "assignment-written" if "gone" in ended else "reassignment-ended"
        events.append(said(0, name, epoch + 1, epoch + 1, [leader], elr=others, **ended))
    numbered(events)
    for one in events:
        if rng.random() < 0.004:
            one["seq"] += 50
    return events


def two_sets(events: list[Row]) -> set[Found]:
    """(key, version) of which there are two accounts."""
    sets: dict[Found, set[Found]] = {}
    for one in events:
        if one.get("version") is not None:
            sets.setdefault((one["key"], one["version"]), set()).add((one["isr"], one["elr"]))
    return {place for place, accounts in sets.items() if len(accounts) > 1}


def early(events: list[Row]) -> set[Found]:
    """(key, isr) of each step of a move with a replica that is not in sync."""
    found = set()
    for one in events:
        step = one["event"] == "reassignment-ended" or (one["event"] == "assignment-written" and one["gone"])
        if step and not set(ids_of(one, "isr")) >= set(ids_of(one, "replicas")):
            found.add((one["key"], one["isr"]))
    return found


def overlooked(events: list[Row]) -> set[Found]:
    """(key, epoch, node) of each member that was not asked, or had a longer log than the leader."""
    return set(_overlooked(events))


def _overlooked(events: list[Row]) -> Iterator[Found]:
    lines: dict[str, list[int]] = {}
    for one in events:
        lines.setdefault(one["node"], []).append(one["seq"])
    whole = {node for node, seqs in lines.items() if sorted(seqs) == list(range(1, len(seqs) + 1))}
    brokers = {one["value"]: one["node"] for one in events if one["event"] == "registered"}
    writes = [one for one in events if one["event"] == "partition-state-written"]
    for after in writes:
        for before in writes:
            if (before["key"], before["epoch"], before["value"]) != (after["key"], after["epoch"] - 1, -1):
                continue
            members = [*ids_of(before, "isr"), *ids_of(before, "elr")]
            if True in (before["unclean"], after["unclean"]) or after["min_insync"] < 2:
                continue
            if after["value"] < 0 or len(ids_of(after, "isr")) != 1 or len(ids_of(after, "elr")) + 1 >= len(members):
                continue
            ends = {broker: _answers(events, after, brokers[broker]) for broker in members if brokers[broker] in whole}
            own = set(ends.get(after["value"], []))
            for broker, answers in ends.items():
                sure = len(set(answers)) == 1 and len(own) == 1 and max(answers) > max(own)
                if not answers or sure:
                    yield after["key"], after["epoch"], brokers[broker]


def _answers(events: list[Row], state: Row, node: str) -> list[Found]:
    """Returns what this node said of its log to who wrote the state, before it knew the state."""
    asked = (one for one in events if (one["event"], one["node"]) == ("log-end-answered", node))
    return [
        (one["value"], one["position"])
        for one in asked
        if one["key"] == state["key"] and one["epoch"] < state["epoch"]
        and one["controller_epoch"] == state["controller_epoch"]
    ]  # fmt: skip
