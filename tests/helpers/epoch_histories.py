"""Events of leaders and replicas on disks at random, and what is wrong with them by looking at every pair."""

from __future__ import annotations

import random
from typing import Any

from helpers.log_histories import Row, effect

S = 1_000_000_000


def event(seq: int, name: str, epoch: int, **given: Any) -> Row:
    return {
        "time": seq * S, "node": "n1", "incarnation": 1, "seq": seq, "event": name, "key": "t-0", "epoch": epoch,
        "detail": "{}", **given,
    }  # fmt: skip


def began(seq: int, epoch: int, position: int, mark: int, **given: Any) -> Row:
    return event(seq, "became-leader", epoch, position=position, high_watermark=mark, **given)


def mark(seq: int, epoch: int, high_watermark: int, **given: Any) -> Row:
    return event(seq, "high-watermark", epoch, high_watermark=high_watermark, **given)


def joined(seq: int, epoch: int, position: int, mark: int, **given: Any) -> Row:
    return event(seq, "isr-change", epoch, position=position, high_watermark=mark, **given)


def end(op: int, position: int, epoch: int | None, key: str = "t-0") -> Row:
    return effect(op, 0, "end", key, op * S, op * S + 1, position=position, leader_epoch=epoch, process=op)


def record(node: str, position: int, epoch: int, start: int, **given: Any) -> Row:
    return {
        "node": node, "key": "t-0", "position": position, "value": position, "crc": 1, "epoch": epoch,
        "epoch_start": start, "below_hw": True, "in_isr": True, **given,
    }  # fmt: skip


def log_end(node: str, position: int, log_start: int | None, high_watermark: int, **given: Any) -> Row:
    return {
        "node": node, "key": "t-0", "position": position, "below_hw": False, "in_isr": True, "log_start": log_start,
        "high_watermark": high_watermark, **given,
    }  # fmt: skip


def replica(node: str, starts: dict[int, int], first: int, end: int, **given: Any) -> list[Row]:
    """A whole log, all of which counts; ``starts``: of its epochs."""
    own = [
        record(node, position, *max((start, epoch) for epoch, start in starts.items() if start <= position)[::-1])
        for position in range(first, end)
    ]
    return [*(row | given for row in own), log_end(node, end, first, end, **given)]


def ack(op: int, position: int, node: str, key: str = "t-0", epoch: int | None = None) -> Row:
    times = op * S, op * S + 1
    return effect(op, 0, "append", key, *times, position=position, value=op, node=node, leader_epoch=epoch, process=op)


def shown(op: int, position: int, node: str, key: str = "t-0") -> Row:
    times = op * S, op * S + 1
    return effect(op, 0, "observe", key, *times, position=position, value=position, node=node, process=op)


def terms(key: str, rng: random.Random, first_op: int) -> tuple[list[Row], list[Row]]:
    """Events of epochs that begin further and further on, most of the time, and what clients were answered."""
    events: list[Row] = []
    answers: list[Row] = []
    position, lives = 0, rng.choice((1, 1, 2))
    for epoch in range(6):
        op = first_op + 3 * epoch
        life = key if rng.randint(1, lives) == 1 else key.replace("-", "#2-")
        node = f"n{first_op}-{rng.randint(0, 2)}"
        position = max(0, position + rng.choice((4, 4, 4, -1)))
        if rng.random() < 0.9:
            known = max(0, position - rng.randint(0, 3))
            events.append(began(0, epoch, position, known, key=life, node=node))
        if rng.random() < 0.4:
            at = position + rng.randint(-1, 3)
            events.append(joined(0, epoch, at, at - rng.randint(-1, 5), key=life, node=node))
        if rng.random() < 0.7:
            events.append(mark(0, epoch, position + rng.randint(0, 3), key=life, node=node))
        if rng.random() < 0.5:
            answers.append(end(op, position + rng.randint(0, 4), rng.choice((epoch, epoch, None)), key=key))
        if rng.random() < 0.6:
            known_epoch = rng.choice((None, None, epoch))
            answers.append(ack(op + 1, position + rng.randint(0, 4), node, key=key, epoch=known_epoch))
        if rng.random() < 0.3:
            answers.append(shown(op + 2, position + rng.randint(-4, 4), node, key=key))
    for node in {one["node"] for one in events}:
        for number, one in enumerate([one for one in events if one["node"] == node], 1):
            one["seq"] = number if rng.random() < 0.95 else number + 9
    return events, answers


def committed(events: list[Row], answers: list[Row]) -> list[tuple[str, int, int]]:
    """Key, epoch, and how far the log was committed in it."""
    leaders = [one for one in events if one["event"] == "became-leader"]
    marks = [(one["key"], one["epoch"], one["high_watermark"]) for one in events if one["event"] != "isr-change"]
    if {one["key"] for one in leaders} == {one["key"] for one in answers}:
        for one in answers:
            epoch = one["leader_epoch"]
            mine = [line for line in events if line["node"] == one["node"]]
            whole = sorted(line["seq"] for line in mine) == list(range(1, len(mine) + 1))
            if epoch is None and one["kind"] == "append" and whole:
                epoch = max((line["epoch"] for line in mine if line["event"] == "became-leader"
                             and line["position"] <= one["position"]), default=None)  # fmt: skip
            if one["kind"] == "observe" and whole:
                epoch = max((line["epoch"] for line in mine if line["event"] == "became-leader"), default=None)
            if epoch is not None:
                marks.append((one["key"], epoch, one["position"] + (one["kind"] in ("append", "observe"))))
    return marks


