"""Tests what clients said of a log against each other: each anomaly by hand, and every legal neighbour of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from assay.checkers.check import Check, create_views, read_findings
from assay.checkers.engine import DuckDB, Engine, SQLite
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract, register_history
from assay.checkers.judging.verdict import Finding
from assay.checkers.log.bounds import ANSWER_BEYOND_LOG
from assay.checkers.log.family import LOG, LOG_TABLES, STATEMENT_TABLES, STATEMENTS
from assay.checkers.log.loss import LOST_WRITE, VANISHED
from assay.checkers.log.poll_order import POLL_VIEWS
from assay.checkers.log.unflushed import UNFLUSHED, UNFLUSHED_LOSS
from assay.harness.core.history import HistoryReader

from helpers.judging import Opens
from helpers.log_histories import Book, Row, write
from helpers.power_histories import CONTRACT as POWER_CONTRACT
from helpers.power_histories import Log

PROMISED = Contract(dense_offsets=True, retention_ms=-1, retention_bytes=-1)
HOUR = 3_600_000
BEGUN = 1_700_000_000_000
"""The wall clock, in milliseconds, when the history began."""


@dataclass
class Pages(Book):
    """A book with what only these checks read, and other data sets. Times are milliseconds."""

    faults: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)

    def dated(self, values: list[int], offset: int | None, when: tuple[int, int | None], **given: Any) -> int:
        given = {"timestamp": BEGUN + when[0], "size": 100, **given}
        return self.send(values, offset, when, **given)

    def read(self, begin: int, records: list[tuple[int, int, int]], when: tuple[int, int], **given: Any) -> int:
        """Records are (offset, value, create time since the beginning)."""
        op = self.poll(begin, [one[:2] for one in records], begin + len(records), when, **given)
        times = {offset: BEGUN + time for offset, _, time in records}
        for row in self.rows:
            if row["op"] == op and row["kind"] == "observe":
                row["timestamp"] = times[row["position"]]
        return op

    def about(self, kind: str, key: str, when: tuple[int, int | None], **given: Any) -> int:
        """An effect of another key."""
        op = self.add(kind, when, given.pop("position", None), **given)
        self.rows[-1]["key"] = key
        return op

    def fault(self, injected: int, recovered: int | None, **columns: Any) -> None:
        times = {"intended": injected, "injected": injected, "healed": recovered, "recovered": recovered}
        for phase, time in times.items():
            if time is not None:
                known = {"took_effect": True} if phase == "healed" else {}
                self.faults.append({"id": len(self.faults), "fault": "kill", "targets": '["n1"]', "phase": phase,
                                    "time": time * 1_000_000, "detail": "{}", **known, **columns})  # fmt: skip
        for row in self.faults[-4:]:
            row["id"] = injected

    def missed(self, number: int, when: int, stage: str) -> None:
        """A fault that was meant to happen at some time, and never began."""
        for phase, time, more in (("intended", 1, {"not_before": 1}), ("failed", when, {"stage": stage})):
            self.faults.append({"id": number, "fault": "kill", "targets": "[]", "phase": phase,
                                "time": time * 1_000_000, "detail": "{}", **more})  # fmt: skip


Make = Callable[[Pages], None]


def found(engine: Engine, folder: Path, rows: list[Row], faults: list[Row], contract: Contract) -> list[Finding]:
    register_history(engine, write(folder / "history", rows, faults=faults))
    register_contract(engine, contract)
    create_views(engine, (*LOG.views, *LOG_TABLES))
    create_views(engine, STATEMENT_TABLES)
    reported = []
    for check in (*LOG.checks, *STATEMENTS.checks):
        create_views(engine, check.views)
        reported += read_findings(engine, check)
    return reported


@dataclass(frozen=True)
class Case:
    make: Make
    expected: frozenset[str]
    contract: Contract


CASES: list[Case] = []


def case(*expected: str, contract: Contract = PROMISED) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        CASES.append(Case(make, frozenset(expected), contract))
        return make

    return add


# -- misplaced-ack -----------------------------------------------------------------------------------------------------


@case("misplaced-ack")
def acknowledged_at_one_offset_and_there_at_that_of_an_earlier_send(book: Pages) -> None:
    book.send([1], None, (0, None), outcome="info")
    book.send([1], 1, (5, 10), process=1)
    book.poll(0, [(0, 1)], 2, (20, 30))


@case("misplaced-ack", "inconsistent-offset", "duplicate")
def acknowledged_at_an_offset_that_another_record_holds(book: Pages) -> None:
    book.send([1], 0, (0, 10))
    book.send([2], None, (1, None), outcome="info", process=1)
    book.poll(0, [(0, 2), (1, 1)], 2, (20, 30))


@case("misplaced-ack", "duplicate", "real-time-order")
def acknowledged_behind_the_settled_end(book: Pages) -> None:
    book.send([1], 7, (0, 18))
    book.send([9], 1, (19, 30), phase="sentinel", process=1)
    book.rows[-1]["call"] = book.rows[0]["ret"] + 1
    book.poll(0, [(0, 1), (1, 9)], 2, (40, 50), phase="drain")
    book.drained(2, (60, 70))


@case("misplaced-ack", "duplicate")
def acknowledged_at_an_offset_that_no_log_has(book: Pages) -> None:
    book.send([1], -1, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))


@case()
def the_same_value_had_an_earlier_send_of_unknown_outcome_at_another_offset(book: Pages) -> None:
    book.send([1], None, (0, None), outcome="info")
    book.send([1], 1, (11, 15), process=1)
    book.poll(0, [(0, 1), (1, 1)], 2, (20, 30))


@case()
def acknowledged_without_an_offset(book: Pages) -> None:
    book.send([1], None, (0, 10))
    book.poll(3, [(3, 1)], 4, (20, 30))


@case(contract=Contract(compacted=("orders-0",), dense_offsets=True))
def compacted_after_a_retry_with_the_same_key(book: Pages) -> None:
    book.send([1], 0, (0, 10), message_key="a")
    book.send([1], 1, (11, 15), message_key="a", process=1)
    book.poll(0, [(1, 1)], 2, (20, 30))


@case()
def acknowledged_by_the_leader_alone(book: Pages) -> None:
    """Which promises nothing, so that a workload records it as of unknown outcome."""
    book.send([1], 0, (0, 10), outcome="info")
    book.send([2], 0, (20, 30), process=1)
    book.poll(0, [(0, 2), (1, 1)], 2, (40, 50))


# -- offset-hole -------------------------------------------------------------------------------------------------------


@case("offset-hole")
def a_poll_went_past_offsets_that_no_one_knows(book: Pages) -> None:
    book.send([1], 0, (0, 10))
    book.send([2], 3, (11, 15))
    book.poll(0, [(0, 1), (3, 2)], 4, (20, 30))


@case("offset-hole")
def a_poll_went_on_over_nothing(book: Pages) -> None:
    book.send([1], 0, (0, 10))
    book.poll(0, [(0, 1)], 3, (20, 30))


@case("lost-write")
def what_is_known_to_be_gone_is_one_finding(book: Pages) -> None:
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1), (2, 3)], 3, (20, 30))


@case(contract=Contract(compacted=("orders-0",), dense_offsets=True))
def compaction_leaves_offsets_out(book: Pages) -> None:
    a_poll_went_past_offsets_that_no_one_knows(book)


@case(contract=Contract())
def a_log_that_is_not_dense(book: Pages) -> None:
    a_poll_went_past_offsets_that_no_one_knows(book)


@case("phantom")
def a_record_that_cannot_be_decoded_is_none_the_less_there(book: Pages) -> None:
    book.send([1], 0, (0, 10))
    book.send([2], 2, (11, 15))
    book.poll(0, [(0, 1), (1, None), (2, 2)], 3, (20, 30))


@case()
def what_lies_below_the_log_start(book: Pages) -> None:
    book.send([2], 3, (11, 15))
    book.poll(1, [(3, 2)], 4, (20, 30))
    book.add("start", (40, 50), 3)


@case()
def polls_of_unknown_extent_have_no_holes(book: Pages) -> None:
    book.send([1], 0, (0, 10))
    book.send([2], 3, (11, 15))
    book.poll(0, [(0, 1), (3, 2)], None, (20, 30))
    book.poll(0, [(0, 1), (3, 2)], 4, (20, 30), outcome="fail", process=4)


# -- position-jump -----------------------------------------------------------------------------------------------------


@case("position-jump")
def a_poll_began_behind_what_was_read(book: Pages) -> None:
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.poll(2, [(2, 3)], 3, (40, 50))


@case("position-jump")
def a_poll_began_before_what_was_read_and_found_nothing(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10))
    book.poll(0, [(0, 1), (1, 2)], 2, (20, 30))
    book.poll(1, [], 1, (40, 50))


@case()
def a_seek_or_a_reset_between_two_polls(book: Pages) -> None:
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.add("seek", (32, 34), 2, process=9, assignment=2)
    book.poll(2, [(2, 3)], 3, (40, 50), assignment=2)
    book.add("reset", (52, 54), 1, process=9, assignment=2)
    book.poll(1, [(1, 2)], 2, (60, 70), assignment=3)


@case()
def a_seek_under_the_same_assignment(book: Pages) -> None:
    book.send([1], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.add("seek", (32, 34), 0, process=9, assignment=1)
    book.poll(0, [], 0, (40, 50))


@case()
def a_poll_in_between_that_was_not_ok(book: Pages) -> None:
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.poll(1, [(1, 2)], 2, (32, 38), outcome="fail")
    book.poll(2, [(2, 3)], 3, (40, 50))


@case()
def a_failed_poll_that_left_no_row_of_the_partition(book: Pages) -> None:
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.about("observe-end", "orders-1", (32, 38), outcome="fail", process=9)
    book.poll(2, [(2, 3)], 3, (40, 50))


@case()
def revoked_and_assigned_again(book: Pages) -> None:
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.poll(2, [(2, 3)], 3, (40, 50), assignment=2)


@case(contract=Contract(compacted=("orders-0",)))
def a_gap_of_compaction_lies_inside_a_poll(book: Pages) -> None:
    book.send([1], 0, (0, 10), message_key="a")
    book.send([3], 5, (11, 15), message_key="b")
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.poll(1, [(5, 3)], 6, (40, 50))


@case()
def records_without_the_place_where_their_poll_began_or_ended(book: Pages) -> None:
    """The client does not say these places, and its polls may have passed more than they show."""
    book.send([1, 2], 0, (0, 10))
    book.send([3], 3, (11, 15))
    book.poll(0, [(0, 1), (1, 2)], None, (20, 30))
    book.poll(3, [(3, 3)], None, (40, 50))
    book.rows = [row for row in book.rows if row["kind"] != "observe-begin"]


# -- altered-record ----------------------------------------------------------------------------------------------------


@case("altered-record")
def another_create_time(book: Pages) -> None:
    book.dated([1], 0, (0, 10))
    book.read(0, [(0, 1, 7)], (20, 30))


@case("altered-record")
def another_key(book: Pages) -> None:
    book.dated([1], 0, (0, 10), message_key="a")
    book.read(0, [(0, 1, 0)], (20, 30))
    book.rows[-2]["message_key"] = "b"


@case("altered-record")
def a_key_that_got_lost(book: Pages) -> None:
    book.dated([1], 0, (0, 10), message_key="a")
    book.read(0, [(0, 1, 0)], (20, 30))


@case("altered-record")
def two_readers_saw_two_create_times_of_a_send_without_an_answer(book: Pages) -> None:
    book.send([1], None, (0, None), outcome="info")
    book.read(0, [(0, 1, 0)], (20, 30))
    book.read(0, [(0, 1, 1)], (40, 50), assignment=2)


@case("altered-record", "phantom")
def sent_to_another_partition(book: Pages) -> None:
    book.dated([1], 0, (0, 10))
    book.rows[-1]["key"] = "orders-1"
    book.read(0, [(0, 1, 0)], (20, 30))


@case()
def one_of_two_sends_of_a_value(book: Pages) -> None:
    book.dated([1], None, (0, None), outcome="info")
    book.dated([1], 1, (5, 10), process=1)
    book.read(0, [(0, 1, 0), (1, 1, 5)], (20, 30))


@case()
def one_of_the_sends_does_not_say_its_time(book: Pages) -> None:
    book.send([1], None, (0, None), outcome="info")
    book.dated([1], 0, (5, 10), process=1)
    book.read(0, [(0, 1, 3)], (20, 30))


@case()
def a_reader_without_times_and_keys(book: Pages) -> None:
    book.dated([1], 0, (0, 10), message_key="a")
    book.poll(0, [(0, 1)], 1, (20, 30))


# -- log-start-regression ----------------------------------------------------------------------------------------------


def _starts(book: Pages, first: dict[str, Any], second: dict[str, Any], when: tuple[int, int] = (30, 40)) -> None:
    recorded = {"node": "n1", "incarnation": 3, "leader_epoch": 5}
    book.add("start", (10, 20), 8, **{**recorded, **first})
    book.add("start", when, 6, process=1, **{**recorded, **second})


UNLIMITED = Contract()


@case("log-start-regression", contract=UNLIMITED)
def a_start_went_back(book: Pages) -> None:
    _starts(book, {}, {})


@case(contract=UNLIMITED)
def the_start_of_a_new_leader_is_lower(book: Pages) -> None:
    _starts(book, {}, {"node": "n2", "leader_epoch": 6})


@case(contract=UNLIMITED)
def the_same_node_in_another_epoch(book: Pages) -> None:
    _starts(book, {}, {"leader_epoch": 6})


@case(contract=UNLIMITED)
def the_same_node_in_another_life(book: Pages) -> None:
    _starts(book, {}, {"incarnation": 4})


@case(contract=UNLIMITED)
def a_start_of_unknown_epoch(book: Pages) -> None:
    _starts(book, {"leader_epoch": None}, {})


@case(contract=UNLIMITED)
def two_calls_that_overlap(book: Pages) -> None:
    _starts(book, {}, {}, (15, 40))


# -- forbidden-deletion ------------------------------------------------------------------------------------------------


def _deleted(book: Pages, *settings: tuple[str, int, tuple[int, int | None]], at: int = 50_000, **sent: Any) -> None:
    """Four records of 100 bytes; the start is found to be 2."""
    for name, value, when in settings:
        outcome = "ok" if when[1] is not None else "info"
        book.about("setting", "orders", when, name=name, value=value, process=7, outcome=outcome)
    for value in range(4):
        book.dated([value], value, (20_000 + 10 * value, 20_005 + 10 * value), **sent)
    book.add("start", (at, at + 5), 2, process=3)


@case("forbidden-deletion")
def deleted_though_it_is_kept_for_ever(book: Pages) -> None:
    _deleted(book)


@case("forbidden-deletion")
def deleted_too_young(book: Pages) -> None:
    _deleted(book, ("retention.ms", HOUR, (0, 5)))


@case("forbidden-deletion")
def deleted_two_seconds_too_early(book: Pages) -> None:
    _deleted(book, ("retention.ms", 32_000, (0, 5)))


@case(contract=replace(PROMISED, clock_difference=3.0))
def deleted_two_seconds_too_early_by_clocks_that_differ_by_three(book: Pages) -> None:
    _deleted(book, ("retention.ms", 32_000, (0, 5)))


@case("forbidden-deletion", contract=replace(PROMISED, clock_difference=1.9))
def deleted_two_seconds_too_early_by_clocks_that_differ_by_less(book: Pages) -> None:
    _deleted(book, ("retention.ms", 32_000, (0, 5)))


@case("forbidden-deletion")
def deleted_though_it_is_kept_for_longer_than_anything_lasts(book: Pages) -> None:
    _deleted(book, ("retention.ms", 2**62, (0, 5)))


@case("forbidden-deletion")
def deleted_though_the_log_is_small(book: Pages) -> None:
    _deleted(book, ("retention.bytes", 201, (0, 5)))


LOOSENED: Final = ("retention.ms", 10_000, (0, 5)), ("retention.ms", HOUR, (100, 105))
"""Long before anything is sent."""
OBEDIENT: Final = replace(PROMISED, obedience_deadline=15.0)


@case("forbidden-deletion", contract=OBEDIENT)
def deleted_after_the_limit_had_been_loosened_before_it_was_sent(book: Pages) -> None:
    _deleted(book, *LOOSENED)


@case(contract=replace(PROMISED, obedience_deadline=20.0))
def sent_before_each_server_must_go_by_the_loosened_limit(book: Pages) -> None:
    _deleted(book, *LOOSENED)


@case(contract=OBEDIENT)
def sent_soon_after_a_fault_that_may_have_kept_the_loosened_limit_from_servers(book: Pages) -> None:
    _deleted(book, *LOOSENED)
    book.fault(2_000, 6_000, wrong_clock=False)


@case(contract=OBEDIENT)
def faults_too_close_together_for_the_loosened_limit_to_come_through(book: Pages) -> None:
    _deleted(book, *LOOSENED)
    book.fault(50, 60, wrong_clock=False)
    book.fault(14_000, 14_100, wrong_clock=False)


@case("forbidden-deletion", contract=OBEDIENT)
def the_loosened_limit_came_through_before_the_fault(book: Pages) -> None:
    _deleted(book, *LOOSENED)
    book.fault(50, 60, wrong_clock=False)
    book.fault(15_200, 15_300, wrong_clock=False)
    for row in book.faults[::4]:
        row["not_before"] = row["time"]


@case("forbidden-deletion", contract=OBEDIENT)
def the_limit_was_loosened_a_while_after_a_fault(book: Pages) -> None:
    _deleted(book, *LOOSENED)
    book.fault(10, 20, wrong_clock=False)


@case("forbidden-deletion")
def deleted_too_young_while_a_server_was_down(book: Pages) -> None:
    _deleted(book, ("retention.ms", HOUR, (0, 5)))
    book.fault(10, 20, wrong_clock=False)


@case("forbidden-deletion")
def deleted_though_it_is_kept_for_ever_no_matter_what_the_clock_says(book: Pages) -> None:
    _deleted(book)
    book.fault(10, 20, wrong_clock=True)


@case()
def deleted_too_young_where_a_clock_was_wrong(book: Pages) -> None:
    _deleted(book, ("retention.ms", HOUR, (0, 5)))
    book.fault(10, 20, wrong_clock=True)


@case()
def deleted_too_young_where_a_clock_was_wrong_until_the_fault_failed_elsewhere(book: Pages) -> None:
    _deleted(book, ("retention.ms", HOUR, (0, 5)))
    book.fault(10, 20, wrong_clock=True)
    book.faults[1] |= {"phase": "failed", "stage": "inject"}


@case("forbidden-deletion")
def deleted_too_young_though_no_clock_was_set_wrong_in_the_end(book: Pages) -> None:
    _deleted(book, ("retention.ms", HOUR, (0, 5)))
    book.missed(1, 2_000, "target")


@case()
def old_enough(book: Pages) -> None:
    _deleted(book, ("retention.ms", 25_000, (0, 5)))


@case()
def large_enough(book: Pages) -> None:
    _deleted(book, ("retention.bytes", 200, (0, 5)))


@case()
def a_send_of_unknown_outcome_may_fill_the_log(book: Pages) -> None:
    book.dated([9], None, (1, None), outcome="info", process=8)
    _deleted(book, ("retention.bytes", 300, (0, 5)))


@case()
def how_large_a_record_is_no_one_knows(book: Pages) -> None:
    _deleted(book, ("retention.bytes", 1_000, (0, 5)), size=None)


@case()
def created_long_ago(book: Pages) -> None:
    _deleted(book, ("retention.ms", HOUR, (0, 5)), timestamp=BEGUN - 2 * HOUR)


@case()
def loosened_after_it_was_deleted(book: Pages) -> None:
    _deleted(book, ("retention.ms", 10_000, (0, 5)), ("retention.ms", HOUR, (45_000, 45_005)))


@case()
def tightened_after_it_was_sent(book: Pages) -> None:
    _deleted(book, ("retention.ms", HOUR, (0, 5)), ("retention.ms", 10_000, (40_000, 40_005)))


@case()
def a_limit_of_unknown_outcome_may_hold_for_ever(book: Pages) -> None:
    _deleted(book, ("retention.ms", 10_000, (0, None)), ("retention.ms", HOUR, (100, 105)))


@case()
def the_limit_of_another_topic_does_not_count(book: Pages) -> None:
    book.key = "orders#2-0"
    _deleted(book, ("retention.ms", 1, (0, 5)))
    for row in book.rows:
        row["key"] = row["key"] if row["kind"] != "setting" else "orders#2"


@case(contract=Contract(dense_offsets=True))
def limits_that_no_one_knows(book: Pages) -> None:
    _deleted(book)


@case()
def nothing_was_deleted(book: Pages) -> None:
    book.dated([1], 0, (0, 10))
    book.add("start", (20, 25), 0)


# -- end-too-low -------------------------------------------------------------------------------------------------------


@case("end-too-low")
def an_end_below_what_was_acknowledged(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10), leader_epoch=3)
    book.add("end", (20, 30), 1, leader_epoch=3, process=2)


@case("end-too-low")
def an_end_below_what_was_read_in_an_earlier_epoch(book: Pages) -> None:
    book.send([1, 2], None, (0, None), outcome="info")
    book.poll(0, [(0, 1), (1, 2)], 2, (12, 18), leader_epoch=2)
    book.add("end", (20, 30), 1, leader_epoch=3, process=2)


@case("real-time-order", contract=Contract(linearizable_ends=True))
def rule_u_has_ends_that_are_declared_linearizable(book: Pages) -> None:
    an_end_below_what_was_acknowledged(book)


@case()
def an_end_just_behind(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10), leader_epoch=3)
    book.add("end", (20, 30), 2, leader_epoch=3, process=2)


@case()
def an_end_of_a_lower_epoch(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10), leader_epoch=3)
    book.add("end", (20, 30), 1, leader_epoch=2, process=2)


@case()
def an_end_of_unknown_epoch(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10), leader_epoch=3)
    book.add("end", (20, 30), 1, process=2)


@case()
def an_acknowledgement_of_unknown_epoch(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10))
    book.add("end", (20, 30), 1, leader_epoch=3, process=2)


@case()
def an_end_that_was_asked_for_before_the_answer(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10), leader_epoch=3)
    book.add("end", (5, 30), 1, leader_epoch=3, process=2)


@case()
def an_end_below_what_the_leader_alone_acknowledged(book: Pages) -> None:
    book.send([1, 2], 0, (0, 10), leader_epoch=3, outcome="info")
    book.add("end", (20, 30), 1, leader_epoch=3, process=2)


# -- late-order: part of real-time-order -------------------------------------------------------------------------------


@case("real-time-order")
def acknowledged_without_an_offset_below_what_came_later(book: Pages) -> None:
    book.send([1], None, (0, 10))
    book.send([2], 0, (20, 30), process=1)
    book.poll(0, [(0, 2), (1, 1)], 2, (40, 50))


@case()
def sent_twice_and_the_other_one_may_be_what_was_read(book: Pages) -> None:
    book.send([1], None, (0, 10))
    book.send([1], None, (1, None), outcome="info", process=3)
    book.send([2], 0, (20, 30), process=1)
    book.poll(0, [(0, 2), (1, 1)], 2, (40, 50))


@case()
def acknowledged_without_an_offset_while_the_other_was_sent(book: Pages) -> None:
    book.send([1], None, (0, 25))
    book.send([2], 0, (20, 30), process=1)
    book.poll(0, [(0, 2), (1, 1)], 2, (40, 50))


@case()
def sent_without_asking_for_an_answer(book: Pages) -> None:
    book.send([1], None, (0, 10), outcome="info")
    book.send([2], 0, (20, 30), process=1)
    book.poll(0, [(0, 2), (1, 1)], 2, (40, 50))


# -- time-look-up ------------------------------------------------------------------------------------------------------


def _filled(book: Pages) -> None:
    """Offsets 0 to 3, created at 0, 100, 200 and 300, known by 500."""
    for value in range(4):
        book.dated([value], value, (100 * value, 100 * value + 10))
    book.read(0, [(value, value, 100 * value) for value in range(4)], (490, 500))


def _asked(book: Pages, time: int, answer: int | None, when: tuple[int, int] = (600, 610)) -> None:
    book.add("look-up", when, answer, timestamp=BEGUN + time, process=4)


@case("time-look-up")
def an_earlier_record_is_young_enough(book: Pages) -> None:
    _filled(book)
    _asked(book, 150, 3)


@case()
def none_was_found_where_ends_are_not_linearizable(book: Pages) -> None:
    _filled(book)
    _asked(book, 300, None)


@case("time-look-up", contract=Contract(linearizable_ends=True, retention_ms=-1, retention_bytes=-1))
def there_is_one_though_none_was_found(book: Pages) -> None:
    _filled(book)
    _asked(book, 300, None)


@case("time-look-up")
def the_answer_is_too_old(book: Pages) -> None:
    _filled(book)
    _asked(book, 150, 1)


@case()
def the_first_of_that_time_or_later(book: Pages) -> None:
    _filled(book)
    _asked(book, 150, 2)
    _asked(book, 200, 2, (620, 630))
    _asked(book, 0, 0, (640, 650))
    _asked(book, 301, None, (660, 670))


@case()
def it_came_while_the_question_was_under_way(book: Pages) -> None:
    _filled(book)
    _asked(book, 300, None, (150, 180))


@case(contract=Contract(dense_offsets=True, retention_ms=1_000, retention_bytes=-1))
def the_earlier_record_may_have_been_deleted(book: Pages) -> None:
    _filled(book)
    book.add("end", (9_000, 9_010), 4, process=5)
    _asked(book, 150, 3, (9_020, 9_030))


KEPT: Final = Contract(dense_offsets=True, retention_ms=20_000, retention_bytes=-1)


def _kept_and_missed(book: Pages, *, wrong_clock: bool) -> None:
    _filled(book)
    book.fault(10, 20, wrong_clock=wrong_clock)
    _asked(book, 150, 3)


@case("time-look-up", contract=KEPT)
def the_earlier_record_is_too_young_to_have_been_deleted(book: Pages) -> None:
    _kept_and_missed(book, wrong_clock=False)


@case("time-look-up", contract=replace(KEPT, retention_ms=2**62))
def the_earlier_record_is_kept_for_longer_than_anything_lasts(book: Pages) -> None:
    _kept_and_missed(book, wrong_clock=False)


@case(contract=KEPT)
def the_earlier_record_may_have_been_deleted_by_a_wrong_clock(book: Pages) -> None:
    _kept_and_missed(book, wrong_clock=True)


@case(contract=Contract(compacted=("orders-0",), retention_ms=-1, retention_bytes=-1))
def the_earlier_record_may_have_been_compacted(book: Pages) -> None:
    _filled(book)
    _asked(book, 150, 3)


@case()
def records_whose_times_no_one_saw(book: Pages) -> None:
    """The broker may have put in times of its own."""
    for value in range(4):
        book.dated([value], value, (100 * value, 100 * value + 10))
    book.poll(0, [(value, value) for value in range(4)], 4, (490, 500))
    _asked(book, 150, 3)


@case()
def segments_that_may_begin_before_that_time(book: Pages) -> None:
    """Version 0 of the request lists a segment, not the first record of a time. It is recorded without a time."""
    _filled(book)
    book.add("look-up", (600, 610), 3, process=4)


# -- look-up-order -----------------------------------------------------------------------------------------------------


@case("look-up-order")
def a_later_time_has_a_lower_offset(book: Pages) -> None:
    book.dated([1], 3, (200, 210))
    _asked(book, 100, 5)
    _asked(book, 200, 3, (620, 630))


@case("look-up-order")
def no_matter_which_was_asked_for_first(book: Pages) -> None:
    book.dated([1], 3, (200, 210))
    _asked(book, 200, 3)
    _asked(book, 100, 5, (620, 630))


@case()
def a_later_time_has_the_same_offset_or_none(book: Pages) -> None:
    book.dated([1], 3, (200, 210))
    _asked(book, 100, 3)
    _asked(book, 200, 3, (620, 630))
    _asked(book, 300, None, (640, 650))


@case(contract=Contract(dense_offsets=True, retention_ms=1_000, retention_bytes=-1))
def the_lower_one_may_have_been_deleted_meanwhile(book: Pages) -> None:
    book.dated([1], 3, (200, 210))
    _asked(book, 200, 3)
    book.add("end", (9_000, 9_010), 6, process=5)
    _asked(book, 100, 5, (9_020, 9_030))


def _young_and_passed(book: Pages) -> None:
    book.dated([1], 3, (200, 210))
    _asked(book, 200, 3)
    book.add("end", (9_000, 9_010), 6, process=5)
    _asked(book, 100, 5, (9_020, 9_030))


@case("look-up-order", contract=KEPT)
def it_is_too_young_to_have_been_deleted(book: Pages) -> None:
    _young_and_passed(book)
    book.fault(10, 20, wrong_clock=False)


@case(contract=KEPT)
def it_may_have_been_deleted_by_a_wrong_clock(book: Pages) -> None:
    _young_and_passed(book)
    book.fault(10, 20, wrong_clock=True)


@case(contract=Contract(compacted=("orders-0",), retention_ms=-1, retention_bytes=-1))
def the_lower_one_may_have_been_compacted(book: Pages) -> None:
    book.dated([1], 3, (200, 210))
    _asked(book, 200, 3)
    _asked(book, 100, 5, (620, 630))


# -- answer-beyond-log -------------------------------------------------------------------------------------------------

LINEARIZABLE = Contract(linearizable_ends=True, retention_ms=-1, retention_bytes=-1)


def _started(book: Pages, start: int, when: tuple[int, int]) -> None:
    book.add("start", when, start, process=4)


@case("answer-beyond-log", contract=LINEARIZABLE)
def the_end_lies_below_a_start_that_was_known(book: Pages) -> None:
    _started(book, 1_000, (0, 10))
    book.add("end", (20, 30), 6, process=5)


@case(contract=LINEARIZABLE)
def an_empty_log_ends_where_it_begins(book: Pages) -> None:
    _started(book, 1_000, (0, 10))
    book.add("end", (20, 30), 1_000, process=5)


@case(contract=LINEARIZABLE)
def the_end_was_asked_for_before_the_start_was_known(book: Pages) -> None:
    _started(book, 1_000, (0, 25))
    book.add("end", (20, 30), 6, process=5)


@case()
def an_end_below_a_start_where_ends_may_be_stale(book: Pages) -> None:
    _started(book, 1_000, (0, 10))
    book.add("end", (20, 30), 6, process=5)


@case(contract=Contract(linearizable_ends=True, retention_ms=-1, retention_bytes=-1, unflushed=9))
def what_was_not_flushed_may_have_gone(book: Pages) -> None:
    _started(book, 5, (0, 10))
    book.add("end", (20, 30), 4, process=5)


@case("answer-beyond-log", contract=Contract(linearizable_ends=True))
def a_send_gets_an_offset_below_a_known_start(book: Pages) -> None:
    _started(book, 5, (0, 10))
    book.dated([1], 4, (20, 30))


@case(contract=Contract(linearizable_ends=True))
def a_send_that_was_under_way(book: Pages) -> None:
    _started(book, 5, (0, 10))
    book.dated([1], 4, (5, 30))


@case("answer-beyond-log", contract=LINEARIZABLE)
def a_look_up_found_what_lies_at_the_later_end(book: Pages) -> None:
    _asked(book, 150, 6, (0, 10))
    book.add("end", (20, 30), 6, process=5)


@case(contract=LINEARIZABLE)
def a_look_up_found_the_last_record(book: Pages) -> None:
    _asked(book, 150, 5, (0, 10))
    book.add("end", (20, 30), 6, process=5)


# -- resurrected -------------------------------------------------------------------------------------------------------


def _recreated(book: Pages, *, created: tuple[int, int], outcome: str = "ok") -> None:
    book.send([1], 0, (0, 10))
    book.about("topic-create", "orders#2", created, value=1, process=5, outcome=outcome)
    book.send([2], 0, (60, 70), process=1)
    book.rows[-1]["key"] = "orders#2-0"


def _old_in_new(book: Pages) -> None:
    book.poll(0, [(0, 1)], 1, (100, 110))
    for row in book.rows[-3:]:
        row["key"] = "orders#2-0"


@case("resurrected", "phantom", "lost-write", "inconsistent-offset")
def a_record_of_the_earlier_topic_in_the_new_one(book: Pages) -> None:
    _recreated(book, created=(40, 50))
    _old_in_new(book)


@case("resurrected")
def the_earlier_topic_is_still_served(book: Pages) -> None:
    _recreated(book, created=(40, 50))
    book.poll(0, [(0, 1)], 1, (100, 110))


@case()
def the_call_overlaps_the_change(book: Pages) -> None:
    _recreated(book, created=(40, 50))
    book.poll(0, [(0, 1)], 1, (45, 110))


@case()
def no_one_knows_that_it_was_created(book: Pages) -> None:
    _recreated(book, created=(40, 50), outcome="info")
    book.poll(0, [(0, 1)], 1, (100, 110))


@case()
def each_topic_has_its_own_values(book: Pages) -> None:
    _recreated(book, created=(40, 50))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.poll(0, [(0, 2)], 1, (100, 110), assignment=2)
    for row in book.rows[-3:]:
        row["key"] = "orders#2-0"


# -- false-out-of-range ------------------------------------------------------------------------------------------------


@case("false-out-of-range")
def sent_away_from_what_was_acknowledged(book: Pages) -> None:
    book.send([1], 4, (0, 10))
    book.add("out-of-range", (20, 30), 4)


@case("false-out-of-range")
def sent_away_from_right_behind_what_was_read(book: Pages) -> None:
    book.send([1, 2], None, (0, None), outcome="info")
    book.poll(0, [(0, 1), (1, 2)], 2, (10, 20))
    book.add("out-of-range", (30, 40), 2)


@case("false-out-of-range")
def sent_away_from_the_end_that_was_reported(book: Pages) -> None:
    book.add("start", (0, 1), 0)
    book.add("end", (2, 10), 0)
    book.add("out-of-range", (20, 30), 0)


@case()
def sent_away_from_above_all_that_was_known(book: Pages) -> None:
    book.send([1], 4, (0, 10))
    book.add("end", (11, 15), 5)
    book.add("out-of-range", (20, 30), 6)


@case()
def sent_away_from_below_all_that_there_can_be(book: Pages) -> None:
    book.send([1], 0, (0, 10))
    book.add("out-of-range", (20, 30), -5)
    book.add("out-of-range", (40, 50), -(2**63))


@case()
def sent_away_before_it_was_acknowledged(book: Pages) -> None:
    book.send([1], 4, (0, 25))
    book.add("out-of-range", (20, 30), 4)


@case(contract=replace(PROMISED, retention_ms=HOUR))
def sent_away_from_a_log_whose_start_has_moved(book: Pages) -> None:
    book.dated([1], 4, (0, 10))
    book.add("out-of-range", (2 * HOUR, 2 * HOUR + 5), 4)
    book.add("start", (2 * HOUR + 10, 2 * HOUR + 12), 5)


@case()
def sent_away_from_a_topic_that_was_deleted(book: Pages) -> None:
    book.send([1], 4, (0, 10))
    book.about("topic-delete", "orders", (12, 15))
    book.add("out-of-range", (20, 30), 4)


@case(contract=replace(PROMISED, unflushed=39))
def sent_away_where_a_loss_of_power_may_cut(book: Pages) -> None:
    book.send([1], 4, (0, 10))
    book.add("out-of-range", (20, 30), 4)


# -- untimely-answer ---------------------------------------------------------------------------------------------------


def waited(book: Pages, when: tuple[int, int], slept: int, what: str, position: int = 4) -> None:
    book.add("waited", when, position, waited_ms=slept, max_wait_ms=1500, empty=what == "nothing")


@case("untimely-answer")
def answered_with_nothing_at_once(book: Pages) -> None:
    book.add("start", (0, 1), 0)
    waited(book, (10, 60), 40, "nothing")


@case("untimely-answer")
def answered_long_after_what_it_waited_for(book: Pages) -> None:
    book.send([1], 4, (100, 150))
    waited(book, (10, 1530), 1510, "records")


@case()
def answered_with_nothing_when_the_time_was_over(book: Pages) -> None:
    book.send([1], 3, (100, 150))
    waited(book, (10, 1530), 1510, "nothing")


@case()
def answered_as_soon_as_there_was_something(book: Pages) -> None:
    book.send([1], 4, (900, 950))
    waited(book, (10, 960), 940, "records")


@case()
def acknowledged_when_the_time_was_nearly_over(book: Pages) -> None:
    book.send([1], 4, (900, 950))
    waited(book, (10, 1530), 1510, "records")


@case()
def asked_late_for_what_was_there_already(book: Pages) -> None:
    book.send([1], 4, (100, 150))
    waited(book, (200, 1300), 30, "records")


@case()
def answered_late_while_a_fault_was_in_force(book: Pages) -> None:
    book.fault(1000, 2000)
    book.send([1], 4, (100, 150))
    waited(book, (10, 1530), 1510, "records")


@case()
def answered_early_right_after_a_fault(book: Pages) -> None:
    book.fault(100, 200)
    book.add("start", (0, 1), 0)
    waited(book, (600, 660), 40, "nothing")


# -- stuck-reader ------------------------------------------------------------------------------------------------------


def _waited(book: Pages, polls: int = 30, *, shown: bool = False, until: int = 30_000) -> None:
    """A record at offset 1 from 1 s on; a reader in front of it asks again and again."""
    book.send([1, 2], 0, (900, 1_000))
    book.poll(0, [(0, 1)], 1, (1_100, 1_110))
    for turn in range(polls):
        call = 2_000 + turn * (until - 2_000) // polls
        op = book.poll(1, [], 1, (call, call + 10))
        if shown:
            shown_too = {"op": op, "sub": 3, "kind": "observe", "key": "orders-1", "value": 5 + turn, "position": turn}
            book.rows.append({**book.rows[-1], **shown_too})
            book.send([5 + turn], turn, (call - 30, call - 20), process=1)
            book.rows[-1]["key"] = "orders-1"


@case("stuck-reader")
def a_reader_in_front_of_a_record(book: Pages) -> None:
    _waited(book)


@case("stuck-reader")
def a_reader_that_got_on_too_late(book: Pages) -> None:
    _waited(book)
    book.poll(1, [(1, 2)], 2, (30_000, 30_010))


@case("stuck-reader")
def a_fault_long_ago(book: Pages) -> None:
    _waited(book)
    book.fault(3_000, 8_000)


@case("stuck-reader")
def a_fault_that_found_no_target(book: Pages) -> None:
    _waited(book)
    book.missed(1, 20_000, "target")


@case("stuck-reader")
def a_fault_whose_trigger_never_came(book: Pages) -> None:
    _waited(book)
    book.missed(1, 29_000, "trigger")


@case()
def a_fault_that_may_have_begun_although_it_failed(book: Pages) -> None:
    _waited(book)
    book.missed(1, 20_000, "inject")


@case("stuck-reader")
def a_fault_that_was_not_to_begin_before_the_reader_gave_up(book: Pages) -> None:
    _waited(book)
    book.fault(40_000, 50_000)
    book.faults[0]["time"], book.faults[0]["not_before"] = 0, 40_000_000_000


@case()
def a_fault_that_may_have_begun_before_it_was_written_down(book: Pages) -> None:
    _waited(book)
    book.fault(40_000, 50_000)
    book.faults[0]["time"], book.faults[0]["not_before"] = 0, 29_000_000_000


@case()
def one_empty_poll(book: Pages) -> None:
    _waited(book, 1)


@case()
def a_reader_that_gets_on_one_record_at_a_time(book: Pages) -> None:
    book.send(list(range(1, 32)), 0, (900, 1_000))
    for turn in range(30):
        book.poll(turn, [(turn, turn + 1)], turn + 1, (2_000 + turn * 1_000, 2_010 + turn * 1_000))


@case()
def paused(book: Pages) -> None:
    book.send([1, 2], 0, (900, 1_000))
    book.poll(0, [(0, 1)], 1, (1_100, 1_110))
    book.poll(1, [], 1, (2_000, 2_010))
    book.poll(1, [], 1, (2_100, 2_110))
    book.poll(1, [], 1, (2_200, 2_210))
    book.poll(1, [], 1, (29_000, 29_010))


@case()
def at_the_end_of_the_log(book: Pages) -> None:
    _waited(book)
    book.rows = [row for row in book.rows if row["value"] != 2]


@case()
def acknowledged_just_now(book: Pages) -> None:
    _waited(book)
    book.rows = [row for row in book.rows if row["value"] != 2]
    book.send([2], 1, (25_000, 25_010), process=3)


@case()
def a_fault_in_the_way(book: Pages) -> None:
    _waited(book)
    book.fault(3_000, 25_000)


@case()
def a_fault_that_is_not_over(book: Pages) -> None:
    _waited(book)
    book.fault(3_000, None)


@case()
def other_partitions_filled_the_answers(book: Pages) -> None:
    _waited(book, shown=True)


@case()
def a_new_assignment(book: Pages) -> None:
    _waited(book)
    for turn, row in enumerate(row for row in book.rows if row["kind"].startswith("observe") and row["position"] == 1):
        row["assignment"] = 2 + turn // 20


def _apart(book: Pages, number: int) -> list[Row]:
    """The rows with names, numbers and values of their own, so that many books make one history."""
    far = 1_000 * number
    return [
        row
        | {
            "key": row["key"].replace("orders", f"t{number}", 1),
            "op": row["op"] + far,
            "process": row["process"] + far,
            "request": None if row["request"] is None else row["request"] + far,
            "value": row["value"]
            if row["value"] is None or row["kind"] in ("setting", "waited")
            else row["value"] + far,
        }
        for row in book.rows
    ]


def histories() -> list[tuple[list[Row], list[Row], Contract]]:
    """Rows, faults and contract. Cases with one contract are one history; one with a fault is a history alone."""
    together: dict[Any, tuple[list[Row], list[Row], Contract]] = {}
    for number, case in enumerate(CASES):
        book = Pages()
        case.make(book)
        own = tuple(key.replace("orders", f"t{number}") for key in case.contract.compacted)
        contract = replace(case.contract, compacted=())
        rows, faults, common = together.get(number if book.faults else contract, ([], [], contract))
        common = replace(common, compacted=(*common.compacted, *own))
        made = ([*rows, *_apart(book, number)], [*faults, *book.faults], common)
        together[number if book.faults else contract] = made
    return list(together.values())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Finding]]:
    """Returns what was found of each case."""
    reported: dict[str, list[Finding]] = {case.make.__name__: [] for case in CASES}
    for rows, faults, contract in histories():
        with SQLite() as engine:
            all_found = found(engine, tmp_path_factory.mktemp("recorded"), rows, faults, contract)
        for finding in all_found:
            assert finding.key is not None
            number = int(finding.key.partition("-")[0].partition("#")[0][1:])
            reported[CASES[number].make.__name__].append(finding)
    return reported


@pytest.mark.parametrize("case", CASES, ids=[case.make.__name__ for case in CASES])
def test_by_hand(recorded: dict[str, list[Finding]], case: Case) -> None:
    reported = recorded[case.make.__name__]
    assert {finding.anomaly for finding in reported} == case.expected
    for finding in reported:
        assert finding.operations
        assert finding.claim.endswith(".")
        assert "None" not in finding.claim
        assert "unknown process" not in finding.claim


@pytest.mark.parametrize(
    ("kept", "created", "expected"),
    [
        (-1, -(2**62), {"forbidden-deletion"}),
        (-1, 2**62, {"forbidden-deletion"}),
        (HOUR, -(2**62), set()),
        (HOUR, 2**62, {"forbidden-deletion"}),
    ],
)
def test_a_create_time_may_be_any_number(kept: int, created: int, expected: set[str], tmp_path: Path) -> None:
    """Clients choose them, some in microseconds. In nanoseconds these have no place in 64 bits."""
    book = Pages()
    book.dated([9], 9, (10, 20), process=8)
    _deleted(book, timestamp=created)
    _asked(book, 150, 3, (60_000, 60_005))
    with DuckDB() as engine:
        reported = found(engine, tmp_path, book.rows, [], replace(PROMISED, retention_ms=kept))
    assert {finding.anomaly for finding in reported} & {"forbidden-deletion"} == expected


def test_two_engines_say_the_same_of_all_cases_with_the_usual_contract_and_of_what_may_go_with_the_power_of_all(
    tmp_path: Path, other: Opens
) -> None:
    """Only the longest history is judged, because Spark takes longer to make a log's tables than to query them."""
    rows, faults, contract = max(histories(), key=lambda history: len(history[0]))
    log = Log().run(20).power_loss([1, 2]).run(30).power_loss([1, 2, 3, 4, 5]).run(10)
    assert log.judged(tmp_path / "power", POWER_CONTRACT).anomalies[UNFLUSHED_LOSS] == 6
    power = HistoryReader(tmp_path / "power" / "history")
    apart = 10**9
    rows = [*rows, *(row | {"op": row["op"] + apart, "process": row["process"] + apart} for row in log.book.rows)]
    events = power.table("events").to_pylist()
    folder = write(tmp_path / "history", rows, faults=[*faults, *log.faults], events=events)
    contract = replace(contract, unflushed=POWER_CONTRACT.unflushed)
    with other(len(rows)) as second, DuckDB() as duck:
        by_other, by_duck = (
            _everything(engine, folder, contract, (*UNFLUSHED.checks, LOST_WRITE, VANISHED))
            for engine in (second, duck)
        )
    assert by_other == by_duck
    assert len({finding.anomaly for finding in by_duck} & set(STATEMENTS.anomalies)) > 4
    gone = Counter(finding.anomaly for finding in by_duck if finding.key == log.book.key)
    assert gone[UNFLUSHED_LOSS] == 6
    assert gone["vanished"] > 0


