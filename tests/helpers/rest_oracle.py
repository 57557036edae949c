"""Finds unfinished changes by loops over looks. The oracle shares nothing with the checks but the definitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from helpers.looks import (
    ALWAYS,
    CREATED,
    KEY,
    SECOND,
    TOPIC,
    WALL_MS,
    Change,
    Row,
    adding,
    all_of,
    changing,
    dead,
    looked,
    packed,
    without,
)

Found = tuple[Any, ...]

FOURTH: tuple[Row, ...] = (
    {"what": "broker", "node": "n4", "broker": 4, "zxid": 14},
    {"what": "answer", "node": "n4"},
    {"what": "role", "node": "n4", "key": KEY, "epoch": 4, "high_watermark": 0},
    {"what": "folder", "node": "n4", "key": KEY, "zxid": CREATED},
)
MOVE: Row = {"what": "move", "key": KEY, "replicas": "1,2,4", "removing": ""}
ROUTED: tuple[Row, ...] = tuple(
    {"what": "routed", "key": key, "node": f"n{n}", "leader": 1, "replicas": "1,2,3", "members": "1,2,3"}
    for n in (1, 2)
    for key in (KEY, "other-0")
)
SEGMENT: Row = {"what": "segment", "node": "n2", "key": KEY}
PASSING: tuple[Change, ...] = (
    adding(MOVE),
    adding({**MOVE, "removing": "3"}),
    adding({"what": "settings", "key": "gone"}),
    adding({"what": "settings", "key": TOPIC}),
    changing("routed", {"leader": 3}, node="n2"),
    changing("role", {"log_end": 140}),
    without("routed", node="n2"),
    changing("routed", {"members": "1,2"}),
    changing("partition", {"replicas": "1,2,4"}),
    changing("partition", {"replicas": "1,2"}),
    changing("partition", {"members": "1"}),
    changing("partition", {"members": "1,2"}),
    changing("partition", {"leader": -1}),
    changing("partition", {"epoch": 5}),
    changing("role", {"epoch": 5}),
    changing("role", {"epoch": 3}, node="n2"),
    without("role", node="n3"),
    without("answer", node="n2"),
    adding({"what": "deletion", "key": TOPIC}),
    adding({"what": "known", "node": "n2", "key": "gone"}),
    adding({"what": "folder", "node": "n2", "key": "gone-3", "zxid": 7}),
    changing("folder", {"zxid": 7}, node="n3"),
    all_of(without("topic"), without("partition")),
    changing("role", {"high_watermark": 30}, node="n2"),
    changing("topic", {"retention_ms": 100_000}),
    changing("topic", {"settings": 78}),
    changing("role", {"settings": 78}),
    changing("role", {"settings": 79}, node="n2"),
    changing("flushed", {"flushed": 100}),
    changing("flushed", {"log_end": 120}),
    changing("flushed", {"flush_ms": 5_000}),
)
FLUSHED: Row = {"what": "flushed", "node": "n2", "key": KEY, "flushed": 90, "log_end": 100, "flush_ms": 1_000}
LASTING: tuple[Change, ...] = (
    adding(*FOURTH),
    adding(FLUSHED),
    adding({**FLUSHED, "flushed": 100, "unsynced": 7}),
    adding(*ROUTED),
    changing("role", {"log_end": 140}),
    all_of(changing("partition", {"replicas": "1,2,4,3"}), adding(MOVE, *FOURTH)),
    without("broker", node="n3"),
    without("broker", node="n1"),
    dead("n3"),
    dead("n1"),
    all_of(
        adding(
            {**SEGMENT, "base_offset": 0, "end_offset": 50, "size": 900, "timestamp": WALL_MS - 4_000},
            {**SEGMENT, "base_offset": 50, "size": 100},
        ),
        changing("topic", {"retention_ms": 5_000}),
    ),
    all_of(
        adding(
            {**SEGMENT, "base_offset": 0, "end_offset": 50, "size": 900, "timestamp": -1},
            {**SEGMENT, "base_offset": 50, "size": 100},
        ),
        changing("topic", {"retention_bytes": 100}),
    ),
)


def random_looks(rng: random.Random, clusters: int, seconds: int) -> list[Row]:
    """Returns looks at many clusters. In each something is wrong, goes wrong, or recovers."""
    stories: list[list[tuple[range, Change]]] = []
    for number in range(clusters):
        story = [(ALWAYS, rng.choice(LASTING)) for _ in range(rng.choice((0, 1)))]
        for _ in range(rng.choice((1, 1, 2))):
            first = rng.choice((0, 0, rng.randrange(seconds)))
            story.append((range(first, rng.choice((99, 99, rng.randrange(seconds + 1)))), rng.choice(PASSING)))
        if number % 7 == 0:
            first, often = (0, 0, 3)[number % 3], (1, 2, 4)[number % 2]
            story += [(range(at, at + 1), rising(4 + at // often)) for at in range(first, seconds + 1)]
        stories.append(story)

    def at(number: int) -> Change:
        return packed([all_of(*(change for when, change in story if number in when)) for story in stories])

    return looked(*((range(number, number + 1), at(number)) for number in range(seconds + 1)), seconds=seconds)


def rising(epoch: int) -> Change:
    return all_of(changing("partition", {"epoch": epoch}), changing("role", {"epoch": epoch}))


def unended(looks: list[Row], deadlines: Mapping[str, int]) -> set[Found]:
    """Anomaly, key and node (None where it is not about one); of each packed cluster by itself."""
    ends = [row for row in looks if row["what"] == "look"]
    clusters: dict[str, list[Row]] = {}
    for row in looks:
        if row["what"] != "look":
            clusters.setdefault((row.get("key") or row["node"]).partition("-")[0], []).append(row)
    return {found for rows in clusters.values() for found in _of_one([*rows, *ends], deadlines)}


def _of_one(looks: list[Row], deadlines: Mapping[str, int]) -> set[Found]:
    by_look: dict[int, list[Row]] = {}
    for row in looks:
        by_look.setdefault(row["look"], []).append(row)
    wrong = [{found for one in RULES for found in one(rows)} for _, rows in sorted(by_look.items())]
    times = [next(row for row in rows if row["what"] == "look") for _, rows in sorted(by_look.items())]
    found = set()
    for one in wrong[-1]:
        since = len(wrong) - 1
        while since and one in wrong[since - 1]:
            since -= 1
        anomaly, key, node, wait, *_ = one
        if times[-1]["time"] - times[since]["ended"] >= deadlines[anomaly] * SECOND + wait:
            found.add((anomaly, key, node))
    keys = {row["key"] for row in of(by_look[max(by_look)], "partition")}
    return found | {("restless-state", key, None) for key in keys if _restless(by_look, key, deadlines)}


def _restless(by_look: dict[int, list[Row]], key: str, deadlines: Mapping[str, int]) -> bool:
    """Did its epoch rise three times from half of the deadline on, and after it, too? Back from the last look."""
    stretch: list[Row] = []
    for _, rows in sorted(by_look.items(), reverse=True):
        (state,) = [row for row in of(rows, "partition") if row["key"] == key] or [None]
        other = (
            stretch and state and (state["zxid"], state["replicas"]) != (stretch[-1]["zxid"], stretch[-1]["replicas"])
        )
        if state is None or other or busy(rows, key):
            break
        stretch.append(state)
    if not stretch:
        return False
    since, deadline = stretch[-1]["ended"], deadlines["restless-state"] * SECOND
    late = [state for state in stretch if state["time"] >= since + deadline / 2]
    before = [state["epoch"] for state in late if state["time"] < since + deadline]
    epochs = [state["epoch"] for state in late]
    return bool(before) and max(epochs) - min(epochs) >= 3 and max(epochs) > max(before)


def ids(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def of(rows: list[Row], what: str) -> Iterator[Row]:
    return (row for row in rows if row["what"] == what)


def topic(key: str) -> str:
    return key.rpartition("-")[0]


def brokers(rows: list[Row]) -> dict[int, str]:
    return {row["broker"]: row["node"] for row in of(rows, "broker")}


def busy(rows: list[Row], key: str) -> bool:
    moving = any(row["key"] == key for row in of(rows, "move"))
    return moving or any(row["key"] == topic(key) for row in of(rows, "deletion"))


def role(rows: list[Row], node: str, key: str) -> Row | None:
    return next((row for row in of(rows, "role") if (row["node"], row["key"]) == (node, key)), None)


def rejoining(rows: list[Row]) -> Iterator[Found]:
    live = brokers(rows)
    for state in of(rows, "partition"):
        for broker in set(ids(state["replicas"])) - set(ids(state["members"])):
            both = [role(rows, live.get(one, ""), state["key"]) for one in (broker, state["leader"])]
            obeying = all(one is not None and one["epoch"] >= state["epoch"] for one in both)
            if obeying and {broker, state["leader"]} <= set(live) and not busy(rows, state["key"]):
                yield "no-rejoin", state["key"], live[broker], 0, state["epoch"], state["leader"]


def registration(rows: list[Row]) -> Iterator[Found]:
    for row in of(rows, "answer"):
        if row["node"] not in brokers(rows).values():
            yield "unregistered", row["node"], row["node"], 0


def obedience(rows: list[Row]) -> Iterator[Found]:
    live = brokers(rows)
    answered = {row["node"] for row in of(rows, "answer")}
    for state in of(rows, "partition"):
        for broker in ids(state["replicas"]):
            if live.get(broker) in answered and not busy(rows, state["key"]):
                known = role(rows, live[broker], state["key"])
                if known is None or known["epoch"] < state["epoch"]:
                    yield "disobeyed-state", state["key"], live[broker], 0, state["epoch"]


def settings(rows: list[Row]) -> Iterator[Found]:
    topics = {row["key"]: row["settings"] for row in of(rows, "topic")}
    for known in of(rows, "role"):
        wanted = topics.get(topic(known["key"]))
        if None not in (wanted, known.get("settings")) and known["settings"] != wanted and not busy(rows, known["key"]):
            yield "disobeyed-settings", known["key"], known["node"], 0, wanted


def moving(rows: list[Row]) -> Iterator[Found]:
    live = brokers(rows)
    states = {row["key"]: row for row in of(rows, "partition")}
    for move in of(rows, "move"):
        state = states.get(move["key"])
        if (
            state is None
            or state["leader"] not in live
            or topic(move["key"]) in {d["key"] for d in of(rows, "deletion")}
        ):
            continue
        if {*ids(move["replicas"]), *ids(move["removing"]), *ids(state["replicas"])} <= set(live):
            yield "unfinished-move", move["key"], None, 0, move["replicas"], move["removing"], state["epoch"]
    for folder in of(rows, "folder"):
        state = states.get(folder["key"])
        if state is None or state["zxid"] != folder["zxid"] or busy(rows, folder["key"]):
            continue
        if folder["node"] in live.values() and folder["node"] not in map(live.get, ids(state["replicas"])):
            yield "unfinished-move", folder["key"], folder["node"], 0, state["replicas"]


def deletion(rows: list[Row]) -> Iterator[Found]:
    live = brokers(rows)
    topics = {row["key"]: row["zxid"] for row in of(rows, "topic")}
    waiting = {topic(row["key"]) for row in of(rows, "move")}
    waiting |= {topic(row["key"]) for row in of(rows, "partition") if not set(ids(row["replicas"])) <= set(live)}
    for asked in of(rows, "deletion"):
        if asked["key"] not in waiting:
            yield "undeleted-topic", asked["key"], None, 0, topics.get(asked["key"])
    for folder in of(rows, "folder"):
        if folder["node"] in live.values() and topics.get(topic(folder["key"])) != folder["zxid"]:
            yield "undeleted-topic", folder["key"], folder["node"], 0, folder["zxid"]
    for known in of(rows, "known"):
        if known["key"] not in topics:
            yield "undeleted-topic", known["key"], known["node"], 0

    for kept in of(rows, "settings"):
        if kept["key"] not in topics:
            yield "undeleted-topic", kept["key"], None, 0


def routing(rows: list[Row]) -> Iterator[Found]:
    live = brokers(rows)
    answered = {row["node"] for row in of(rows, "answer")}
    said = {(row["node"], row["key"]): _routed(row) for row in of(rows, "routed")}
    for state in of(rows, "partition"):
        for broker, node in live.items():
            if node in answered and state["leader"] in live and not busy(rows, state["key"]):
                silent = broker not in ids(state["replicas"]) or node not in {one for one, _ in said}
                if said.get((node, state["key"]), _routed(state) if silent else None) != _routed(state):
                    yield "stale-metadata", state["key"], node, 0, *_routed(state)


def marks(rows: list[Row]) -> Iterator[Found]:
    live = brokers(rows)
    for state in of(rows, "partition"):
        known = role(rows, live.get(state["leader"], ""), state["key"])
        if known is None or known["epoch"] != state["epoch"] or busy(rows, state["key"]):
            continue
        if (
            len(ids(state["members"])) == len(ids(state["replicas"]))
            and known.get("log_end", 0) > known["high_watermark"]
        ):
            yield "late-high-watermark", state["key"], known["node"], 0, state["epoch"], known["high_watermark"]


def flushing(rows: list[Row]) -> Iterator[Found]:
    for log in of(rows, "flushed"):
        if (log["flushed"] < log["log_end"] or log.get("unsynced")) and not busy(rows, log["key"]):
            yield "late-flush", log["key"], log["node"], log["flush_ms"] * 1_000_000, log["log_end"], log["flush_ms"]


def _routed(row: Row) -> tuple[Any, ...]:
    return row["leader"], row["replicas"], row["members"]


def retention(rows: list[Row]) -> Iterator[Found]:
    live = brokers(rows)
    (now,) = (row["wall_ms"] for row in of(rows, "look"))
    limits = {row["key"]: row for row in of(rows, "topic")}
    states = {row["key"]: row for row in of(rows, "partition")}
    logs: dict[tuple[str, str], list[Row]] = {}
    for segment in of(rows, "segment"):
        logs.setdefault((segment["node"], segment["key"]), []).append(segment)
    for (node, key), segments in logs.items():
        oldest, *others = sorted(segments, key=lambda one: int(one["base_offset"]))
        limit, state, known = limits.get(topic(key)), states.get(key), role(rows, node, key)
        if limit is None or state is None or known is None or not others or busy(rows, key):
            continue
        made = [row["zxid"] for row in of(rows, "folder") if (row["node"], row["key"]) == (node, key)]
        if state["leader"] not in live or made != [limit["zxid"]] or known["high_watermark"] < oldest["end_offset"]:
            continue
        kept, check, size = limit["retention_ms"], limit["retention_check_ms"], limit["retention_bytes"]
        old = kept >= 0 and 0 <= oldest["timestamp"] < now - kept - check
        much = 0 <= size <= sum(one["size"] for one in others)
        if old or much:
            yield "retention-undone", key, node, 0 if old else check * 1_000_000, kept, size


RULES: tuple[Callable[[list[Row]], Iterator[Found]], ...] = (
    registration,
    rejoining,
    obedience,
    settings,
    routing,
    marks,
    flushing,
    moving,
    deletion,
    retention,
)
