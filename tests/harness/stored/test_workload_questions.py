"""``assay check --workload``: for each workload a history with its anomaly, its nearest legal neighbour, and one as the
original tool writes it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.verdict import Judgement
from assay.checkers.workload_checks.counters import find_reachable_sums
from assay.checkers.workload_checks.workload_result import describe_some
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.foreign import ForeignFormat
from assay.harness.stored.recognised_workload import recognise_workload
from assay.harness.stored.workload_table import BY_NAME, TABLE

from helpers.nightly import a_share_by_day
from helpers.workload_files import Event, done, edn

Ends = tuple[str, dict[str, int]]
Case = tuple[str, list[Event], Sequence[str], Ends]
"""Workload, events, options, and how the check ends."""

PASS: Ends = ("pass", {})


def fail(anomaly: str, count: int = 1) -> Ends:
    return ("fail", {anomaly: count})


def adds(*elements: object, f: str = "add", type: str = "ok") -> list[Event]:
    return [event for element in elements for event in done(0, f, str(element), type=type)]


def read(returned: str, process: int = 1, called: str = "nil", type: str = "ok", f: str = "read") -> list[Event]:
    return done(process, f, called, returned, type)


def during(outer: Event, inner: list[Event], returned: str) -> list[Event]:
    """An operation during which others take place."""
    process, _, f, called = outer
    return [(process, "invoke", f, called), *inner, (process, "ok", f, returned)]


OPEN_READ: Event = (7, "invoke", "read", "nil")

SETS: dict[str, Case] = {
    "the final read lacks an element": ("set", [*adds(1, 2), *read("#{1}")], [], fail("set-lost")),
    "it lacks one of unknown outcome": ("set", [*adds(1), *adds(2, type="info"), *read("#{1}")], [], PASS),
    "it shows one of unknown outcome": ("set", [*adds(1), *adds(2, type="info"), *read("#{1 2}")], [], PASS),
    "it shows one that no one added": ("set", [*adds(1), *read("#{1 3}")], [], fail("set-phantom")),
    "only the last read counts": ("set", [*adds(1, 2), *read("#{2}"), *read("#{1 2}")], [], PASS),
    "unless more is asked": (
        "set", [*adds(1, 2), *read("#{2}"), *read("#{1 2}")], ["--linearizable"],
        ("fail", {"set-stale": 1, "nonlinearizable": 1}),
    ),
    "it was never read": ("set", adds(1, 2), [], ("unknown", {})),
    "elements of text": ("set", [*adds('"a"', ":b", "[3]"), *read('#{"a" :b}')], [], fail("set-lost")),
    "elements of text, all there": ("set", [*adds('"a"', ":b", "[3]"), *read('#{"a" :b [3]}')], [], PASS),
    "a stale read": ("set-full", [*adds(1), *read("#{}"), *read("#{1}")], [], PASS),
    "a stale read is asked for": (
        "set-full", [*adds(1), *read("#{}"), *read("#{1}")], ["--linearizable"],
        ("fail", {"set-stale": 1, "nonlinearizable": 1}),
    ),
    "an element comes and goes": ("set-full", [*adds(1), *read("#{1}"), *read("#{}"), *read("#{1}")], [], PASS),
    "an element is gone": ("set-full", [*adds(1), *read("#{1}"), *read("#{}")], [], fail("set-vanished")),
    "an element never came": ("set-full", [*adds(1), *read("#{}")], [], fail("set-lost")),
    "the add went on": ("set-full", [*adds(0), *during((0, "", "add", "1"), read("#{0}"), "1")], [], PASS),
    "nothing was ever shown": ("set-full", during((0, "", "add", "1"), read("#{}"), "1"), [], ("unknown", {})),
    "one of unknown outcome was seen, and is gone": (
        "set-full", [*adds(1, type="info"), *read("[1]"), *read("[]")], [], fail("set-vanished"),
    ),
    "a read called before the last one": (
        "set-full", [*adds(1), OPEN_READ, *read("[1]"), (7, "ok", "read", "[]")], [], PASS,
    ),
    "two reads in two orders": (
        "set-full",
        [(0, "invoke", "add", "1"), (2, "invoke", "add", "2"), OPEN_READ, *read("[2]"), (7, "ok", "read", "[1]"),
         (0, "ok", "add", "1"), (2, "ok", "add", "2"), *read("[1 2]")],
        [], PASS,
    ),
    "as Maelstrom writes its grow-only set": ("g-set", [*adds(0, 1), *read("[1 0]"), *read("[0 1]", 2)], [], PASS),
    "its set loses one": ("g-set", [*adds(0, 1), *read("[1 0]"), *read("[0]", 2)], [], fail("set-vanished")),
    "a message reaches a node late": (
        "broadcast", [*adds(0, 1, f="broadcast"), *read("[1]"), *read("[0 1]", 2)], [], PASS,
    ),
    "a message is asked for at once": (
        "broadcast", [*adds(0, 1, f="broadcast"), *read("[1]"), *read("[0 1]", 2)], ["--linearizable"],
        ("fail", {"set-stale": 1, "nonlinearizable": 1}),
    ),
    "a message never arrives": (
        "broadcast", [*adds(0, 1, f="broadcast"), *read("[0 1]"), *read("[0]", 2)], [], fail("set-vanished"),
    ),
    "an update is lost": (
        "lost-updates", [*adds("[5 1]", "[5 2]", "[6 1]"), *read("[5 [1]]", called="[5 nil]"),
                         *read("[6 [1]]", called="[6 nil]")], [], fail("set-lost"),
    ),
    "an update that failed": (
        "lost-updates", [*adds("[5 1]"), *adds("[5 2]", type="fail"), *read("[5 #{1}]", called="[5 nil]")], [], PASS,
    ),
}  # fmt: skip

COUNTERS: dict[str, Case] = {
    "a read of a failed add": ("counter", [*adds(1, type="fail"), *read("1")], [], fail("counter-out-of-bounds")),
    "a read of an add of unknown outcome": ("counter", [*adds(1, type="info"), *read("1")], [], PASS),
    "a read during an add": ("counter", during((0, "", "add", "2"), [*read("0"), *read("2")], "2"), [], PASS),
    "of half an add": ("counter", during((0, "", "add", "2"), [*read("1"), *read("2")], "2"), [], PASS),
    "half an add is asked for": (
        "counter", during((0, "", "add", "2"), [*read("1"), *read("2")], "2"), ["--linearizable"],
        fail("nonlinearizable"),
    ),
    "a read too low": ("counter", [*adds(1, 2), *read("2")], [], fail("counter-out-of-bounds")),
    "as Jepsen writes it": ("counter", [*adds(1, 1, 1), *read("3"), *adds(1), *read("4")], [], PASS),
    "a counter that goes down": ("counter", [*adds(5, -2), *read("3"), *read("5")], [], fail("counter-out-of-bounds")),
    "a final read lacks an add": ("g-counter", [*adds(1, 2), *read("3"), *read("2", 2)], [], fail("counter-wrong-sum")),
    "a read before the end lacks it": ("g-counter", [*adds(1), *read("0"), *adds(2), *read("3")], [], PASS),
    "half of an unknown add": ("pn-counter", [*adds(4, type="info"), *read("2")], [], fail("counter-wrong-sum")),
    "all of an unknown add": ("pn-counter", [*adds(3, -1), *adds(4, type="info"), *read("6")], [], PASS),
    "none of it": ("pn-counter", [*adds(3, -1), *adds(4, type="info"), *read("2")], [], PASS),
    "one order is asked for": (
        "pn-counter", [*adds(1), *read("0"), *adds(2), *read("3")], ["--linearizable"], fail("nonlinearizable"),
    ),
    "no read at the end": ("pn-counter", [*read("0"), *adds(3)], [], ("unknown", {})),
}  # fmt: skip

QUEUES: dict[str, Case] = {
    "an element from nowhere": (
        "queue", [*adds(1, f="enqueue"), *read("2", f="dequeue")], [], fail("queue-phantom"),
    ),
    "one of unknown outcome": ("queue", [*adds(1, f="enqueue", type="info"), *read("1", f="dequeue")], [], PASS),
    "an element comes out twice": (
        "queue", [*adds(1, f="enqueue"), *read("1", f="dequeue"), *read("1", f="dequeue")], [], fail("queue-duplicate"),
    ),
    "elements stay inside": ("queue", [*adds(1, 2, f="enqueue"), *read("2", f="dequeue")], [], PASS),
    "the order is asked for": (
        "queue", [*adds(1, 2, f="enqueue"), *read("2", f="dequeue")], ["--linearizable"], fail("nonlinearizable"),
    ),
    "an element is lost": (
        "total-queue", [*adds(1, 2, f="enqueue"), *read("[2]", f="drain")], [], fail("queue-lost"),
    ),
    "as Jepsen writes a drain": (
        "total-queue", [*adds(1, 2, f="enqueue"), *read("1", f="dequeue"), *read("[2]", f="drain")], [], PASS,
    ),
    "it is drained by dequeues": (
        "total-queue",
        [*adds('"a"', f="enqueue"), *read('"a"', f="dequeue"), *read(":empty", f="dequeue", type="fail")],
        [], PASS,
    ),
    "a total queue may repeat itself": (
        "total-queue", [*adds(1, f="enqueue"), *read("1", f="dequeue"), *read("[1]", f="drain")], [],
        ("pass", {"queue-duplicate": 1}),
    ),
    "unless more is asked of it": (
        "total-queue", [*adds(1, f="enqueue"), *read("1", f="dequeue"), *read("[1]", f="drain")], ["--linearizable"],
        fail("queue-duplicate"),
    ),
    "a drain in the order of the queue": (
        "queue", [*adds(1, 2, 3, f="enqueue"), *read("1", f="dequeue"), *read("[2 3]", f="drain")], ["--linearizable"],
        PASS,
    ),
    "a drain in another order": (
        "queue", [*adds(1, 2, f="enqueue"), *read("[2 1]", f="drain")], ["--linearizable"], fail("nonlinearizable"),
    ),
    "a set of drained elements has no order": (
        "queue", [*adds(2, 1, f="enqueue"), *read("#{1 2}", f="drain")], ["--linearizable"], PASS,
    ),
    "two drains at once": (
        "queue",
        [*adds(1, 2, 3, 4, f="enqueue"), (7, "invoke", "drain", "nil"), *read("[2 3]", f="drain"),
         (7, "ok", "drain", "[1 4]")],
        ["--linearizable"], PASS,
    ),
    "two drains at once, one in another order": (
        "queue",
        [*adds(1, 2, 3, 4, f="enqueue"), (7, "invoke", "drain", "nil"), *read("[2 3]", f="drain"),
         (7, "ok", "drain", "[4 1]")],
        ["--linearizable"], fail("nonlinearizable"),
    ),
    "an enqueue during a drain": (
        "queue",
        [*adds(1, f="enqueue"), (7, "invoke", "drain", "nil"), *adds(2, f="enqueue"), (7, "ok", "drain", "[1 2]")],
        ["--linearizable"], PASS,
    ),
    "the order beside a drain of unknown outcome": (
        "queue",
        [*adds(1, 2, f="enqueue"), *read("nil", f="drain", type="info"), *read("2", f="dequeue", process=2)],
        ["--linearizable"], ("unknown", {}),
    ),
    "a drain that failed took nothing": (
        "queue",
        [*adds(1, 2, f="enqueue"), *read(":timeout", f="drain", type="fail"), *read("2", f="dequeue")],
        ["--linearizable"], fail("nonlinearizable"),
    ),
    "a drain of unknown outcome": (
        "total-queue", [*adds(1, f="enqueue"), *read("nil", f="drain", type="info")], [], ("unknown", {}),
    ),
}  # fmt: skip

REGISTERS: dict[str, Case] = {
    "a stale read of a register": (
        "register", [*adds(1, 2, f="write"), *read("1")], [], fail("stale-read"),
    ),
    "a read of the last write": ("register", [*adds(1, 2, f="write"), *read("2")], [], PASS),
    "as Jepsen writes registers under keys": (
        "cas-register",
        [*adds("[0 3]", f="write"), *done(1, "cas", "[0 [3 4]]"), *done(2, "cas", "[0 [3 1]]", type="fail"),
         *read("[0 4]", called="[0 nil]")],
        [], PASS,
    ),
    "a compare-and-set of another value": (
        "cas-register",
        [*adds("[0 3]", f="write"), *done(1, "cas", "[0 [4 5]]"), *read("[0 5]", called="[0 nil]")],
        [], fail("missing-writer"),
    ),
    "as Maelstrom writes its store": (
        "lin-kv",
        [*read("[0 nil]", called="[0 nil]", type="fail"), *adds("[0 3]", f="write"), *read("[0 3]", called="[0 nil]")],
        [], PASS,
    ),
    "its store forgets": (
        "lin-kv", [*adds("[0 3]", "[0 3]", f="write"), *read("[0 nil]", called="[0 nil]")], [], fail("nonlinearizable"),
    ),
    "two registers at once": (
        "multi-register",
        [*done(0, "write", "[[:w 0 1] [:w 1 2]]"), *done(1, "read", "[[:r 0 nil] [:r 1 nil]]", "[[:r 0 1] [:r 1 2]]")],
        [], PASS,
    ),
    "half of a transaction": (
        "multi-register",
        [*done(0, "write", "[[:w 0 1] [:w 1 1]]"), *done(0, "write", "[[:w 0 2] [:w 1 2]]"),
         *done(1, "read", "[[:r 0 nil] [:r 1 nil]]", "[[:r 0 1] [:r 1 2]]")],
        [], fail("nonlinearizable"),
    ),
    "registers under keys": (
        "multi-register",
        [*done(0, "txn", "[7 [[:w 0 1]]]"), *done(1, "txn", "[7 [[:r 0 nil]]]", "[7 [[:r 0 1]]]")],
        [], PASS,
    ),
    "registers under keys that are tagged": (
        "multi-register",
        [*done(0, "txn", "#jepsen.independent.Tuple[7 [[:w 0 1]]]"),
         *done(1, "txn", "#jepsen.independent.Tuple[7 [[:r 0 nil]]]", "#jepsen.independent.Tuple[7 [[:r 0 1]]]")],
        [], PASS,
    ),
    "a register of another key": (
        "multi-register",
        [*done(0, "txn", "[7 [[:w 0 1]]]"), *done(1, "txn", "[8 [[:r 0 nil]]]", "[8 [[:r 0 1]]]")],
        [], fail("nonlinearizable"),
    ),
    "a lock is held twice": (
        "mutex", [*done(0, "acquire", "nil"), *done(1, "acquire", "nil")], [], fail("nonlinearizable"),
    ),
    "a lock is handed on": (
        "mutex", [*done(0, "acquire", "nil"), *done(0, "release", "nil"), *done(1, "acquire", "nil")], [], PASS,
    ),
    "two locks": (
        "locks", [*done(0, "acquire", "[1 nil]"), *done(1, "acquire", "[2 nil]")], ["--keys=tuples"], PASS,
    ),
    "another process releases a lock": (
        "locks", [*done(0, "acquire", "nil"), *done(1, "release", "nil")], [], fail("nonlinearizable"),
    ),
    "a register that began with 0": (
        "register", [*read("0"), *done(1, "cas", "[0 1]"), *read("1")], ["--initial=0"], PASS,
    ),
    "one of two locks is held twice": (
        "locks", [*done(0, "acquire", "[1 nil]"), *done(1, "acquire", "[1 nil]")], ["--keys=tuples"],
        fail("nonlinearizable"),
    ),
}  # fmt: skip

BANKS: dict[str, Case] = {
    "named accounts": (
        "bank",
        [*read("{:alice 5, :bob 5}"), *done(0, "transfer", "{:from :alice, :to :bob, :amount 2}"),
         *read("{:alice 3, :bob 7}")],
        [], PASS,
    ),
    "named accounts, half of a transfer": (
        "bank",
        [*read('{"alice" 5, "bob" 5}'), *done(0, "transfer", '{:from "alice", :to "bob", :amount 2}'),
         *read('{"alice" 3, "bob" 5}')],
        ["--total=10"], ("fail", {"bank-total": 1, "bank-unaccounted": 1}),
    ),
    "less than nothing": (
        "bank", [*read("{1 1, 2 1}"), *done(0, "transfer", "{:from 1, :to 2, :amount 2}"), *read("{1 -1, 2 3}")], [],
        fail("bank-negative"),
    ),
    "less than nothing is allowed": (
        "bank", [*read("{1 1, 2 1}"), *done(0, "transfer", "{:from 1, :to 2, :amount 2}"), *read("{1 -1, 2 3}")],
        ["--negative-balances"], ("pass", {"bank-negative": 1}),
    ),
}  # fmt: skip


def series(*parts: str) -> list[Event]:
    return read(f"[5 [{' '.join(parts)}]]", called="5")


VISIBILITY: dict[str, Case] = {
    "a write before its cause": ("causal-reverse", [*adds(1, 2, f="write"), *read("[2]")], [], fail("causal-reverse")),
    "a write that was not there yet": ("causal-reverse", [*adds(1, 2, f="write"), *read("[1]")], [], PASS),
    "two writes at once": (
        "causal-reverse", during((0, "", "write", "1"), done(2, "write", "2"), "1") + read("[2]"), [], PASS,
    ),
    "a write that failed is seen": (
        "causal-reverse", [*done(0, "write", "1"), *done(0, "write", "2", type="fail"), *read("[1 2]")], [],
        fail("failed-write-read"),
    ),
    "only a write that failed is seen": (
        "causal-reverse", [*done(0, "write", "1"), *done(0, "write", "2", type="fail"), *read("[2]")], [],
        fail("failed-write-read"),
    ),
    "a write that failed is not seen": (
        "causal-reverse", [*done(0, "write", "1"), *done(0, "write", "2", type="fail"), *read("[1]")], [], PASS,
    ),
    "a write that failed is repeated and seen": (
        "causal-reverse",
        [*done(0, "write", "1"), *done(0, "write", "2", type="fail"), *done(0, "write", "2"), *read("[1 2]")], [], PASS,
    ),
    "a write of unknown outcome is seen in a set": (
        "causal-reverse", [*done(0, "write", "1"), *done(0, "write", "2", type="info"), *read("[1 2]", 1)], [], PASS,
    ),
    "a value that no one wrote": (
        "causal-reverse", [*done(0, "write", "1"), *read("[1 3]")], [], fail("unwritten-read"),
    ),
    "a value that is written after the read": (
        "causal-reverse", [*done(0, "write", "1"), *read("[1 3]"), *done(0, "write", "3")], [], fail("unwritten-read"),
    ),
    "a value that is written during the read": (
        "causal-reverse",
        [*done(0, "write", "1"), *during((2, "", "read", "nil"), done(0, "write", "3"), "[1 3]")], [], PASS,
    ),
    "as Jepsen writes comments": (
        "comments",
        [*adds("[0 1]", "[0 2]", "[1 3]", f="write"), *read("[0 #{1 2}]", called="[0 nil]"),
         *read("[1 #{3}]", called="[1 nil]")],
        [], PASS,
    ),
    "a comment before the one that it answers": (
        "comments", [*adds("[0 1]", "[0 2]", f="write"), *read("[0 #{2}]", called="[0 nil]")], [],
        fail("causal-reverse"),
    ),
    "the last part without the first": (
        "sequential", [*adds(5, f="write"), *series('"5_2"', '"5_1"', "nil")], [], fail("nonsequential-read"),
    ),
    "the first parts": ("sequential", [*adds(5, f="write"), *series("nil", '"5_1"', '"5_0"')], [], PASS),
    "both parts of a series with a key": (
        "sequential",
        [*adds("#jepsen.independent.Tuple[5 5]", f="write"),
         *read('#jepsen.independent.Tuple[5 ["5_1" "5_0"]]', called="#jepsen.independent.Tuple[5 nil]")],
        [], PASS,
    ),
    "the second of two parts of a series with a key": (
        "sequential",
        [*adds("#jepsen.independent.Tuple[5 5]", f="write"),
         *read('#jepsen.independent.Tuple[5 ["5_1" nil]]', called="#jepsen.independent.Tuple[5 nil]")],
        [], fail("nonsequential-read"),
    ),
    "no part": ("sequential", [*adds(5, f="write"), *series("nil", "nil", "nil")], [], PASS),
    "as Jepsen writes a causal order": (
        "causal",
        [*read("[0 0]", f="read-init", called="[0 nil]"), *done(1, "write", "[0 1]"), *read("[0 1]", called="[0 nil]"),
         *done(1, "write", "[0 2]"), *read("[0 2]", called="[0 nil]")],
        [], PASS,
    ),
    "a read before its write": (
        "causal",
        [*read("[0 0]", f="read-init", called="[0 nil]"), *done(1, "write", "[0 1]"), *read("[0 0]", called="[0 nil]")],
        [], fail("noncausal-read"),
    ),
    "a write of unknown outcome is not seen": (
        "causal",
        [*read("[0 0]", f="read-init", called="[0 nil]"), *done(1, "write", "[0 1]", type="info"),
         *read("[0 0]", 2, called="[0 nil]")],
        [], PASS,
    ),
    "and is seen": (
        "causal",
        [*read("[0 0]", f="read-init", called="[0 nil]"), *done(1, "write", "[0 1]", type="info"),
         *read("[0 1]", 2, called="[0 nil]"), *done(2, "write", "[0 2]")],
        [], PASS,
    ),
}  # fmt: skip


def linked(*steps: tuple[str, int, int, str]) -> list[Event]:
    """Operations of one causal register, each with its value, its position and its link."""
    events = []
    for f, value, position, link in steps:
        called, ended = done(1, f, f"[0 {value if f == 'write' else 'nil'}]", f"[0 {value}]")
        events += [called, (*ended[:3], f"{ended[3]} :position {position} :link {link}")]
    return events


LINKS: dict[str, Case] = {
    "as Jepsen links a causal order": (
        "causal", linked(("read-init", 0, 1, ":init"), ("write", 1, 2, "1"), ("read", 1, 3, "2")), [], PASS,
    ),
    "a link to an older position": (
        "causal", linked(("read-init", 0, 1, ":init"), ("write", 1, 2, "1"), ("read", 1, 3, "1")), [],
        fail("noncausal-read"),
    ),
    "a link to no position": ("causal", linked(("read", 0, 1, "5")), [], fail("noncausal-read")),
}  # fmt: skip


def rows(*shown: tuple[int, int], process: bool = False) -> list[Event]:
    """A read of rows with values and times. Each row may name a process."""
    named = [f"{{:val {value}, :sts {time}N, :node 1{f' :proc {value}' * process}}}" for value, time in shown]
    return read(f"[{' '.join(named)}]")


INSERTED = [
    *done(0, "add", "0", "{:val -1, :sts 0, :node -1, :tb -1}"),
    *done(0, "add", "1", "{:val 0, :sts 5, :node 1, :tb 0}"),
]  # fmt: skip
"""Two inserts, as CockroachDB's test records them: each returns the row before."""
ROWS: dict[str, Case] = {
    "as the test of CockroachDB writes it": ("monotonic-rows", [*INSERTED, *rows((-1, 0), (0, 5), (1, 9))], [], PASS),
    "a row is lost": ("monotonic-rows", [*INSERTED, *rows((-1, 0), (1, 9))], [], fail("row-lost")),
    "only the last read of rows counts": (
        "monotonic-rows", [*INSERTED, *rows((-1, 0)), *rows((-1, 0), (0, 5), (1, 9))], [], PASS,
    ),
    "a row comes twice": ("monotonic-rows", [*rows((1, 5), (1, 7))], [], fail("row-duplicate")),
    "values in another order than times": ("monotonic-rows", [*rows((2, 5), (1, 7))], [], fail("row-out-of-order")),
    "two rows of one time": ("monotonic-rows", [*rows((2, 5), (1, 5))], [], PASS),
    "times that fall": ("monotonic-rows", [*rows((2, 7), (1, 5))], [], fail("row-times-fall")),
    "rows of two processes": ("monotonic-rows", [*rows((2, 5), (1, 7), process=True)], [], PASS),
    "their order is asked for": (
        "monotonic-rows", [*rows((2, 5), (1, 7), process=True)], ["--linearizable"], fail("row-out-of-order"),
    ),
    "rows were never read": ("monotonic-rows", INSERTED, [], ("unknown", {})),
}  # fmt: skip