def test_every_anomaly_has_a_case_with_it_alone_and_others_without() -> None:
    for anomaly in STATEMENTS.anomalies:
        assert any(case.expected == {anomaly} for case in CASES), anomaly
        assert sum(anomaly not in case.expected for case in CASES) > 1


def _everything(engine: Engine, folder: Path, contract: Contract, others: tuple[Check, ...] = ()) -> list[Finding]:
    """By all statements, and by checks of the log that are not about the order of polls."""
    register_history(engine, folder)
    register_contract(engine, contract)
    assert UNFLUSHED.prepare is not None
    UNFLUSHED.prepare(engine)
    create_views(engine, (*LOG.views, *(view for view in LOG_TABLES if view not in POLL_VIEWS)))
    create_views(engine, STATEMENT_TABLES)
    reported = []
    for check in (*others, *(one for one in STATEMENTS.checks if one is not ANSWER_BEYOND_LOG), ANSWER_BEYOND_LOG):
        if check is ANSWER_BEYOND_LOG and not contract.unflushed:  # of linearizable ends; end-too-low is of others
            register_contract(engine, replace(contract, linearizable_ends=True))
        create_views(engine, check.views)
        reported += read_findings(engine, check)
    return reported


def test_two_engines_say_the_same_of_all_cases(tmp_path: Path, other: Opens) -> None:
    """With one contract for all, and nothing that only some cases have: what is found is beside the point."""
    rows: list[Row] = []
    faults: list[Row] = []
    for number, case in enumerate(CASES):
        book = Pages()
        case.make(book)
        rows += _apart(book, number)
        faults += [row | {"id": row["id"] + 10_000 * number} for row in book.faults if number == len(CASES) - 1]
    folder = write(tmp_path / "history", rows, faults=faults)
    with other(len(rows)) as second, DuckDB() as duck:
        by_other, by_duck = (_everything(engine, folder, PROMISED) for engine in (second, duck))
    assert by_other == by_duck
    assert {finding.anomaly for finding in by_duck} == set(STATEMENTS.anomalies)
