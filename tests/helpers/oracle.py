"""The definitions of ANOMALIES, in plain Python, by brute force over one key: loops over pairs, no index, no ranks.

Written from the definitions and independently of the SQL. Answers are sets of (anomaly, instance).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations, product
from typing import Any

Row = dict[str, Any]
Found = set[tuple[str, Any]]
FOREVER = float("inf")


class Poll:
    """A poll of an operation, from its begin to its end."""

    def __init__(self, begin: Row) -> None:
        self.rows: list[Row] = [begin]

    @property
    def records(self) -> list[Row]:
        return [row for row in self.rows if row["kind"] == "observe"]

    def passed(self, offset: int) -> bool:
        if any(row["outcome"] != "ok" for row in self.rows):
            return False
        ends = [row["position"] for row in self.rows if row["kind"] == "observe-end"]
        begin = self.rows[0]["position"]
        return bool(ends) and begin is not None and begin <= offset < min(ends)

    def showed(self, value: int, offset: int) -> bool:
        return any(row["value"] == value and row["position"] == offset for row in self.records)


def polls(rows: Sequence[Row]) -> list[Poll]:
    found: list[Poll] = []
    for op in sorted({row["op"] for row in rows}):
        current: Poll | None = None
        for row in sorted((row for row in rows if row["op"] == op), key=lambda row: row["sub"]):
            if row["kind"] == "observe-begin":
                current = Poll(row)
                found.append(current)
            elif row["kind"] in ("observe", "observe-end") and current is not None:
                current.rows.append(row)
    return found


class Judge:
    """All anomalies of one key's rows."""

    def __init__(self, rows: Sequence[Row], *, linearizable_ends: bool = False, compacted: bool = False) -> None:
        self.rows = list(rows)
        self.sends = [row for row in rows if row["kind"] == "append"]
        self.seen = [row for row in rows if row["kind"] == "observe"]
        self.acked = [row for row in self.sends if row["outcome"] == "ok" and row["position"] is not None]
        self.polls = polls(rows)
        self.linearizable_ends, self.compacted = linearizable_ends, compacted
        self.lasting_tombstones = False
        self.log_start = max((r["position"] for r in rows if r["kind"] == "start"), default=0)

    def found(self) -> Found:
        return {
            (name.removeprefix("find_").replace("_", "-"), instance)
            for name in dir(self)
            if name.startswith("find_")
            for instance in getattr(self, name)()
        }

    def offsets(self) -> set[int]:
        return {row["position"] for row in (*self.acked, *self.seen)}

    def offsets_of(self, value: int) -> set[int]:
        return {row["position"] for row in (*self.acked, *self.seen) if row["value"] == value}

    def values(self) -> set[int]:
        return {row["value"] for row in (*self.sends, *self.seen) if row["value"] is not None}

    def sends_of(self, value: int | None) -> list[Row]:
        return [row for row in self.sends if row["value"] == value]

    def seen_values(self) -> set[int | None]:
        return {row["value"] for row in self.seen}

    def judged(self, offset: int) -> bool:
        """Below a reported log start nothing is judged; of a compacted log only the last value per message key,
        and no tombstone, unless they last."""
        if offset < self.log_start:
            return False
        if not self.compacted:
            return True
        for value in self.values():
            for send in self.sends_of(value):
                if send["outcome"] == "fail" or send["message_key"] is None or offset not in self.offsets_of(value):
                    continue
                if send["tombstone"] and not self.lasting_tombstones:
                    continue
                same = [s for s in self.sends if s["message_key"] == send["message_key"] and s["outcome"] != "fail"]
                if all(self._all_placed(s["value"]) for s in same) and all(
                    other <= offset for s in same for other in self.offsets_of(s["value"])
                ):
                    return True
        return False

    def _all_placed(self, value: int | None) -> bool:
        """Each send of the value that may have happened has an offset of its own."""
        return len(self.offsets_of(value)) >= sum(s["outcome"] != "fail" for s in self.sends_of(value))

    def find_inconsistent_offset(self) -> set[int]:
        pairs = [(row["position"], row["value"]) for row in (*self.acked, *self.seen)]
        return {o for o, v in pairs for p, w in pairs if o == p and v != w}

    def find_duplicate(self) -> set[int]:
        """Each live send of a value may account for one offset."""
        return {
            value
            for value in self.values()
            if len(self.offsets_of(value)) > max(1, sum(s["outcome"] != "fail" for s in self.sends_of(value)))
        }

    def find_aborted_read(self) -> set[int | None]:
        return {
            value
            for value in self.seen_values()
            if self.sends_of(value) and all(send["outcome"] == "fail" for send in self.sends_of(value))
        }

    def find_phantom(self) -> set[int | None]:
        return {value for value in self.seen_values() if not self.sends_of(value)}

    def gone(self, value: int, offset: int) -> bool:
        if not self.judged(offset):
            return False
        if any(poll.passed(offset) and not poll.showed(value, offset) for poll in self.polls):
            return True
        ends = [r["position"] for r in self.rows if r["kind"] == "drained" and r["outcome"] == "ok"]
        settled = max(ends, default=None)
        if settled is None or offset < settled:
            return False
        sentinels = [s["call"] for s in self.acked if s["phase"] == "sentinel" and s["position"] == settled - 1]
        there = [_ret(r) for r in (*self.acked, *self.seen) if (r["value"], r["position"]) == (value, offset)]
        return bool(sentinels) and any(ret < min(sentinels) for ret in there)

    def find_lost_write(self) -> set[tuple[int, int]]:
        return {
            (send["value"], send["position"])
            for send in self.acked
            if send["value"] not in self.seen_values()
            and (send["position"] < 0 or self.gone(send["value"], send["position"]))
        }

    def find_vanished(self) -> set[tuple[int, int]]:
        return {
            (row["value"], row["position"])
            for row in self.seen
            if row["value"] is not None and self.gone(row["value"], row["position"])
        }

    def find_unseen(self) -> set[tuple[int, int | None]]:
        final = min((row["call"] for row in self.rows if row["phase"] in ("sentinel", "drain")), default=None)
        if final is None:
            return set()
        drained = {row["value"] for row in self.seen if row["phase"] == "drain"}
        begins = [row["position"] for row in self.rows if row["kind"] == "observe-begin" and row["phase"] == "drain"]
        lowest = min((begin for begin in begins if begin is not None), default=0)
        found = set()
        for send in self.sends:
            value, offset = send["value"], send["position"]
            due = send["outcome"] == "ok" and (_ret(send) < final or send["phase"] == "sentinel")
            if not due or value in drained or (self.log_start if offset is None else offset) < lowest:
                continue
            if offset is None:
                if self.log_start <= 0 and not self.compacted:
                    found.add((value, None))
            elif self.judged(offset) and not self.gone(value, offset):
                found.add((value, offset))
        return found

    def timeline(self) -> list[tuple[int, float, float, float]]:
        """(place, call, ret, first poll's ret) of each (value, offset), and of end reads where they count."""
        rows = []
        for value in self.values():
            for offset in self.offsets_of(value):
                acks = [s for s in self.acked if (s["value"], s["position"]) == (value, offset)]
                live = [s for s in self.sends_of(value) if s["outcome"] != "fail"]
                writers = acks or live or self.sends_of(value)
                shown = [r for r in self.seen if (r["value"], r["position"]) == (value, offset)]
                call = min((s["call"] for s in writers), default=-FOREVER)
                seen = min((_ret(r) for r in shown), default=FOREVER)
                known = [seen, *map(_ret, acks)]
                if len(live) == 1 and offset == min(self.offsets_of(value)):  # an answer without an offset means it
                    known += [_ret(s) for s in live if s["outcome"] == "ok"]
                rows.append((2 * offset, call, min(known), seen))
        if self.linearizable_ends:
            rows += [
                (2 * r["position"] - 1, r["call"], r["ret"], FOREVER)
                for r in self.rows
                if r["kind"] == "end" and r["outcome"] == "ok" and r["ret"] is not None
            ]
        return rows

    def find_real_time_order(self) -> set[int]:
        rows = self.timeline()
        overtaken = {x[0] for x in rows for y in rows if y[0] < x[0] and y[1] > x[2]}
        return overtaken | {x[0] for x in rows if x[3] < x[1]}

    def linearizable(self) -> bool:
        """Tries every order of the records: places rise, and no one is put before one that returned before its call."""
        rows = self.timeline()
        if any(ret < call for _, call, ret, _ in rows):
            return False
        return any(
            all(x[0] <= y[0] and not y[2] < x[1] for i, x in enumerate(order) for y in order[i + 1 :])
            for order in permutations(rows)
        )

    def find_nonmonotonic_send(self) -> set[tuple[int, int]]:
        found = set()
        for process in {row["process"] for row in self.acked}:
            mine = sorted((r for r in self.acked if r["process"] == process), key=_order)
            found |= {_id(y) for x, y in pairwise(mine) if y["position"] < x["position"]}
        return found

    def find_send_skip(self) -> set[tuple[int, int]]:
        found = set()
        for request in {row["request"] for row in self.sends} - {None}:
            mine = sorted((r for r in self.sends if r["request"] == request), key=lambda r: (r["op"], r["sub"]))
            for x, y in pairwise(mine):
                doubtful = y["outcome"] == "info" or (y["outcome"] == "ok" and y["position"] is None)
                if doubtful and not self.compacted and self._torn(x["value"], y["value"]):
                    found.add(_id(y))
                if x not in self.acked or y not in self.acked:
                    continue
                low, high = x["position"], y["position"]
                if high <= low or any(low < offset < high for offset in self.offsets()):
                    found.add(_id(y))
        return found

    def _torn(self, first: int, second: int) -> bool:
        """Whether the second of a set stands somewhere without the first before it."""
        for row in self.seen:
            place = row["position"]
            if row["value"] != second or place < self.log_start:
                continue
            before = {one["value"] for one in (*self.acked, *self.seen) if one["position"] == place - 1} - {None}
            if (before or place == 0) and first not in before:
                return True
        return False

    def chains(self) -> list[list[Row]]:
        kinds = ("observe", "observe-begin", "seek", "reset")
        mine = [row for row in self.rows if row["kind"] in kinds]
        chains: list[list[Row]] = []
        for process, assignment in product({r["process"] for r in mine}, {r["assignment"] for r in mine}):
            chain: list[Row] = []
            steps = [r for r in mine if (r["process"], r["assignment"]) == (process, assignment)]
            for row in sorted(steps, key=_order):
                if row["kind"] == "observe" and row["outcome"] != "ok":
                    chains.append(chain)
                    chain = []
                else:
                    chain.append(row)
            chains.append(chain)
        return chains

    def steps(self) -> list[tuple[int, Row]]:
        """(offset of the predecessor, the next record); the predecessor of the first is just below what was sought."""
        found = []
        for chain in self.chains():
            before = next((row["position"] - 1 for row in chain if row["kind"] != "observe"), None)
            for row in chain:
                if row["kind"] == "observe":
                    if before is not None:
                        found.append((before, row))
                    before = row["position"]
        return found

    def find_nonmonotonic_poll(self) -> set[tuple[int, int]]:
        return {_id(row) for before, row in self.steps() if row["position"] <= before}

    def find_poll_skip(self) -> set[tuple[int, int]]:
        known = {row["position"] for row in self.seen if self.judged(row["position"])}
        return {_id(row) for before, row in self.steps() if any(before < offset < row["position"] for offset in known)}

    def find_high_watermark_regression(self) -> set[tuple[int, int]]:
        ends = [
            r
            for r in self.rows
            if r["kind"] == "end" and r["outcome"] == "ok" and r["leader_epoch"] is not None and r["ret"] is not None
        ]
        return {
            _id(y)
            for x in ends
            for y in ends
            if x["ret"] < y["call"] and x["leader_epoch"] <= y["leader_epoch"] and x["position"] > y["position"]
        }


def _ret(row: Row) -> float:
    return FOREVER if row["ret"] is None else row["ret"]


def _order(row: Row) -> tuple[int, int, int]:
    return row["call"], row["op"], row["sub"]


def _id(row: Row) -> tuple[int, int]:
    return row["op"], row["sub"]