PHENOMENA: dict[str, Case] = {
    "two inserts": (
        "adya-g2", [*done(0, "insert", "[7 [1 nil]]"), *done(1, "insert", "[7 [nil 2]]")], [], fail("G2-predicate"),
    ),
    "one insert, as Jepsen writes it": (
        "adya-g2", [*done(0, "insert", "[7 [1 nil]]"), *done(1, "insert", "[7 [nil 2]]", type="fail")], [], PASS,
    ),
    "inserts of two keys": ("g2", [*done(0, "insert", "[7 [1 nil]]"), *done(1, "insert", "[8 [nil 2]]")], [], PASS),
    "rows of a failed write": (
        "dirty-reads", [*adds(1, f="write"), *adds(2, f="write", type="fail"), *read("[1 2 1]")], [],
        fail("dirty-read"),
    ),
    "a set of rows of a failed write": (
        "dirty-reads", [*adds(1, f="write"), *adds(2, f="write", type="fail"), *read("#{1 2}")], [],
        fail("dirty-read"),
    ),
    "rows of a write of unknown outcome": (
        "dirty-reads", [*adds(1, f="write"), *adds(2, f="write", type="info"), *read("[1 2 1]")], [], PASS,
    ),
    "a value that no strong read has": (
        "dirty-reads",
        [*adds(1, f="write"), *adds(2, f="write", type="info"), *read("2", called="2"),
         *read("#{1}", f="strong-read"), *read("#{1}", 2, f="strong-read")],
        [], fail("dirty-read"),
    ),
    "a failed write that strong reads show": (
        "dirty-reads",
        [*adds(1, f="write"), *adds(2, f="write", type="fail"), *read("#{1 2}", f="strong-read")], [],
        fail("dirty-read"),
    ),
    "a failed write that no strong read shows": (
        "dirty-reads", [*adds(1, f="write"), *adds(2, f="write", type="fail"), *read("#{1}", f="strong-read")], [],
        PASS,
    ),
    "a write of unknown outcome that strong reads show": (
        "dirty-reads", [*adds(1, f="write"), *adds(2, f="write", type="info"), *read("#{1 2}", 1, f="strong-read")], [],
        PASS,
    ),
    "a failed write that was read": (
        "dirty-reads",
        [*adds(1, f="write"), *adds(2, f="write", type="fail"), *read("2", called="2"),
         *read("#{1}", f="strong-read")],
        [], fail("dirty-read"),
    ),
    "as Jepsen writes strong reads": (
        "dirty-reads",
        [*adds(1, f="write"), *read("2", called="2", type="fail"), *done(0, "refresh", "nil"),
         *read("#{1}", f="strong-read"), *read("#{1}", 2, f="strong-read")],
        [], PASS,
    ),
    "an acknowledged value that no strong read has": (
        "dirty-reads", [*adds(1, 2, f="write"), *read("#{1}", f="strong-read")], [], fail("lost-insert"),
    ),
    "strong reads that disagree": (
        "dirty-reads",
        [*adds(1, 2, f="write"), *read("#{1}", f="strong-read"), *read("#{1 2}", 2, f="strong-read")], [],
        fail("diverged-reads"),
    ),
}  # fmt: skip


