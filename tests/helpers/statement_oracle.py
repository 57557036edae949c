"""Judges statements of clients about a log by brute force over one key, from the definitions, without the SQL."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from helpers.log_histories import Row
from helpers.oracle import FOREVER, Judge

BASE = 1_000
"""The first create time."""
TIMES = 20
FAR = 10_000_000


def recorded(rows: list[Row], rng: random.Random, number: int) -> list[Row]:
    """The rows with times, keys and epochs, look-ups by time among them, and values of their own."""
    rows = [dict(row) for row in rows]
    for row in rows:
        row["call"], row["ret"] = 10 * row["call"], None if row["ret"] is None else 10 * row["ret"]
        if row["value"] is not None:
            row["value"] += number * FAR
    times = {row["value"]: BASE + rng.randrange(TIMES) for row in rows}
    keys = {row["value"]: row["message_key"] for row in rows if row["kind"] == "append"}
    for row in rows:
        if row["kind"] in ("append", "observe"):
            late = rng.random() < 0.02
            row["timestamp"] = None if rng.random() < 0.03 else times[row["value"]] + late
            row["message_key"] = keys.get(row["value"])
            row["leader_epoch"] = rng.choice((None, 1, 1, 2))
    last = max((row["call"] for row in rows), default=0)
    ends = [row["position"] for row in rows if row["position"] is not None]
    for extra in range(rng.randrange(6)):
        call = 10 * rng.randrange(last // 10 + 1) + 3
        answer = rng.choice((None, *ends)) if ends else None
        about = {"kind": "look-up", "position": answer, "timestamp": BASE + rng.randint(-1, TIMES)}
        if rng.random() < 0.3:
            about = {"kind": "start", "position": rng.randrange(3)}
        rows.append(
            {
                **dict.fromkeys(rows[0]),
                "op": rows[0]["op"] + 9_000 + extra, "sub": 0, "key": rows[0]["key"], "call": call, "ret": call + 4,
                "process": 9_000 + extra, "outcome": "ok", "phase": "main", **about,
            }
        )  # fmt: skip
    for row in rows:
        if row["kind"] == "start":
            row.update(
                node=rng.choice(("n1", "n1", "n2")),
                incarnation=rng.choice((1, 1, 2)),
                leader_epoch=rng.choice((1, None)),
            )
    return rows


class Witness(Judge):
    """The anomalies of the family ``statements`` that one key's rows show, as (anomaly, instance)."""

    def statements(self) -> set[tuple[str, Any]]:
        finders = {
            "misplaced-ack": self.misplaced, "offset-hole": self.holes, "position-jump": self.jumps,
            "altered-record": self.altered, "log-start-regression": self.starts, "end-too-low": self.low_ends,
            "time-look-up": self.look_ups, "look-up-order": self.falling_look_ups, "answer-beyond-log": self.beyond,
        }  # fmt: skip
        return {(name, instance) for name, finder in finders.items() for instance in finder()}

    def misplaced(self) -> set[Any]:
        shown = {(row["value"], row["position"]) for row in self.seen}
        return {
            (send["value"], send["position"])
            for send in self.acked
            if send["value"] in self.seen_values()
            and (send["value"], send["position"]) not in shown
            and self.gone(send["value"], send["position"])
        }

    def holes(self) -> set[int]:
        found: set[int] = set()
        for poll in () if self.compacted else self.polls:
            shown = {row["position"] for row in poll.records}
            ends = [row["position"] for row in poll.rows if row["kind"] == "observe-end"]
            if not ends or poll.rows[0]["position"] is None or poll.rows[0]["position"] < 0:
                continue
            base = max(poll.rows[0]["position"], self.log_start)
            for offset in range(base, min(ends)):
                first = offset == base or offset - 1 in shown
                if poll.passed(offset) and offset not in shown and first and offset not in self.offsets():
                    found.add(offset)
        return found

    def jumps(self) -> set[Any]:
        ops = {row["op"]: row for row in self.rows}
        kinds = ("observe-begin", "observe-end", "seek", "reset")
        moves = [row for row in self.rows if row["kind"] in kinds and row["position"] is not None]
        chains: dict[Any, list[Row]] = {}
        for row in sorted(moves, key=lambda row: (row["call"], row["op"], row["sub"])):
            chains.setdefault((row["process"], row["assignment"]), []).append(row)
        found = set()
        for chain in chains.values():
            for x, y in pairwise(chain):
                both = (
                    x["kind"] == "observe-end" and y["kind"] == "observe-begin" and x["outcome"] == y["outcome"] == "ok"
                )
                between = [
                    o for o in ops.values()
                    if o["process"] == y["process"] and o["kind"] == ops[y["op"]]["kind"] and o["outcome"] != "ok"
                    and x["call"] < o["call"] < y["call"]
                ]  # fmt: skip
                if both and x["position"] != y["position"] and not between:
                    found.add((y["op"], y["sub"]))
        return found

    def altered(self) -> set[Any]:
        found = set()
        for row in self.seen:
            live = [send for send in self.sends_of(row["value"]) if send["outcome"] != "fail"]
            times = [send["timestamp"] for send in live]
            twins = [
                one["timestamp"] for one in self.seen
                if (one["value"], one["position"]) == (row["value"], row["position"]) and one["timestamp"] is not None
            ]  # fmt: skip
            if row["value"] is None or row["timestamp"] is None:
                continue
            if (live and None not in times and row["timestamp"] not in times) or len(set(twins)) > 1:
                found.add((row["value"], row["position"]))
        return found

    def starts(self) -> set[Any]:
        where = ("node", "incarnation", "leader_epoch")
        rows = [
            row for row in self.rows
            if row["kind"] == "start" and row["outcome"] == "ok" and row["ret"] is not None
            and all(row[name] is not None for name in where)
        ]  # fmt: skip
        return {
            (y["op"], y["sub"]) for x in rows for y in rows
            if all(x[name] == y[name] for name in where) and x["ret"] < y["call"] and x["position"] > y["position"]
        }  # fmt: skip

    def low_ends(self) -> set[Any]:
        if self.linearizable_ends:
            return set()
        sure = [
            row
            for row in self.rows
            if row["outcome"] == "ok" and row["ret"] is not None and row["leader_epoch"] is not None
        ]
        known = [row for row in sure if row["kind"] in ("append", "observe") and row["position"] is not None]
        return {
            (end["op"], end["sub"]) for end in sure for row in known
            if end["kind"] == "end" and row["leader_epoch"] <= end["leader_epoch"] and row["ret"] < end["call"]
            and row["position"] >= end["position"]
        }  # fmt: skip

    def look_ups(self) -> set[Any]:
        dated = []
        for value, offset in {(row["value"], row["position"]) for row in self.seen if row["value"] is not None}:
            mine = [row for row in self.seen if (row["value"], row["position"]) == (value, offset)]
            times = {row["timestamp"] for row in mine} - {None}
            rets = [row["ret"] for row in (*mine, *self.acked) if (row["value"], row["position"]) == (value, offset)]
            if len(times) == 1:
                known = min(FOREVER if ret is None else ret for ret in rets)
                dated.append((offset, times.pop(), known, self.judged(offset) and not self.compacted))
        found = set()
        for asked in (row for row in self.rows if row["kind"] == "look-up"):
            answer, time = asked["position"], asked["timestamp"]
            there = [created for offset, created, _, _ in dated if offset == answer]
            if there and max(there) < time:
                found.add((asked["op"], 0))
            if answer is None and not self.linearizable_ends:
                continue
            if any(
                judged and created >= time and known < asked["call"] and (answer is None or offset < answer)
                for offset, created, known, judged in dated
            ):
                found.add((asked["op"], 1))
        return found

    def answered(self) -> list[Row]:
        kinds = ("look-up", "start", "end", "append")
        return [
            row for row in self.rows
            if row["kind"] in kinds and row["outcome"] == "ok" and row["ret"] is not None
            and row["position"] is not None
        ]  # fmt: skip

    def falling_look_ups(self) -> set[Any]:
        asked = [row for row in self.answered() if row["kind"] == "look-up"]
        return {
            (low["op"], low["sub"]) for low in asked for high in asked
            if not self.compacted and high["timestamp"] <= low["timestamp"] and high["position"] > low["position"]
        }  # fmt: skip

    def beyond(self) -> set[Any]:
        """Finds answers that a later answer contradicts, because it shows a shorter log."""
        found = set()
        for said in self.answered():
            if said["kind"] not in ("start", "look-up") or not self.linearizable_ends:
                continue
            end = said["position"] + (said["kind"] == "look-up")
            after = [row for row in self.answered() if row["kind"] in ("end", "append") and row["call"] > said["ret"]]
            if any(row["position"] < end for row in after):
                found.add((said["op"], said["sub"]))
        return found