def incomplete(events: list[Row], answers: list[Row]) -> set[tuple[Any, ...]]:
    """(key, epoch) of each leader that began below what an earlier epoch had."""
    marks = committed(events, answers)
    return {
        (late["key"], late["epoch"])
        for late in events
        if late["event"] == "became-leader"
        and any(key == late["key"] and epoch < late["epoch"] and at > late["position"] for key, epoch, at in marks)
    }


def premature(events: list[Row], answers: list[Row]) -> set[tuple[Any, ...]]:
    """(key, epoch, position) of each replica that joined below what its leader, or an earlier epoch, had."""
    marks = committed(events, answers)
    begun = {(one["key"], one["epoch"]) for one in events if one["event"] == "became-leader"}
    found = set()
    for one in events:
        if one["event"] == "isr-change":
            place = one["key"], one["epoch"]
            known = [at for key, epoch, at in marks if place in begun and key == place[0] and epoch < place[1]]
            if max([one["high_watermark"], *known]) > one["position"]:
                found.add((*place, one["position"]))
    return found


def disks(key: str, rng: random.Random) -> list[Row]:
    """Three replicas of a log of twenty records, with their own starts, holes, and epochs."""
    rows = []
    for node in ("n1", "n2", "n3"):
        starts = {0: 0, 1: 6, 3: 12}
        if rng.random() < 0.2:
            starts[rng.choice((1, 3))] += rng.choice((-1, 1))
        first, last = rng.choice((0, 0, 3, 7)), rng.choice((20, 20, 18))
        cut = {epoch: max(start, first) for epoch, start in starts.items()}
        own = replica(node, cut, first, last, in_isr=rng.random() < 0.9)
        own[-1]["high_watermark"] = rng.choice((last, last - 4, 20))
        own[-1]["log_start"] = rng.choice((first, first, None))
        for row in own[:-1]:
            row["below_hw"] = row["position"] < rng.choice((16, 25))
        while len(own) > 4 and rng.random() < 0.15:
            own.remove(rng.choice(own[:-1]))
        rows += [row | {"key": key} for row in own]
    return rows


def divergent(rows: list[Row]) -> set[tuple[Any, ...]]:
    """(key, epoch) of the starts that two replicas do not agree on, above what both have lost, if they have."""
    firsts: dict[str, int] = {}
    for row in rows:
        firsts[row["node"]] = min(row["position"], firsts.get(row["node"], row["position"]))
    found = set()
    counted = [row for row in rows if row["below_hw"] and row.get("epoch_start") is not None]
    for one in counted:
        for other in counted:
            if one["epoch"] == other["epoch"] and one["epoch_start"] != other["epoch_start"]:
                both = max(firsts[one["node"]], firsts[other["node"]])
                if both == 0 or min(one["epoch_start"], other["epoch_start"]) > both:
                    found.add((one["key"], one["epoch"]))
    return found


def holes(rows: list[Row]) -> set[tuple[Any, ...]]:
    """(key, node, first offset, how many) that members lack."""
    records = [row for row in rows if row.get("high_watermark") is None]
    found = set()
    for last in rows:
        if last.get("high_watermark") is None or not last["in_isr"] or last["log_start"] is None:
            continue
        own = {row["position"] for row in records if row["node"] == last["node"]}
        wanted = range(last["log_start"], last["high_watermark"])
        missing = {row["position"] for row in records if row["position"] in wanted} - own
        if missing:
            found.add((last["key"], last["node"], min(missing), len(missing)))
    return found


def keyed(op: int, value: int, position: int | None, message_key: str, key: str = "t-0", **given: Any) -> Row:
    """A send with a key, of which the outcome is not known where it has no position."""
    known: Row = {"outcome": "info"} if position is None else {"position": position}
    ret = None if position is None else op * S + 1
    return effect(op, 0, "append", key, op * S, ret, value=value, message_key=message_key, process=op, **known, **given)


def compacted_disks(key: str, rng: random.Random, first_op: int) -> tuple[list[Row], list[Row]]:
    """Twelve sends of four keys, some of them tombstones, and what three replicas have left of them."""
    sends = []
    for value in range(12):
        tombstone = {"tombstone": rng.choice((True, True, False, None))} if rng.random() < 0.05 else {}
        known = value if rng.random() < 0.9 else None
        sends.append(keyed(first_op + value, value, known, f"k{rng.randrange(4)}", key, **tombstone))
    rows = []
    for node in ("n1", "n2", "n3"):
        in_isr, mark = rng.random() < 0.9, rng.choice((12, 12, 10))
        for send in sends:
            later = any(o["message_key"] == send["message_key"] and o["value"] > send["value"] for o in sends)
            if rng.random() < (0.5 if later else 0.97):
                place = send["value"]
                rows.append(record(node, place, 0, 0, key=key, in_isr=in_isr, below_hw=place < mark))
        rows.append(log_end(node, 12, None, mark, key=key, in_isr=in_isr))
    return sends, rows


def lost_last(sends: list[Row], rows: list[Row]) -> set[tuple[Any, ...]]:
    """(key, node, offset) of each last value that a member lacks and another has."""
    mortal = {send["message_key"] for send in sends if send["tombstone"]}
    names = {send["value"]: send["message_key"] for send in sends}
    held = [row for row in rows if row["below_hw"] and row["in_isr"] and names[row["value"]] not in mortal]
    members = {row["node"] for row in rows if row.get("high_watermark") is not None and row["in_isr"]}
    last: dict[str, int] = {}
    for row in held:
        name = names[row["value"]]
        last[name] = max(row["position"], last.get(name, -1))
    having = {(row["node"], row["position"]) for row in held}
    return {(rows[0]["key"], node, at) for at in last.values() for node in members if (node, at) not in having}