def send(value: int, offset: int | None, process: int = 0, key: str = "1", type: str = "ok") -> list[Event]:
    called = f"[[:send {key} {value}]]"
    return done(process, "send", called, called if offset is None else f"[[:send {key} [{offset} {value}]]]", type)


def poll(pairs: str, process: int = 1, key: str = "1") -> list[Event]:
    return done(process, "poll", "[[:poll]]", f"[[:poll {{{key} [{pairs}]}}]]")


def txn(process: int, called: str, answered: str) -> list[Event]:
    return done(process, "txn", f"[{called}]", f"[{answered}]")


def assign(*keys: str, process: int = 1, f: str = "assign") -> list[Event]:
    return done(process, f, f"[{' '.join(keys)}]")


SENT = [*send(10, 0), *send(11, 1), *send(12, 5)]


def polled(messages: str, type: str) -> list[Event]:
    """A poll of process 2 that did not end ok, but shows what it polled."""
    return done(2, "poll", "[[:poll]]", f"[[:poll {{1 [{messages}]}}]]", type)


def rebalanced(keys: str) -> list[Event]:
    """A poll that skips offset 1, during which some keys were moved."""
    called, ended = done(1, "poll", "[[:poll]]", "[[:poll {1 [[0 10] [5 12]]}]]")
    return [called, (*ended[:3], f"{ended[3]} :rebalance-log [{{:keys [{keys}]}}]")]


