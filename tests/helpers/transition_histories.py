"""Steps of the controller's state machines at random, legal but for some, and which of them are not by a walk."""

from __future__ import annotations

import random
from typing import Any

from helpers.epoch_histories import event
from helpers.log_histories import Row

Found = tuple[Any, ...]

PARTITION = {"": "New Online Offline", "NonExistent": "New", "New": "Online Offline", "Online": "Online Offline",
             "Offline": "Online Offline NonExistent"}  # fmt: skip
REPLICA = {
    "": "Online Offline",
    "NonExistent": "New",
    "New": "Online Offline",
    "Online": "Online Offline",
    "Offline": "Online Offline ReplicaDeletionStarted",
    "ReplicaDeletionStarted": "ReplicaDeletionSuccessful ReplicaDeletionIneligible",
    "ReplicaDeletionIneligible": "Online Offline",
    "ReplicaDeletionSuccessful": "NonExistent",
}


def step(seq: int, former: str | None, now: str, *, replica: int | None = None, epoch: int = 1, **given: Any) -> Row:
    """Returns a transition of the partition, or of this replica of it, in this controller epoch."""
    name = "partition-transition" if replica is None else "replica-transition"
    states = {"replica": replica, "from_state": former, "to_state": now}
    return event(seq, name, 0, **{**states, "controller_epoch": epoch, **given})


def leaderless(seq: int, *, leader: int = -1, epoch: int = 1, **given: Any) -> Row:
    return event(seq, "partition-state-written", 7, value=leader, controller_epoch=epoch, **given)


def steps(key: str, rng: random.Random) -> list[Row]:
    """Returns the events of a partition and two replicas on a node of its own, in two controller epochs."""
    events: list[Row] = []
    for epoch in (1, 2):
        states = {None: "", 1: "", 2: ""}
        for _ in range(40):
            replica = rng.choice(list(states))
            former = states[replica]
            legal = PARTITION if replica is None else REPLICA
            now = rng.choice(legal.get(former, "Offline").split())
            if rng.random() < 0.02:
                now = rng.choice(["Stopped", *filter(None, legal)])
            said: str | None = former or None
            if rng.random() < 0.02:
                said = rng.choice([None, "New", "Online", "Offline"])
            states[replica] = now
            events.append(step(0, said, now, replica=replica, epoch=epoch, key=key, node=f"{key}-n"))
            if rng.random() < 0.05:
                leader = rng.choice((-1, -1, 1))
                events.append(leaderless(0, leader=leader, epoch=epoch, key=key, node=f"{key}-n"))
    seq = 0
    for one in events:
        seq += 1 if rng.random() > 0.02 else 2
        one["seq"] = seq
    return events


def illegal(events: list[Row]) -> set[Found]:
    """(key, seq) of each step that no one may take."""
    found: set[Found] = set()
    last: dict[Found, Row] = {}
    for at, one in enumerate(events):
        if one["event"] == "partition-state-written":
            continue
        name = one["key"], one["controller_epoch"], one["replica"]
        former, now = one["from_state"], one["to_state"]
        legal = PARTITION if one["replica"] is None else REPLICA
        if (former is None and now not in legal) or (former is not None and now not in legal.get(former, "").split()):
            found.add((one["key"], one["seq"]))
        if name in last:
            before = last[name]
            between = events[events.index(before) + 1 : at]
            unbroken = one["seq"] - before["seq"] == len([e for e in between if e["node"] == one["node"]]) + 1
            no_leader = [e for e in between if e["event"] == "partition-state-written" and e["value"] < 0
                         and e["controller_epoch"] == one["controller_epoch"]]  # fmt: skip
            passed = one["replica"] is None and before["to_state"] == "Online" and now != "Offline" and no_leader
            if former is None or (unbroken and (former != before["to_state"] or passed)):
                found.add((one["key"], one["seq"]))
        last[name] = one
    return found
