"""Plants for logs: records that are lost, altered, repeated or out of order, and wrong answers about a log.

A plant writes a violation into a copy of a history. :mod:`assay.harness.sensitivity.plant` explains claims, edits,
``exposed`` and the fields of a plant. docs/reference/history.md explains the rows: kinds and columns of ``effects``.
``last_fault_end`` is the end of the last fault that may destroy data (``exposure_bound``). Compacted logs get no
plants, because their records may be deleted legally.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Final

from assay.checkers.judging.contract import Contract
from assay.harness.sensitivity.plant import (
    NEVER,
    Claim,
    Plant,
    Row,
    Rows,
    compute_once,
    find_fresh_value,
    get_return_time,
    get_row_id,
    is_ok,
    rank_known,
    replace_in,
    select_two,
)

_POLL: Final = ("observe-begin", "observe", "observe-end")
"""Kinds of effects of a poll."""
MARGIN: Final = 8
"""Number of offsets that a copy keeps before and after the records of a violation."""
_LOG: Final = frozenset({"append", "observe-begin"})
"""An object with effects of one of these kinds is a log."""
_NO_LATE_POLL: Final = "no complete poll that passed its offset was called after the heal of the last fault"


@dataclass(frozen=True)
class Poll:
    """A poll of one log: its rows, of the kinds in ``_POLL``. ``end`` is None if it does not say where it ended."""

    begin: Row
    records: Rows
    end: Row | None

    @property
    def call(self) -> int:
        return int(self.begin["call"])

    @property
    def ret(self) -> int:
        return int(self.begin["ret"])

    @property
    def reader(self) -> tuple[Any, ...]:
        """Identifies the chain of polls that it belongs to: polls of one process under one assignment."""
        return (self.begin["process"], self.begin["assignment"])

    @cached_property
    def offset_range(self) -> tuple[int, int]:
        """The lowest and the highest offset in its rows."""
        offsets = [row["position"] for row in (self.begin, *self.records, self.end or self.begin)]
        known = [offset for offset in offsets if offset is not None]
        return (min(known, default=0), max(known, default=0))

    @property
    def is_idle(self) -> bool:
        """Whether it ended ok, found nothing, and left its reader where it was."""
        return (
            not self.records
            and self.end is not None
            and self.begin["position"] == self.end["position"]
            and is_ok(self.begin, *_POLL)
        )

    @property
    def passes(self) -> bool:
        """Whether it passed offsets: it ended ok, and further than it began."""
        begin, end = self.begin["position"], None if self.end is None else self.end["position"]
        return (
            begin is not None
            and end is not None
            and 0 <= begin < end
            and all(is_ok(one, *_POLL) for one in (self.begin, *self.records))
        )


def list_all_polls(rows: Rows) -> list[Poll]:
    """Lists the polls, complete or not, in order of their calls."""
    polls: list[Poll] = []
    begin: Row | None = None
    records: list[Row] = []

    def end_poll(end: Row | None) -> None:
        if begin is not None:
            polls.append(Poll(begin, tuple(records), end))

    for row in rows:
        if row["kind"] not in _POLL or (begin is not None and begin["op"] != row["op"]):
            end_poll(None)
            begin = None
        if row["kind"] == "observe-begin":
            end_poll(None)
            begin, records = row, []
        elif row["kind"] == "observe":
            records.append(row)
        elif row["kind"] == "observe-end":
            end_poll(row)
            begin = None
    end_poll(None)
    return sorted(polls, key=lambda poll: poll.call)


def _list_passing(rows: Rows) -> list[Poll]:
    return [poll for poll in compute_once(rows, list_all_polls) if poll.passes]


def list_polls(rows: Rows) -> list[Poll]:
    """Lists the polls that passed offsets, in order of their calls."""
    return compute_once(rows, _list_passing)


@dataclass(frozen=True)
class LogRows:
    """The rows of a log, sorted so that the rows of a window can be found without a scan of all rows."""

    polls: Sequence[tuple[int, int, Poll]]
    """Polls with the lowest and the highest offset in their rows."""
    broken_polls: Sequence[tuple[int, int, Poll]]
    """Polls that show records and did not end ok."""
    moves: Rows
    """Seeks and resets."""
    starts: Rows
    sends: Rows
    """Sends in order of their offsets."""
    unplaced_sends: Mapping[int | None, Rows]
    """Sends at an unknown offset, by value."""


def _arrange(rows: Rows) -> LogRows:
    polls = [(*poll.offset_range, poll) for poll in compute_once(rows, list_all_polls)]
    by_kind: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kind[row["kind"]].append(row)
    unplaced: defaultdict[int | None, list[Row]] = defaultdict(list)
    for row in by_kind["append"]:
        if row["position"] is None:
            unplaced[row["value"]].append(row)
    return LogRows(
        polls,
        [one for one in polls if any(row["outcome"] != "ok" for row in one[2].records)],
        [row for row in rows if row["kind"] in ("seek", "reset")],
        by_kind["start"],
        sorted((row for row in by_kind["append"] if row["position"] is not None), key=_get_offset),
        unplaced,
    )


def _find_start(rows: Rows) -> int:
    """Returns the highest log start that was reported; records below it may be gone."""
    return max((row["position"] for row in rows if row["kind"] == "start" and row["position"] is not None), default=0)


def _list_acked(rows: Rows) -> list[Row]:
    """Lists acknowledged sends at a known offset whose records must still be in the log."""
    start = _find_start(rows)
    return [
        row
        for row in rows
        if is_ok(row, "append")
        and row["value"] is not None
        and row["position"] is not None
        and row["position"] >= start
    ]


def select_window(rows: Rows, claim: Claim) -> Rows:
    """Keeps the part of the log around the records of the claim, which is a legal history of a shorter log.

    Polls, seeks and resets are cut to this window. Polls that found nothing are dropped, unless the claim is about a
    poll of the same reader. Reports about the log as a whole are dropped, too, except those of its start. A poll that
    did not end ok may have moved its reader. If its records are cut off, the reader begins a new chain.
    """
    named = [row["position"] for row in (claim.row, claim.other) if row is not None and row["position"] is not None]
    if not named:
        return rows
    low, high = max(0, min(named) - MARGIN), max(named) + MARGIN + 1
    of_poll = None if claim.row is None or claim.row["kind"] != "observe-begin" else claim.row
    reader = None if of_poll is None else (of_poll["process"], of_poll["assignment"])

    def cut(row: Row) -> Row:
        return row if row["position"] is None else {**row, "position": min(max(row["position"], low), high)}

    log = compute_once(rows, _arrange)
    breaks: defaultdict[tuple[Any, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for first, last, poll in log.broken_polls:
        if first < low or last >= high:
            breaks[poll.reader].append(_get_call_order(poll.records[-1]))
    kept: list[Row] = []
    for first, last, poll in log.polls:
        if first < high and last >= low and (poll.reader == reader or not poll.is_idle):
            kept.append(cut(poll.begin))
            kept += [row for row in poll.records if row["position"] is None or low <= row["position"] < high]
            if poll.end is not None:
                kept.append(cut(poll.end))
    readers = {(row["process"], row["assignment"]) for row in kept}
    kept += [cut(row) for row in log.moves if (row["process"], row["assignment"]) in readers]
    kept += [row for row in log.starts if row["position"] is None or row["position"] > 0 or low == 0]
    kept += log.sends[bisect_left(log.sends, low, key=_get_offset) : bisect_left(log.sends, high, key=_get_offset)]
    placed = {row["value"]: None for row in kept if row["position"] is not None}
    kept += [row for value in placed for row in log.unplaced_sends.get(value, ())]
    return sorted(_split_chains(kept, breaks), key=get_row_id)


def _get_call_order(row: Row) -> tuple[int, int, int]:
    return (row["call"], row["op"], row["sub"])


def _split_chains(rows: Rows, breaks: Mapping[tuple[Any, ...], Sequence[tuple[int, int, int]]]) -> Iterator[Row]:
    """Splits the chains of readers at each break: every part gets a new assignment number."""
    fresh: dict[tuple[Any, int], int] = {}
    for row in rows:
        reader = (row["process"], row["assignment"])
        if row["kind"] in (*_POLL, "seek", "reset") and reader in breaks:
            later = sum(moment >= _get_call_order(row) for moment in breaks[reader])
            if later:
                row = {**row, "assignment": fresh.setdefault((reader, later), -2 - len(fresh))}
        yield row


def _select_message(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return [row for row in rows if row["op"] == claim.row["op"] and row["value"] == claim.row["value"]]


def _select_end(rows: Rows, claim: Claim) -> Rows:
    """Keeps the two rows of the claim. If ``claim.other`` is a record that was read, its sends are kept, too."""
    other = claim.other
    named = {get_row_id(row): row for row in select_two(rows, claim)}
    if other is not None and other["kind"] == "observe":
        named |= {get_row_id(row): row for row in rows if row["kind"] == "append" and row["value"] == other["value"]}
    return [named[place] for place in sorted(named)]


def _describe(row: Row) -> str:
    return f"value {row['value']} at offset {row['position']}"


def _find_records(rows: Rows, last_fault_end: int, *, read: bool) -> list[Claim]:
    """Lists acknowledged records, or with ``read`` the records in polls.

    A record is exposed if a poll that was called after the claim's ``since`` passed its offset.
    """
    polls = list_polls(rows)
    start = _find_start(rows)
    last_call = _find_last_calls(rows, polls)
    seen: dict[tuple[int, int], Row] = {}
    for poll in sorted(polls, key=lambda poll: poll.ret):
        for row in poll.records:
            if row["position"] is not None and row["value"] is not None and row["position"] >= start:
                seen.setdefault((row["value"], row["position"]), row)
    claims = []
    for row in seen.values() if read else _list_acked(rows):
        since = max(get_return_time(row), last_fault_end) if read else last_fault_end
        exposed = last_call.get(row["position"], -1) > since
        claims.append(Claim(_describe(row), exposed, since, row["value"], row))
    return claims


def _find_last_calls(rows: Rows, polls: Sequence[Poll]) -> dict[int, int]:
    """Returns the call of the last poll that passed each offset of a record."""
    known = sorted(
        {row["position"] for row in rows if row["kind"] in ("append", "observe") and row["position"] is not None}
    )
    last: dict[int, int] = {}
    for poll in polls:  # in order of their calls
        begin, end = (bisect_left(known, row["position"]) for row in (poll.begin, poll.end) if row is not None)
        last |= dict.fromkeys(known[begin:end], poll.call)
    return last


def _hide_record(rows: Rows, claim: Claim) -> Rows:
    """Removes the record from each poll that was called after the claim's ``since``."""
    if claim.row is None or not claim.exposed:
        return rows
    position = claim.row["position"]
    return [
        row
        for row in rows
        if not (
            row["kind"] == "observe"
            and row["call"] > claim.since
            and row["value"] == claim.value
            and row["position"] == position
        )
    ]