KAFKA: dict[str, Case] = {
    "with gaps, as Jepsen writes it": (
        "kafka", [*assign("1"), *SENT, *poll("[0 10] [1 11]"), *poll("[5 12]")], [], PASS,
    ),
    "as Maelstrom writes it": (
        "kafka",
        [*assign('"1"'), *send(10, 0, key='"1"'), *done(0, "poll", "[[:poll]]", "[[:poll {}]]"),
         *poll("[0 10]", key='"1"'), *done(1, "crash", "nil", type="info")],
        [], PASS,
    ),
    "two values at one offset": ("kafka", [*SENT, *send(13, 5), *poll("[0 10] [1 11] [5 12]"), *poll("[5 13]", 2)], [],
                                 fail("inconsistent-offset")),
    "a value at two offsets": ("kafka", [*SENT, *poll("[0 10] [1 11] [5 12]"), *poll("[6 12]", 2)], [],
                               fail("duplicate")),
    "a failed send": ("kafka", [*send(9, None, type="fail"), *SENT, *poll("[0 10] [1 11] [5 12] [6 9]")], [],
                      fail("aborted-read")),
    "a send of unknown outcome": ("kafka", [*send(9, None, type="info"), *SENT, *poll("[0 10] [1 11] [5 12] [6 9]")],
                                  [], PASS),
    "one that was not polled": ("kafka", [*send(9, None, type="info"), *SENT, *poll("[0 10] [1 11] [5 12]")], [], PASS),
    "no one sent it": ("kafka", [*SENT, *poll("[0 10] [1 11] [5 12] [6 9]")], [], fail("phantom")),
    "a value is lost": ("kafka", [*SENT, *poll("[0 10]"), *poll("[5 12]", 2)], [], fail("lost-write")),
    "the last value is not seen": ("kafka", [*SENT, *poll("[0 10] [1 11]")], [], fail("unseen")),
    "a process skips": ("kafka", [*SENT, *poll("[0 10]"), *poll("[0 10] [1 11] [5 12]", 2), *poll("[5 12]")], [],
                        fail("poll-skip")),
    "a process that was assigned other keys may": (
        "kafka",
        [*SENT, *poll("[0 10]"), *poll("[0 10] [1 11] [5 12]", 2), *assign("2"), *assign("1"), *poll("[5 12]")], [],
        PASS,
    ),
    "a process that subscribed may": (
        "kafka",
        [*assign("1", f="subscribe"), *SENT, *poll("[0 10]"), *poll("[0 10] [1 11] [5 12]", 2), *poll("[5 12]")], [],
        ("pass", {"poll-skip": 1}),
    ),
    "a process goes back": ("kafka", [*SENT, *poll("[0 10] [1 11] [5 12]"), *poll("[1 11]")], [],
                            fail("nonmonotonic-poll")),
    "one poll skips": ("kafka", [*SENT, *poll("[0 10] [5 12]"), *poll("[0 10] [1 11]", 2)], [], fail("int-poll-skip")),
    "one poll goes back": ("kafka", [*SENT, *poll("[0 10] [1 11] [0 10]"), *poll("[5 12]", 2)], [],
                           fail("int-nonmonotonic-poll")),
    "sends go back": (
        "kafka", [*send(10, 3), *send(11, 1), *poll("[1 11] [3 10]")], [],
        ("fail", {"nonmonotonic-send": 1, "send-cycle": 1}),
    ),
    "sends of two processes do": ("kafka", [*send(10, 3), *send(11, 1, 2), *poll("[1 11] [3 10]")], [],
                                  ("pass", {"send-cycle": 1})),
    "a transaction's sends go back": (
        "kafka", [*txn(0, "[:send 1 10] [:send 1 11]", "[:send 1 [3 10]] [:send 1 [1 11]]"), *poll("[1 11] [3 10]")],
        [], fail("int-nonmonotonic-send"),
    ),
    "a transaction's sends skip": (
        "kafka",
        [(2, "invoke", "send", "[[:send 1 12]]"),
         *txn(0, "[:send 1 10] [:send 1 11]", "[:send 1 [0 10]] [:send 1 [2 11]]"),
         (2, "ok", "send", "[[:send 1 [1 12]]]"), *poll("[0 10] [1 12] [2 11]")],
        [], ("pass", {"int-send-skip": 1, "send-cycle": 1}),
    ),
    "a transaction polls its own value": (
        "kafka", txn(0, "[:send 1 10] [:poll]", "[:send 1 [0 10]] [:poll {1 [[0 10]]}]"), [],
        fail("precommitted-read"),
    ),
    "two transactions poll each other": (
        "kafka",
        [(0, "invoke", "txn", "[[:send 1 10] [:poll]]"), (1, "invoke", "txn", "[[:send 2 20] [:poll]]"),
         (0, "ok", "txn", "[[:send 1 [0 10]] [:poll {2 [[0 20]]}]]"),
         (1, "ok", "txn", "[[:send 2 [0 20]] [:poll {1 [[0 10]]}]]")],
        [], fail("G1c"),
    ),
    "one transaction polls the other": (
        "kafka",
        [(0, "invoke", "txn", "[[:send 1 10] [:poll]]"), (1, "invoke", "txn", "[[:send 2 20] [:poll]]"),
         (0, "ok", "txn", "[[:send 1 [0 10]] [:poll {2 [[0 20]]}]]"), (1, "ok", "txn", "[[:send 2 [0 20]] [:poll {}]]"),
         *poll("[0 10]", 2)],
        [], PASS,
    ),
    "a failed operation polls another value": (
        "kafka", [*SENT, *poll("[0 10] [1 11] [5 12]"), *polled("[0 11]", "fail")], [],
        ("fail", {"inconsistent-offset": 1, "duplicate": 1}),
    ),
    "one of unknown outcome does": (
        "kafka", [*SENT, *poll("[0 10] [1 11] [5 12]"), *polled("[0 11]", "info")], [],
        ("fail", {"inconsistent-offset": 1, "duplicate": 1}),
    ),
    "a failed operation does not move on": (
        "kafka", [*SENT, *poll("[0 10]", 2), *polled("[1 11] [5 12]", "fail"), *poll("[1 11] [5 12]", 2)], [], PASS,
    ),
    "the polls of a failed operation skip": (
        "kafka", [*SENT, *poll("[0 10] [1 11] [5 12]"), *polled("[0 10] [5 12]", "fail")], [], fail("int-poll-skip"),
    ),
    "a failed poll proves no value": (
        "kafka", [*SENT, *poll("[0 10] [1 11]"), *polled("[0 10] [1 11] [5 12]", "fail")], [], fail("unseen"),
    ),
    "the offset of a failed send": (
        "kafka",
        [*SENT, *done(3, "send", "[[:send 1 9]]", "[[:send 1 [1 9]]]", "fail"), *poll("[0 10] [1 11] [5 12]")], [],
        PASS,
    ),
    "the offset of an unknown send that was polled": (
        "kafka",
        [*SENT, *done(3, "send", "[[:send 1 9] [:send 1 8]]", "[[:send 1 [1 9]] [:send 1 [6 8]]]", "info"),
         *poll("[0 10] [1 11] [5 12] [6 8]")],
        [], ("fail", {"inconsistent-offset": 1, "lost-write": 1}),
    ),
    "the offset of an unknown send that was not polled": (
        "kafka",
        [*SENT, *done(3, "send", "[[:send 1 9]]", "[[:send 1 [1 9]]]", "info"), *poll("[0 10] [1 11] [5 12]")], [],
        PASS,
    ),
    "a poll skips while its key is moved": (
        "kafka", [*assign("1", f="subscribe"), *SENT, *poll("[0 10] [1 11] [5 12]", 2), *rebalanced("1")], [], PASS,
    ),
    "it skips while another key is moved": (
        "kafka", [*assign("1", f="subscribe"), *SENT, *poll("[0 10] [1 11] [5 12]", 2), *rebalanced("2")], [],
        fail("int-poll-skip"),
    ),
    "sends that do not interleave are asked for": (
        "kafka",
        [(2, "invoke", "send", "[[:send 1 12]]"),
         *txn(0, "[:send 1 10] [:send 1 11]", "[:send 1 [0 10]] [:send 1 [2 11]]"),
         (2, "ok", "send", "[[:send 1 [1 12]]]"), *poll("[0 10] [1 12] [2 11]")],
        ["--linearizable"], ("fail", {"int-send-skip": 1, "send-cycle": 1}),
    ),
    "sends that do not": (
        "kafka",
        [(2, "invoke", "send", "[[:send 1 12]]"),
         *txn(0, "[:send 1 10] [:send 1 11]", "[:send 1 [0 10]] [:send 1 [1 11]]"),
         (2, "ok", "send", "[[:send 1 [2 12]]]"), *poll("[0 10] [1 11] [2 12]")],
        ["--linearizable"], PASS,
    ),
    "a poll before its send": ("kafka", [*poll("[0 10]"), *send(10, 0)], [], fail("G1c-real-time")),
}  # fmt: skip


def skew(read: str, write: str) -> list[Event]:
    """Two transactions at once. Each reads the initial value of the key that the other one writes."""
    first, second = (f"[[:r :x {read}] [:{write} :y 1]]", f"[[:r :y {read}] [:{write} :x 2]]")
    return [
        (0, "invoke", "txn", first.replace(read, "nil")), (1, "invoke", "txn", second.replace(read, "nil")),
        (0, "ok", "txn", first), (1, "ok", "txn", second),
    ]  # fmt: skip


SNAPSHOT = "--level=snapshot-isolation"
INITIAL_READS: dict[str, Case] = {
    "write skew of initial values": ("rw-register", skew("nil", "w"), ["--level=serializable"], fail("G2-item")),
    "it is allowed": ("rw-register", skew("nil", "w"), [SNAPSHOT], PASS),
    "a list that no one appends to": (
        "list-append", [*done(0, "txn", "[[:r 1 nil]]", "[[:r 1 []]]"), *done(1, "txn", "[[:r 1 nil]]")], [],
        ("unknown", {}),  # no check of lists had an element
    ),
    "an element that no one appends": (
        "list-append", done(0, "txn", "[[:r 1 nil]]", "[[:r 1 [7]]]"), [], fail("garbage-read"),
    ),
    "a list that no one appends to, at a level": (
        "append", done(0, "txn", "[[:r 1 nil]]", "[[:r 1 []]]"), ["--level=serializable"], PASS,
    ),
    "a register whose value is an empty vector": (
        "rw-register", [*done(0, "txn", "[[:w 1 []]]"), *done(1, "txn", "[[:r 1 nil]]", "[[:r 1 []]]")],
        ["--level=serializable"], PASS,
    ),
    "a register with an empty vector that no one wrote": (
        "rw-register", done(1, "txn", "[[:r 1 nil]]", "[[:r 1 []]]"), ["--level=serializable"], fail("garbage-read"),
    ),
    "write skew of empty lists": ("list-append", skew("[]", "append"), ["--level=serializable"], fail("G2-item")),
    "it is allowed, too": ("list-append", skew("[]", "append"), [SNAPSHOT], PASS),
}  # fmt: skip