def _find_shown(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the records in polls."""
    return [Claim(_describe(row), value=row["value"], row=row) for poll in list_polls(rows) for row in poll.records]


def _find_shown_once(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the records in polls. A record is exposed unless its value may have been sent twice."""
    sends = Counter(row["value"] for row in rows if row["kind"] == "append" and row["outcome"] != "fail")
    return [replace(claim, exposed=sends[claim.value] < 2) for claim in _find_shown(rows, last_fault_end)]


def _find_failed_sends(rows: Rows, last_fault_end: int) -> list[Claim]:
    possible = {row["value"] for row in rows if row["kind"] == "append" and row["outcome"] != "fail"}
    failed = {row["value"]: row for row in rows if row["kind"] == "append" and row["outcome"] == "fail"}
    return [
        Claim(f"value {value}, whose send failed", bool(list_polls(rows)), value=value, row=row)
        for value, row in failed.items()
        if value is not None and value not in possible
    ]


def _find_last_end(rows: Rows) -> Row | None:
    """Returns the last row of the poll that went furthest; the latest of these polls."""
    ends = [poll.end for poll in list_polls(rows) if poll.end is not None]
    return max(ends, key=lambda end: (end["position"], end["call"]), default=None)


def _show_at_end(rows: Rows, claim: Claim, *, fresh: bool) -> Rows:
    """Lets the poll that went furthest show one more record at the end of the log: the claim's value, or a new one."""
    end = _find_last_end(rows)
    if end is None or not claim.exposed:
        return rows
    position = end["position"]
    like = claim.row if claim.row is not None and claim.row["kind"] == "observe" else {**end, "kind": "observe"}
    value = find_fresh_value(rows) if fresh else claim.value
    shown = {**like, **{name: end[name] for name in _OF_OPERATION}, "value": value, "position": position}
    edited: list[Row] = []
    for row in rows:
        if row["op"] == end["op"] and row["sub"] >= end["sub"]:
            row = {**row, "sub": row["sub"] + 1}
        if get_row_id(row) == (end["op"], end["sub"] + 1):
            row = {**row, "position": position + 1}
        if row["kind"] == "drained" and row["position"] == position:
            row = {**row, "position": position + 1}
        edited.append(row)
    return sorted([*edited, shown], key=get_row_id)


_OF_OPERATION: Final = ("op", "sub", "process", "call", "ret", "outcome", "error", "phase", "assignment", "group")
"""Columns that are equal in all rows of a poll, and the row's number."""


def _find_passed(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists acknowledged records. A record is exposed if a poll passed its offset."""
    passed = _find_last_calls(rows, list_polls(rows))
    return [Claim(_describe(row), row["position"] in passed, row=row) for row in _list_acked(rows)]


def _leave_out_offset(rows: Rows, claim: Claim) -> Rows:
    """Moves the record and all records behind it up by one offset, so that its offset becomes a hole.

    The position of a reader that stopped before the record stays, so this reader stopped before the hole.
    """
    if claim.row is None or not claim.exposed:
        return rows
    hole = claim.row["position"]

    def move(row: Row) -> Row:
        position = row["position"]
        behind = position is not None and position + (row["kind"] in ("append", "observe")) > hole
        return {**row, "position": position + 1} if behind else row

    return [move(row) for row in rows]


def _find_known_twice(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists records in polls. A record is exposed if another operation shows what is at its offset, too."""
    sources = Counter(row["position"] for row in _list_acked(rows))
    polls = list_polls(rows)
    for poll in polls:
        sources.update(row["position"] for row in poll.records)
    return [
        Claim(_describe(row), sources[row["position"]] > 1, value=row["value"], row=row)
        for poll in polls
        for row in poll.records
    ]


def _show_other(rows: Rows, claim: Claim) -> Rows:
    """Makes one poll show another value at the offset than all other operations do."""
    assert claim.row is not None
    return replace_in(rows, claim.row, value=find_fresh_value(rows)) if claim.exposed else rows


def _swap(rows: Rows, one: Row, other: Row) -> Rows:
    """Exchanges the offsets of two records in all sends and polls."""
    offsets = {one["value"]: other["position"], other["value"]: one["position"]}
    values = {one["position"]: other, other["position"]: one}
    edited: list[Row] = []
    for row in rows:
        if row["kind"] == "append" and row["value"] in offsets and row["position"] is not None:
            row = {**row, "position": offsets[row["value"]]}
        elif row["kind"] == "observe" and row["position"] in values:
            sent = values[row["position"]]
            row = {**row, **{name: sent[name] for name in ("value", "message_key")}}
            row["timestamp"] = sent["timestamp"] if row["timestamp"] is not None else None
        edited.append(row)
    return edited


def _find_successions(rows: Rows, last_fault_end: int, *, of_process: bool) -> list[Claim]:
    """Lists acknowledged sends, each with the first send that was called after it had ended and got a higher offset.

    ``of_process``: the other send must be of the same process. Then the last send of a process makes no claim.
    """
    acked = sorted(_list_acked(rows), key=lambda row: int(row["call"]))
    by_process: defaultdict[int, list[Row]] = defaultdict(list)
    for row in acked:
        by_process[row["process"] if of_process else 0].append(row)
    claims = []
    for row in acked:
        others = by_process[row["process"] if of_process else 0]
        begin = bisect_right(others, get_return_time(row), key=lambda one: int(one["call"]))
        later = next((one for one in islice(others, begin, None) if one["position"] > row["position"]), None)
        if later is not None or not of_process:
            claims.append(Claim(_describe(row), later is not None, row=row, other=later))
    return claims


def _exchange(rows: Rows, claim: Claim) -> Rows:
    return rows if claim.row is None or claim.other is None else _swap(rows, claim.row, claim.other)


def _get_offset(row: Row) -> int:
    return int(row["position"])


def _find_message_sets(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists message sets of two records or more, each with the next record of another operation behind it."""
    acked = _list_acked(rows)
    by_set: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in acked:
        if row["request"] is not None:
            by_set[row["op"], row["request"]].append(row)
    by_position = sorted(acked, key=_get_offset)
    claims = []
    for (op, request), members in by_set.items():
        if len(members) > 1:
            last = max(members, key=lambda row: row["position"])
            begin = bisect_right(by_position, last["position"], key=_get_offset)
            other = next((row for row in islice(by_position, begin, None) if row["op"] != op), None)
            claims.append(Claim(f"message set {request} of operation {op}", other is not None, row=last, other=other))
    return claims


@dataclass(frozen=True)
class ChainedPoll:
    """A poll with records, and the position of its reader before the poll.

    ``former``: the reader's last poll with records. ``sought``: the offset at which the reader began, if this poll
    shows its first records. Both are None if another poll in between may have moved the reader.
    """

    poll: Poll
    former: Poll | None
    sought: int | None
    is_first: bool
    """Whether it is the first of all polls of its reader, including those without records."""


def _list_chained_polls(rows: Rows) -> list[ChainedPoll]:
    """Lists the polls with records, reader by reader."""
    by_reader: defaultdict[tuple[Any, ...], list[Poll | Row]] = defaultdict(list)
    for row in compute_once(rows, _arrange).moves:
        by_reader[row["process"], row["assignment"]].append(row)
    for poll in compute_once(rows, list_all_polls):
        by_reader[poll.reader].append(poll)
    return [chained for steps in by_reader.values() for chained in _follow_reader(steps)]


def _follow_reader(steps: list[Poll | Row]) -> Iterator[ChainedPoll]:
    """Yields the polls with records of one reader. ``steps``: all its polls, seeks and resets.

    After a seek, a reset, or a poll that did not end ok, the next poll has no former poll, because the reader may have
    moved. A poll without records does not move the reader.
    """
    steps.sort(key=lambda step: _get_call_order(step.begin if isinstance(step, Poll) else step))
    former: Poll | None = None
    sought, is_first = _find_position(steps[0]), True
    for step in steps:
        if _find_position(step) != sought:
            sought = None
        if not isinstance(step, Poll):
            former = None
            continue
        is_complete = all(is_ok(row, *_POLL) for row in (step.begin, *step.records))
        if is_complete and step.passes and step.records:
            yield ChainedPoll(step, former, sought, is_first)
            former = step
        elif not is_complete:
            former = None
        if step.records or (step.end is not None and step.end["position"] != step.begin["position"]):
            sought = None
        is_first = False


def _find_position(step: Poll | Row) -> int | None:
    """Returns the position of the reader before this step; None if it is not known."""
    position = step.begin["position"] if isinstance(step, Poll) else step["position"]
    return None if position is None or position < 0 else int(position)


def _list_shown(rows: Rows) -> list[Row]:
    """Lists the records that polls showed, one for each offset, in order of offsets."""
    shown = {row["position"]: row for poll in list_polls(rows) for row in poll.records if row["value"] is not None}
    return [shown[position] for position in sorted(shown.keys() - {None})]


def _find_repeatable(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists polls, each with the last record of the reader's previous poll.

    The first poll of a reader gets the last record below the offset at which the reader began.
    """
    shown = compute_once(rows, _list_shown)
    claims = []
    for chained in compute_once(rows, _list_chained_polls):
        again: Row | None = None
        if chained.former is not None:
            again = chained.former.records[-1]
        elif chained.sought is not None:
            below = bisect_left(shown, chained.sought, key=_get_offset)
            again = shown[below - 1] if below else None
        first = chained.poll.records[0]
        claims.append(Claim(f"the poll by operation {first['op']}", again is not None, row=first, other=again))
    return claims


def _read_again(rows: Rows, claim: Claim) -> Rows:
    """Makes a poll show, before its own records, a record that its reader had passed."""
    if claim.row is None or claim.other is None:
        return rows
    first_id, again = get_row_id(claim.row), claim.other
    first = next(row for row in rows if get_row_id(row) == first_id)
    later = [
        {**row, "sub": row["sub"] + 1} if row["op"] == first["op"] and row["sub"] >= first["sub"] else row
        for row in rows
    ]
    return sorted([*later, {**again, **{name: first[name] for name in _OF_OPERATION}}], key=get_row_id)


def _find_skippable(rows: Rows, last_fault_end: int, *, followed: bool) -> list[Claim]:
    """Lists polls with two records or more. They are exposed if another poll shows their first record, too.

    ``followed``: only polls of readers that had polled before.
    """
    start = _find_start(rows)
    sources = Counter(row["position"] for poll in list_polls(rows) for row in poll.records)
    claims = []
    for chained in compute_once(rows, _list_chained_polls):
        begin, records = chained.poll.begin, chained.poll.records
        if len(records) > 1 and not (followed and chained.is_first):
            is_known = records[0]["position"] >= start and sources[records[0]["position"]] > 1
            exposed = is_known and (chained.former is not None or chained.sought is not None)
            claims.append(Claim(f"the poll by operation {begin['op']}", exposed, row=begin, other=records[0]))
    return claims


def _skip_first(rows: Rows, claim: Claim) -> Rows:
    """Makes a poll leave out its first record."""
    if not claim.exposed or claim.other is None:
        return rows
    first = get_row_id(claim.other)
    return [row for row in rows if get_row_id(row) != first]


def _jump_first(rows: Rows, claim: Claim) -> Rows:
    """Makes a poll begin behind its first record."""
    if not claim.exposed or claim.row is None or claim.other is None:
        return rows
    return _skip_first(replace_in(rows, claim.row, position=claim.other["position"] + 1), claim)


def _find_neighbours(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists acknowledged records, each with the record at the next offset, which the edit acknowledges instead."""
    passed = _find_last_calls(rows, list_polls(rows))
    acked = _list_acked(rows)
    by_position = {row["position"]: row for row in acked}
    claims = []
    for row in acked:
        other = by_position.get(row["position"] + 1)
        exposed = other is not None and row["position"] + 1 in passed
        claims.append(Claim(_describe(row), exposed, row=row, other=other))
    return claims


def _misplace(rows: Rows, claim: Claim) -> Rows:
    if not claim.exposed or claim.row is None or claim.other is None:
        return rows
    return replace_in(rows, claim.row, position=claim.other["position"])


def _find_create_times(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists the records in polls with a create time. They are exposed if the send or another poll has one, too."""
    dated = {row["value"] for row in rows if row["kind"] == "append" and row["timestamp"] is not None}
    shown = [row for poll in list_polls(rows) for row in poll.records if row["timestamp"] is not None]
    polls = Counter((row["value"], row["position"]) for row in shown)
    return [
        Claim(_describe(row), exposed, value=row["value"], row=row)
        for row in shown
        for exposed in [row["value"] in dated or polls[row["value"], row["position"]] > 1]
    ]


def _change_time(rows: Rows, claim: Claim) -> Rows:
    if not claim.exposed or claim.row is None:
        return rows
    return replace_in(rows, claim.row, timestamp=claim.row["timestamp"] + 7)


def _find_ends(rows: Rows, last_fault_end: int, *, known_by: Collection[str], of_epoch: bool) -> list[Claim]:
    """Lists log ends, each with the highest offset that was known before its call.

    ``of_epoch``: only offsets of the end's leader epoch or an earlier one count, as in the check. If the contract
    declares ends to be linearizable, the check compares all epochs.
    """
    known, highest = rank_known(rows, known_by, "position")
    claims = []
    for row in rows:
        if not is_ok(row, "end") or row["position"] is None:
            continue
        before = bisect_left(known, row["call"], key=get_return_time)
        if of_epoch:
            epochs = [one for one in known[:before] if _has_epoch(one, row)]
            former = max(epochs, key=lambda one: one["position"], default=None)
        else:
            former = highest[before - 1] if before else None
        words = f"the end {row['position']} in operation {row['op']}"
        claims.append(Claim(words, former is not None and former["position"] > 0, row=row, other=former))
    return claims


def _has_epoch(known: Row, end: Row) -> bool:
    both = known["leader_epoch"] is not None and end["leader_epoch"] is not None
    return both and bool(known["leader_epoch"] <= end["leader_epoch"])


def _lower_end(rows: Rows, claim: Claim, *, by: int) -> Rows:
    if claim.row is None or claim.other is None or not claim.exposed:
        return rows
    return replace_in(rows, claim.row, position=claim.other["position"] - by)


def _find_starts(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists log starts, each with the highest start that its node had reported before in this leader epoch.

    Logs without any record are not judged. A start of 0 cannot go back, so a node that only reports 0 makes no claim.
    """
    acked = bool(_list_acked(rows))
    same = ("node", "incarnation", "leader_epoch")
    known: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if is_ok(row, "start") and all(row[name] is not None for name in (*same, "position")):
            known[tuple(row[name] for name in same)].append(row)
    claims = []
    for starts in known.values():
        if max(map(_get_offset, starts)) <= 0:
            continue
        for row in starts:
            before = [one for one in starts if get_return_time(one) < row["call"]]
            former = max(before, key=_get_offset, default=None)
            words = f"the log start {row['position']} in operation {row['op']}"
            exposed = acked and former is not None and former["position"] > 0
            claims.append(Claim(words, exposed, row=row, other=former))
    return claims


def _select_starts(rows: Rows, claim: Claim) -> Rows:
    """Keeps the two starts, and an acknowledged record, because logs without records are not judged."""
    return sorted([*select_two(rows, claim), *_list_acked(rows)[:1]], key=get_row_id)


def _find_reports(rows: Rows, last_fault_end: int) -> list[Claim]:
    return [
        Claim(f"the report of value {row['value']} to {row['source']}", row=row)
        for row in rows
        if row["kind"] == "reported" and row["value"] is not None and row["source"] is not None
    ]


def _contradict(rows: Rows, claim: Claim) -> Rows:
    assert claim.row is not None
    return replace_in(rows, claim.row, outcome="fail" if claim.row["outcome"] == "ok" else "ok")


def _find_look_ups(rows: Rows, last_fault_end: int, *, compared: bool) -> list[Claim]:
    """Lists look-ups by time, each with a record in a poll that is older than the requested time.

    ``compared``: the record must also lie below the answer to another look-up of the same or an earlier time.
    """
    shown = [row for poll in list_polls(rows) for row in poll.records if None not in (row["value"], row["timestamp"])]
    asked = [row for row in rows if is_ok(row, "look-up") and None not in (row["ret"], row["timestamp"])]
    claims = []
    for row in asked:
        highest = NEVER
        if compared:
            earlier = (one for one in asked if one["timestamp"] <= row["timestamp"] and one is not row)
            highest = max((one["position"] for one in earlier if one["position"] is not None), default=-1)
        older = (one for one in shown if one["timestamp"] < row["timestamp"] and one["position"] < highest)
        other = next(older, None)
        claims.append(Claim(f"the look-up by operation {row['op']}", other is not None, row=row, other=other))
    return claims


def _select_look_ups(rows: Rows, claim: Claim) -> Rows:
    """Keeps all look-ups, and the rows of the claim's record."""
    value = None if claim.other is None else claim.other["value"]
    return [
        row
        for row in rows
        if row["kind"] == "look-up" or (row["kind"] in ("append", "observe") and row["value"] == value)
    ]


def _find_passed_look_ups(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists look-ups by time, each with a later read of the log's end, or a later send."""
    later = [
        row for row in rows if is_ok(row, "append", "end") and row["ret"] is not None and row["position"] is not None
    ]
    last = max(later, key=lambda row: int(row["call"]), default=None)
    return [
        Claim(f"the look-up by operation {row['op']}", other is not None, row=row, other=other)
        for row in rows
        if is_ok(row, "look-up") and None not in (row["ret"], row["timestamp"])
        for other in [last if last is not None and last["call"] > row["ret"] else None]
    ]


def _find_reads_within(rows: Rows, last_fault_end: int) -> list[Claim]:
    """Lists polls, each with a record that was known before, at or behind the offset at which the poll began.

    Logs from which records were deleted are not judged.
    """
    known, highest = rank_known(rows, ("append", "observe"), "position")
    is_complete = _find_start(rows) == 0 and not any(row["kind"] == "topic-delete" for row in rows)
    claims = []
    for poll in list_polls(rows):
        before = bisect_left(known, poll.call, key=get_return_time)
        other = highest[before - 1] if before and is_complete else None
        exposed = other is not None and other["position"] >= poll.begin["position"]
        claims.append(Claim(f"the poll by operation {poll.begin['op']}", exposed, row=poll.begin, other=other))
    return claims


def _reject(rows: Rows, claim: Claim) -> Rows:
    """Changes the answer of the poll to an error: its offset is out of range."""
    if claim.row is None or not claim.exposed:
        return rows
    edited: list[Row] = []
    inside = False
    for row in rows:
        if get_row_id(row) == get_row_id(claim.row):
            inside = True
            edited.append({**row, "kind": "out-of-range"})
        elif inside and row["op"] == claim.row["op"] and row["kind"] in ("observe", "observe-end"):
            inside = row["kind"] == "observe"
        else:
            edited.append(row)
    return edited


def _loses_nothing(contract: Contract) -> bool:
    return contract.unflushed == 0


def _declares_ends(contract: Contract) -> bool:
    return contract.linearizable_ends


def _asks_for_epochs(contract: Contract) -> bool:
    return not contract.linearizable_ends


_declare: Final = partial(Plant, kinds=_LOG, select=select_window)
"""Declares a plant for records. Its copies have only a part of the log."""

LOG_PLANTS: Final = (
    _declare(
        anomaly="lost-write",
        meaning="an acknowledged record is missing from each poll that is called after the last fault",
        find_claims=partial(_find_records, read=False),
        edit=_hide_record,
        missed=_NO_LATE_POLL,
    ),
    _declare(
        anomaly="vanished",
        meaning="a record that was read is missing from each poll that is called after the last fault",
        find_claims=partial(_find_records, read=True),
        edit=_hide_record,
        missed=_NO_LATE_POLL,
    ),
    _declare(
        anomaly="duplicate",
        meaning="a record is repeated at the end of the log",
        find_claims=_find_shown_once,
        edit=partial(_show_at_end, fresh=False),
        missed="it was sent again, so it may be there twice",
    ),
    _declare(
        anomaly="phantom",
        meaning="a poll shows a value that no one sent",
        find_claims=_find_shown,
        edit=partial(_show_at_end, fresh=True),
    ),
    _declare(
        anomaly="aborted-read",
        meaning="a poll shows a value whose send failed",
        find_claims=_find_failed_sends,
        edit=partial(_show_at_end, fresh=False),
        missed="no complete poll was made",
    ),
    _declare(
        anomaly="inconsistent-offset",
        meaning="a poll shows another value at an offset",
        find_claims=_find_known_twice,
        edit=_show_other,
        missed="no other operation showed this offset",
    ),
    _declare(
        anomaly="real-time-order",
        meaning="a record is placed before one that had been acknowledged when its send began",
        find_claims=partial(_find_successions, of_process=False),
        edit=_exchange,
        missed="no acknowledged send was called after it",
    ),
    _declare(
        anomaly="nonmonotonic-send",
        meaning="two successive sends of one process are exchanged in the log",
        find_claims=partial(_find_successions, of_process=True),
        edit=_exchange,
    ),
    _declare(
        anomaly="send-skip",
        meaning="a record of another process is inside a message set",
        find_claims=_find_message_sets,
        edit=_exchange,
        missed="no record follows it",
    ),
    _declare(
        anomaly="nonmonotonic-poll",
        meaning="a poll shows once more a record that its reader had read, or had begun behind",
        find_claims=_find_repeatable,
        edit=_read_again,
        missed="no one read anything below the offset at which its reader began, or a poll before it did not end ok",
    ),
    _declare(
        anomaly="poll-skip",
        meaning="a poll leaves out a record that another reader saw",
        find_claims=partial(_find_skippable, followed=False),
        edit=_skip_first,
        missed="no one else read the record, or a poll before it did not end ok",
    ),
    _declare(
        anomaly="position-jump",
        meaning="a poll begins beyond the end of the previous poll",
        find_claims=partial(_find_skippable, followed=True),
        edit=_jump_first,
        missed="no one else read the record, or a poll before it did not end ok",
    ),
    _declare(
        anomaly="misplaced-ack",
        meaning="a record is acknowledged with the offset of the next one",
        find_claims=_find_neighbours,
        edit=_misplace,
        missed="no record follows it that was acknowledged and read",
    ),
    _declare(
        anomaly="offset-hole",
        meaning="an offset of a log has no record",
        find_claims=_find_passed,
        edit=_leave_out_offset,
        missed="no complete poll passed its offset",
        requires=lambda contract: contract.dense_offsets,
    ),
    _declare(
        anomaly="altered-record",
        meaning="a record is read with another create time than it was sent with",
        find_claims=_find_create_times,
        edit=_change_time,
        missed="its send has no create time",
    ),
    *(
        Plant(
            anomaly=anomaly,
            meaning=meaning,
            kinds=frozenset({"end"}),
            find_claims=partial(_find_ends, known_by=known_by, of_epoch=of_epoch),
            edit=partial(_lower_end, by=by),
            select=_select_end,
            missed=f"no {what} was known before" + (" in this leader epoch or an earlier one" if of_epoch else ""),
            requires=_asks_for_epochs if of_epoch else _declares_ends,
        )
        for anomaly, meaning, known_by, by, what in (
            (
                "high-watermark-regression",
                "the end of a log is lower than one that was known before",
                ("end",),
                1,
                "end",
            ),
            (
                "end-too-low",
                "the end of a log is the offset of a record that was known before",
                ("append", "observe"),
                0,
                "record",
            ),
        )
        for of_epoch in (True, False)
    ),
    *(
        Plant(
            anomaly=anomaly,
            meaning=meaning,
            kinds=frozenset({"look-up"}),
            find_claims=partial(_find_look_ups, compared=compared),
            edit=partial(_lower_end, by=0),
            select=_select_look_ups,
            missed=f"no poll showed an older record{where} with its create time",
        )
        for anomaly, meaning, compared, where in (
            ("time-look-up", "a look-up by time returns a record that is older", False, ""),
            (
                "look-up-order",
                "a look-up by time returns a lower offset than one for an earlier time",
                True,
                " below the answer to another look-up",
            ),
        )
    ),
    Plant(
        anomaly="answer-beyond-log",
        meaning="a look-up by time returns an offset at which the log ended later, or got its next record",
        kinds=frozenset({"look-up"}),
        find_claims=_find_passed_look_ups,
        edit=partial(_lower_end, by=0),
        select=select_two,
        missed="no end was asked for later, and nothing was sent",
        requires=lambda contract: contract.linearizable_ends and _loses_nothing(contract),
    ),
    _declare(
        anomaly="false-out-of-range",
        meaning="a poll is answered out of range, although a record at its offset was known",
        find_claims=_find_reads_within,
        edit=_reject,
        select=_select_end,
        missed="nothing was known of its place before, or the log's start had moved",
        requires=_loses_nothing,
    ),
    Plant(
        anomaly="log-start-regression",
        meaning="the start of a log goes back on one node in one leader epoch",
        kinds=frozenset({"start"}),
        find_claims=_find_starts,
        edit=partial(_lower_end, by=1),
        select=_select_starts,
        missed="its node had reported no start above 0 before in this leader epoch, or no record was acknowledged",
    ),
    Plant(
        anomaly="contradicted-outcome",
        meaning="a callback reports another outcome than the send has",
        kinds=frozenset({"reported"}),
        find_claims=_find_reports,
        edit=_contradict,
        select=_select_message,
    ),
)