CASES = {
    **INITIAL_READS,
    **KAFKA,
    **SETS,
    **COUNTERS,
    **QUEUES,
    **REGISTERS,
    **BANKS,
    **VISIBILITY,
    **LINKS,
    **ROWS,
    **PHENOMENA,
}


def judge_file(path: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> Judgement:
    path.write_text(text)
    main(["check", str(path), *options, "--json"])
    return msgspec.json.decode(capsys.readouterr().out, type=Judgement)


@pytest.mark.parametrize("name", a_share_by_day(2, CASES))
def test_a_workload_is_judged_by_its_original_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    workload, events, options, ends = CASES[name]
    judgement = judge_file(tmp_path / "h.edn", capsys, edn(events), f"--workload={workload}", *options)
    assert (judgement.verdict.value, judgement.anomalies) == ends
    asked = next(one.note or "" for one in judgement.examined if one.check == f"workload {workload}")
    with_more = " with --linearizable" if "--linearizable" in options else ""
    level = next((f" by the isolation level {one[8:]}" for one in options if one.startswith("--level=")), ":")
    assert asked.startswith(f"judged as {workload}{with_more}{level}")


def test_each_workload_has_a_wrong_and_a_right_history() -> None:
    elsewhere = {"append", "list-append", "long-fork", "monotonic", "rw-register", "unique-ids"}
    for name in BY_NAME.keys() - elsewhere - {"g2", "register", "cas-register"}:
        verdicts = {ends[0] for workload, _, _, ends in CASES.values() if workload == name}
        assert {"pass", "fail"} <= verdicts, name


def test_a_read_of_a_series_of_another_form_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(read("[5]", called="5")))
    assert main(["check", str(path), "--workload=sequential"]) == 64
    assert "a read returns [series [last ... first]], not [5]" in capsys.readouterr().err


def test_claims_show_values_as_the_file_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    for options, events, claim in (
        ("--model=set", [*adds(":a"), *read("#{:a {:b [1]}}")], "returned {:b [1]}, which no one added"),
        ("--workload=set", [*adds(":a"), *read("#{}")], "the add of :a by process 0"),
    ):
        path.write_text(edn(events))
        assert main(["check", str(path), options]) == 1
        assert claim in capsys.readouterr().out


@pytest.mark.parametrize(
    ("workload", "verb", "other"),
    [
        ("list-append", "w", "rw-register"),
        ("rw-register", "append", "list-append"),
        ("long-fork", "append", "list-append"),
    ],
)
def test_transactions_of_the_other_kind_of_object_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str, verb: str, other: str
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(done(0, "txn", f"[[:{verb} :x 1]]")))
    assert main(["check", str(path), f"--workload={workload}"]) == 64
    assert f"for [:{verb} key value], there is --workload={other}" in capsys.readouterr().err


def test_elements_of_text_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, events, _, _ = SETS["elements of text"]
    judgement = judge_file(tmp_path / "h.edn", capsys, edn(events), "--workload=set")
    assert "[3] " in judgement.findings[0].claim


@pytest.mark.parametrize(
    ("workload", "events", "code", "words"),
    [
        ("queue", [*adds(1, 2, f="enqueue"), *read("1", f="dequeue")], 0, "PASS: 3 operations (3 ok), 3 effects"),
        (
            "total-queue", [*adds(1, 2, f="enqueue"), *read("1", f="dequeue")], 1,
            "never dequeued, though this workload ends with a complete drain.\n  op 2: enqueue 2",
        ),
        ("total-queue", [*adds(1, 2, f="enqueue"), *read("[1]", f="drain")], 1, "in 3 operations (3 ok)"),
    ],
)  # fmt: skip
def test_a_text_counts_and_names_no_drain_that_the_file_has_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str, events: list[Event], code: int, words: str
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(events))
    assert main(["check", str(path), f"--workload={workload}"]) == code
    out = capsys.readouterr().out
    assert words in out
    assert "  operation" not in out  # an operation without details would be one that is not in the file


def test_reads_that_are_marked_final_are_the_final_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As Maelstrom marks them; a read of another process after all adds would count otherwise."""
    lines = edn([*adds(1), *read("0", 2), *read("1")]).splitlines()
    marked = "\n".join([*lines[:-1], lines[-1].replace(":type", ":final? true, :type")])
    options = ("--workload=pn-counter",)
    assert judge_file(tmp_path / "h.edn", capsys, "\n".join(lines), *options).anomalies == {"counter-wrong-sum": 1}
    assert judge_file(tmp_path / "h.edn", capsys, marked, *options).verdict == "pass"


def is_lost(element: int, calls: Sequence[tuple[int, int, str, object]]) -> bool:
    """The rule of set-full, word by word: known, and the last read that could show it or does show it lacks it."""
    known = [
        ret
        for _, ret, f, value in calls
        if ret and ((f == "add" and value == element) or (f == "read" and element in value))  # type: ignore[operator]
    ]
    reads = [(call, element in value) for call, ret, f, value in calls if ret and f == "read"]  # type: ignore[operator]
    last_present = max((call for call, shown in reads if shown), default=-1)
    last_absent = max((call for call, shown in reads if not shown), default=-1)
    return bool(known) and last_absent > max(last_present, min(known))


@pytest.mark.parametrize("seed", range(3))
def test_lost_elements_agree_with_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    """Many small random sets, each under its own key."""
    chance = random.Random(seed)
    events: list[Event] = []
    lost = 0
    for key in range(60):
        calls: list[tuple[int, int, str, object]] = []
        times = chance.sample(range(100), 10)
        for number in range(5):
            call, ret = sorted(times[2 * number : 2 * number + 2])
            if number < 2:
                calls.append((call, ret if chance.random() < 0.7 else 0, "add", number))
            else:
                shown = [element for element in (0, 1) if chance.random() < 0.6]
                calls.append((call, ret, "read", shown))
        for element in (0, 1):  # a read shows an element only if its add was called before the read returned
            for _, ret, f, value in calls[2:]:
                if f == "read" and element in value and ret < calls[element][0]:  # type: ignore[operator]
                    value.remove(element)  # type: ignore[attr-defined]
        steps = []
        for number, (call, ret, f, value) in enumerate(calls):
            process = 10 * key + number
            text = str(value).replace(",", "")
            steps.append((call, (process, "invoke", f, f"[{key} {'nil' if f == 'read' else text}]")))
            if ret:
                steps.append((ret, (process, "ok", f, f"[{key} {text}]")))
        events += [event for _, event in sorted(steps)]
        lost += sum(is_lost(element, calls) for element in (0, 1))
    judgement = judge_file(tmp_path / "h.edn", capsys, edn(events), "--workload=set-full", "--keys=tuples")
    assert lost > 0
    assert sum(judgement.anomalies.values()) == lost


@given(st.integers(-5, 5), st.lists(st.integers(-9, 9), max_size=7))
def test_reachable_sums_are_those_of_all_subsets(certain: int, amounts: list[int]) -> None:
    sums = {
        certain + sum(chosen) for size in range(len(amounts) + 1) for chosen in itertools.combinations(amounts, size)
    }
    reachable = find_reachable_sums(certain, amounts)
    assert reachable is not None
    around = range(certain - 80, certain + 80)
    assert {value for value in around if reachable.has(value)} == sums
    assert all(high + 1 < low for (_, high), (low, _) in itertools.pairwise(reachable.intervals))
    ranges: list[tuple[int, int]] = []
    for value in sorted(sums):
        is_next = bool(ranges) and value == ranges[-1][1] + 1
        ranges[-1 if is_next else len(ranges) :] = [(ranges[-1][0] if is_next else value, value)]
    assert str(reachable) == describe_some([str(low) if low == high else f"{low} to {high}" for low, high in ranges])
    for amount in range(-3, 4):
        for values in ([certain], [certain - reachable.stride, certain], sorted(sums)):
            assert reachable.has_all(values, amount) == all(value - amount in sums for value in values)


RECOGNISED: dict[str, tuple[list[Event], str | None, str | None, str]] = {
    "by its operations": (adds(0, f="broadcast") + read("[0]"), None, None, "broadcast, because only this"),
    "by test.edn": (adds(0) + read("#{0}"), '{:name "x", :workload :g-set}', None, "g-set, because test.edn names"),
    "by the folder of the test": (
        adds(0) + read("0"), None, "counter 6.1", "counter, because the folder of the test is named counter 6.1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("events", "test", "name", "said"), RECOGNISED.values(), ids=RECOGNISED)
def test_a_workload_is_recognised(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    events: list[Event],
    test: str | None,
    name: str | None,
    said: str,
) -> None:
    folder = tmp_path / "store" / (name or "test") / "20260101T000000.000Z"
    folder.mkdir(parents=True)
    (folder / "history.edn").write_text(edn(events))
    if test is not None:
        (folder / "test.edn").write_text(test)
    assert main(["check", str(folder)]) == 0
    assert f"taken as --workload={said}" in capsys.readouterr().out


ELECTED: dict[str, tuple[list[Event], str]] = {
    "an operation of one workload": (adds(0, f="broadcast"), "broadcast"),
    "names of one question": (done(0, "cas", "[1 2]"), "register"),
    "appends": (done(0, "txn", "[[:append 1 2] [:r 1 nil]]"), "list-append"),
    "appends under keys": (done(0, "txn", "[5 [[:append 1 2]]]"), "list-append"),
    "sends": (done(0, "send", "[[:send 1 2]]"), "kafka"),
}
AMBIGUOUS: dict[str, tuple[list[Event], str]] = {
    "a drained queue": (
        [*adds(1, f="enqueue"), *read("[1]", f="drain")],
        "--workload=queue|total-queue; --workload=help says what",
    ),
    "a queue": (
        [*adds(1, f="enqueue"), *read("1", f="dequeue")],
        "--workload=queue|total-queue, or with --model=fifo-queue|unordered-queue;",
    ),
    "a lock": (done(0, "acquire", "nil"), "--workload=mutex|locks, or with --model=mutex|owner-mutex|"),
    "writes of registers": (done(0, "txn", "[[:w 1 2]]"), "--workload=rw-register|long-fork|multi-register;"),
    "reads of anything": (done(0, "txn", "[[:r 1 nil]]"), "--workload=list-append|append|rw-register|long-fork|multi-"),
    "sums": ([*adds(1), *read("1")], "--workload=counter|g-counter|pn-counter|monotonic;"),
    "elements": ([*adds(1), *read("[1]")], "--workload=set|set-full|g-set|lost-updates, or with --model=set;"),
}


@pytest.mark.parametrize(("events", "name"), ELECTED.values(), ids=ELECTED)
def test_operations_of_one_question_name_the_workload(tmp_path: Path, events: list[Event], name: str) -> None:
    (tmp_path / "h.edn").write_text(edn(events))
    found = recognise_workload(tmp_path / "h.edn", ForeignFormat.EDN)
    assert found == (name, "only this workload has such operations")


@pytest.mark.parametrize(("events", "words"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_operations_of_several_questions_are_never_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], words: str
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(events))
    assert main(["check", str(path)]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the operations of {path} are those of several workloads: name one with {words}" in line


def test_operations_of_no_workload_name_no_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(done(0, "append", '"a"')))
    assert main(["check", str(path)]) == 64
    assert f"name what {path} is a history of: --model=register|" in capsys.readouterr().err


def test_the_list_of_workloads_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "--workload=help"])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert named == [one.name for one in TABLE]
    assert max(map(len, lines)) <= 120


def test_an_unknown_workload_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "h.edn", "--workload=setfull"])
    assert ended.value.code == 64
    assert "--workload=help lists them" in capsys.readouterr().err


LOCK_KINDS = ["--workload=locks", "--workload=mutex", "--model=owner-mutex", "--model=mutex"]
TWO_HOLDERS = [*done(0, "acquire", '["a" 1]'), *done(1, "acquire", '["b" 2]')]


@pytest.mark.parametrize("kind", LOCK_KINDS)
def test_two_holders_whose_values_are_vectors_of_two_do_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(TWO_HOLDERS))
    assert main(["check", str(path), kind]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert 'line 1, column 1: `["a" 1]` may be a value of one lock, or the key of a lock with a value' in said
    assert "use --keys=none for one lock, or --keys=tuples for a lock for each key" in said
    assert main(["check", str(path), kind, "--keys=none"]) == ExitCode.FAIL
    assert main(["check", str(path), kind, "--keys=tuples"]) == ExitCode.PASS


def test_two_holders_in_a_json_file_do_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.json"
    entries = [
        {"process": process, "type": type, "f": "acquire", "value": [name, 1]}
        for process, name in enumerate("ab")
        for type in ("invoke", "ok")
    ]
    path.write_text(json.dumps(entries))
    assert main(["check", str(path), "--workload=locks"]) == ExitCode.USAGE
    assert "may be a value of one lock" in capsys.readouterr().err


@pytest.mark.parametrize("kind", LOCK_KINDS)
def test_locks_under_tagged_keys_are_locks_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "h.edn"
    tagged = [
        (process, type, f, value.replace("[", "#jepsen.independent.Tuple[")) for process, type, f, value in TWO_HOLDERS
    ]
    path.write_text(edn(tagged))
    assert main(["check", str(path), kind]) == ExitCode.PASS
    path.write_text(edn([(process, type, f, value.replace("b", "a")) for process, type, f, value in tagged]))
    assert main(["check", str(path), kind]) == ExitCode.FAIL
    assert "are read as [key value]" not in capsys.readouterr().out


def test_the_number_of_keys_that_were_guessed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn([*done(0, "write", "[1 5]"), *done(0, "write", "[2 5]"), *done(1, "read", "[2 nil]", "[2 5]")]))
    note = "values are read as [key value], with 2 keys; --keys=none takes them as plain values"
    assert main(["check", str(path), "--model=register"]) == ExitCode.PASS
    assert note in capsys.readouterr().out
    assert main(["check", str(path), "--model=register", "--keys=tuples"]) == ExitCode.PASS
    assert "are read as" not in capsys.readouterr().out
