"""Three engines, one text: on thousands of small histories all give the same answers, evidence and errors."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.administration.lost_changes import LOST_CHANGES
from assay.checkers.check import (
    Check,
    Family,
    create_views,
    find_named_operations,
    read_evidence,
    read_involved,
    to_findings,
)
from assay.checkers.engine import (
    DuckDB,
    Engine,
    EngineError,
    Engines,
    EngineUnavailable,
    SQLite,
    duck,
    engine_selection,
)
from assay.checkers.engine import sqlite as sqlite_engine
from assay.checkers.engine.base import quote_texts
from assay.checkers.engine.duck import RUN_MEMORY
from assay.checkers.engine.sqlite import translate
from assay.checkers.families import FAMILIES, OBJECT_FAMILIES
from assay.checkers.groups.family import FENCING, GENERATIONS, GROUP_CONVERGENCE, ORPHANS
from assay.checkers.groups.rebalance_churn import REBALANCE_CHURN
from assay.checkers.groups.starts import STARTS
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history, register_contract, register_history
from assay.checkers.judging.judge import judge as judge_with
from assay.checkers.judging.validate import validate
from assay.checkers.judging.verdict import Finding, Judgement, Verdict
from assay.checkers.liveness.client_progress import PROGRESS
from assay.checkers.liveness.family import LIVENESS
from assay.checkers.log.family import LOG, REPORTED, STATEMENTS
from assay.checkers.log.unflushed import UNFLUSHED
from assay.checkers.objects.monotonic import MONOTONIC_REAL_TIME
from assay.checkers.objects.queues import LINEARIZABLE_QUEUES
from assay.checkers.objects.sets import LINEARIZABLE_SETS
from assay.checkers.register.family import REGISTER_ANOMALIES
from assay.checkers.transactions.family import TRANSACTION_ANOMALIES, TRANSACTION_FAMILIES
from assay.harness.cli.main import main
from assay.harness.core.history import EFFECTS, SCHEMAS, HistoryError, HistoryReader
from assay.harness.core.history.data_sets import DATA_SETS

from helpers.bank_histories import Bank, at_random
from helpers.commit_histories import Members, poll
from helpers.commit_histories import row as member
from helpers.epoch_histories import compacted_disks, disks, terms
from helpers.expiry_histories import keep, kept_history, look
from helpers.fencing_histories import lease_history, violations
from helpers.group_histories import group_history, owned_twice, zombies
from helpers.hold_histories import DEADLINE, Consumers, Orphans, overlapping
from helpers.hold_histories import owned_twice as given_twice
from helpers.judging import Opens, judge, without_times
from helpers.log_histories import Book, Row, SimulatedLog, broken, effect, write
from helpers.lost_histories import Changes
from helpers.nightly import by_night, some_by_day
from helpers.object_histories import broken as broken_object
from helpers.object_histories import counter, growing, max_register, queue, some_ids, some_set
from helpers.object_oracle import count, largest, queue_losses
from helpers.object_oracle import linearizable as orderly
from helpers.oracle import Judge
from helpers.register_histories import SimulatedRegister
from helpers.register_histories import broken as broken_register
from helpers.register_oracle import linearizable
from helpers.restless_histories import Random
from helpers.standalone import QUICK
from helpers.start_histories import Owners
from helpers.state_histories import states
from helpers.transition_histories import steps
from helpers.txn_histories import LEVELS as TRANSACTION_LEVELS
from helpers.txn_histories import SimulatedStore
from helpers.txn_histories import broken as broken_transactions
from helpers.view_histories import claim

ROOT = Path(__file__).resolve().parents[3]
LONG = pytest.mark.long
LOGS = 120
REGISTERS = 160
SOME_GROUPS = 30
TRANSACTION_CHECKS = tuple(anomaly for family in TRANSACTION_FAMILIES for anomaly in family.anomalies)
INSTANCE = {
    "inconsistent-offset": ("position",),
    "duplicate": ("value",),
    "aborted-read": ("value",),
    "phantom": ("value",),
    "lost-write": ("value", "position"),
    "vanished": ("value", "position"),
    "unseen": ("value", "position"),
    "real-time-order": ("place",),
    "nonmonotonic-send": ("op", "sub"),
    "send-skip": ("op", "sub"),
    "nonmonotonic-poll": ("op", "sub"),
    "poll-skip": ("op", "sub"),
    "high-watermark-regression": ("op", "sub"),
    "leader-completeness": ("epoch",),
    "member-completeness": ("epoch", "position"),
    "epoch-history-divergence": ("epoch",),
    "replica-hole": ("node", "position", "missing"),
    "lost-last-value": ("node", "position"),
    "damaged-log": ("node", "position"),
    "two-in-sync-sets": ("version",),
    "early-move": ("isr",),
    "overlooked-log": ("epoch", "node"),
    "illegal-transition": ("replica", "seq", "why"),
    "early-acknowledgement": ("node", "what", "position", "log_end"),
    "broken-invariant": ("moment", "node", "invariant", "claim", "epoch", "position"),
    "zombie-commit": ("place",),
    "double-ownership": ("group_name", "term", "begun"),
    "commit-mismatch": ("value", "position"),
    "commit-beyond-log": ("why", "commit_op", "other_op"),
    "misplaced-start": ("why", "begun_op", "sub"),
    "early-expiry": ("read_op",),
    "revived-offset": ("read_op",),
    "overdue-offset": ("read_op",),
    "done-but-lost": ("name", "asked_op", "value", "seen", "look_op", "since", "until"),
    "read-after-release": ("end_op", "read_op", "reached"),
    "split-brain": ("group_name", "claim_number", "other"),
    "refused-but-done": ("value", "asked_op"),
    "orphaned-partition": ("group_name", "since", "until"),
    "fencing-violation": ("place",),
    "counter-duplicate": ("value",),
    "counter-order": ("before",),
    "counter-phantom": ("value",),
    "max-phantom": ("value",),
    "max-order": ("before",),
    "set-lost": ("value", "missing"),
    "set-stale": ("value", "missing"),
    "set-vanished": ("value", "missing"),
    "set-phantom": ("value",),
    "queue-lost": ("op", "sub"),
    "queue-duplicate": ("value",),
    "queue-phantom": ("value",),
    "queue-false-empty": ("op", "sub"),
    "id-duplicate": ("value", "name"),
    "nonmonotonic-read": ("op",),
    "monotonic-cycle": ("ops",),
    "monotonic-cycle-real-time": ("ops",),
    "set-fork": ("small_op", "large_op"),
}
"""The columns that tell one instance of a log anomaly from another, as the oracle names it."""

PARTED = [member(0, "release", 3, (2, 3), key="parted-0"), *poll(1, 3, 5, (4, 5), key="parted-0")]
SPLIT = [
    *claim(0, "b", seen=20, made=21, shares={"split-0": "c"}, group="split"),
    *claim(1, "a", seen=10, made=22, shares={"split-0": "a"}, group="split"),
]
HELD = (GENERATIONS[1], ORPHANS, FENCING)
APART = (
    UNFLUSHED,
    STATEMENTS,
    REPORTED,
    *OBJECT_FAMILIES,
    MONOTONIC_REAL_TIME,
    LINEARIZABLE_QUEUES,
    LINEARIZABLE_SETS,
    ORPHANS,
    GROUP_CONVERGENCE,
    FENCING,
    PROGRESS,
    LIVENESS,
    LOST_CHANGES,
    REBALANCE_CHURN,
    *TRANSACTION_FAMILIES,
)
"""Families that are compared on histories of their own; a query costs Spark much, however few rows it reads."""
TOGETHER = tuple(family for family in FAMILIES if family not in APART)

Application = Any  # pyspark is imported only where it is there


@dataclass(frozen=True)
class Answer:
    """All that one check says."""

    found: Counter[tuple[Any, ...]]
    findings: list[Finding]
    examined: int


def answers(
    engine: Engine, folder: Path, contract: Contract, families: Sequence[Family] = TOGETHER
) -> dict[str, Answer]:
    """Every check of these families. A query costs Spark more than what it reads: what of several can be one is one."""
    register_history(engine, folder)
    register_contract(engine, contract)
    examined: dict[str, int] = {}
    found: list[tuple[Check, Counter[tuple[Any, ...]], list[dict[str, Any]]]] = []
    for family in families:
        create_views(engine, family.views)
        if family.prepare is not None:
            family.prepare(engine)
        for check in family.checks:
            create_views(engine, check.views)
            rows = engine.rows(f"select * from {check.found}")
            columns = INSTANCE.get(check.anomaly, ())
            instances = Counter((row["key"], *(row[column] for column in columns)) for row in rows)
            found.append((check, instances, read_evidence(engine, check) if rows else []))
        asked = ", ".join(f"({check.examined}) as examined_{number}" for number, check in enumerate(family.checks))
        (row,) = engine.rows(f"select {asked}")
        examined |= zip(family.anomalies, row.values(), strict=True)
    operations = read_involved(engine, {op for _, _, rows in found for op in find_named_operations(rows)})
    return {
        check.anomaly: Answer(instances, to_findings(check, rows, operations), examined[check.anomaly])
        for check, instances, rows in found
    }


def logs() -> list[list[Row]]:
    """Correct ones and broken ones; every fifth is of a compacted topic."""
    breaker, histories = random.Random(11), []
    for index in range(LOGS):
        compacted = index % 5 == 4
        key = f"{'c' if compacted else 't'}-{index}"
        log = SimulatedLog(key, random.Random(f"engines/{index}"), index * 1000, compacted=compacted).run(40)
        histories.append(broken(log, breaker) if index % 3 else log)
    return [history for history in histories if history]


def registers() -> list[list[Row]]:
    breaker, histories = random.Random(12), []
    for index in range(REGISTERS):
        rng = random.Random(f"engines/r/{index}")
        history = SimulatedRegister(f"r-{index}", rng, (LOGS + index) * 1000, versions=False).run(rng.randint(3, 14))
        histories.append(broken_register(history, breaker) if index % 3 else history)
    return [history for history in histories if history]


def replicas() -> list[Row]:
    """Three nodes' disks that mostly agree, with records that no workload wrote among them."""
    rng = random.Random(4)
    return [
        {
            "node": f"n{node}",
            "key": f"orders-{key}",
            "position": position,
            "value": rng.choice([position] * 8 + [None, 99]),
            "crc": rng.choice([1] * 8 + [2, None]),
            "epoch": rng.choice([None, 1]),
            "below_hw": rng.random() < 0.8,
            "in_isr": True,
        }
        for node in range(1, 4)
        for key in range(2)
        for position in range(50)
    ]


def node_events() -> list[Row]:
    """Elections, first appends and obeyed requests, at random; some contradict others."""
    rng = random.Random(13)
    return [
        {
            "time": seq, "node": f"n{rng.randint(1, 3)}", "incarnation": rng.randint(1, 2), "seq": seq, "detail": "{}",
            "event": rng.choice(("first-append-in-epoch", "became-controller", "request-obeyed", "written",
                                "group-generation", "log-damaged")),
            "key": f"k-{rng.randint(0, 40)}", "epoch": rng.randint(0, 9), "controller_epoch": rng.randint(0, 40),
            "zxid": seq if rng.random() < 0.3 else None, "position": rng.randint(0, 9),
        }
        for seq in range(200)
    ]  # fmt: skip


def groups() -> list[list[Row]]:
    first = (LOGS + REGISTERS) * 1000
    return [group_history(f"g-{n}", random.Random(f"engines/g/{n}"), first + n * 1000) for n in range(SOME_GROUPS)]


def members() -> list[list[Row]]:
    first = (LOGS + REGISTERS + SOME_GROUPS + 10) * 1000
    return [Members(f"m{n}", random.Random(f"engines/m/{n}"), first + n * 1000).run(24) for n in range(50)]


def kept() -> list[list[Row]]:
    """Offsets that are kept for a time; one that stays for ever, and a hold that goes on after its end."""
    first = (LOGS + REGISTERS + SOME_GROUPS + 100) * 1000
    last = first + 90_000
    return [
        [keep(last + 6, 6, 9, (0, 1), key="kept/early"), look(last + 7, None, (2, 3), key="kept/early")],
        [
            keep(last, 1, 1, (0, 1), key="kept/over", group="over"),
            look(last + 1, 1, (40, 41), key="kept/over", group="over", phase="drain"),
        ],
        [
            part | {"op": last + 2 + part["op"], "process": 9_000, "key": "parted-0", "group": "parted"}
            for part in PARTED
        ],
        [part | {"op": last + 8 + part["op"], "process": 9_001} for part in SPLIT],
        *(
            kept_history(f"kept/o-{n}", random.Random(f"engines/k/{n}"), first + n * 100, broken=n % 2 == 0)
            for n in range(40)
        ),
    ]


def owners() -> list[Row]:
    """Members that begin somewhere, and commit."""
    first = (LOGS + REGISTERS + SOME_GROUPS + 200) * 1000
    made = [Owners(number, random.Random(f"engines/s/{number}"), first + number * 1000) for number in range(50)]
    return [row for one in made for row in one.rows]


def moved_on() -> list[Row]:
    """Offsets of a group that mostly move forward."""
    rng, op = random.Random(14), (LOGS + REGISTERS + SOME_GROUPS) * 1000
    rows = []
    for number in range(400):
        call, outcome = number + rng.randint(0, 9), rng.choice(("ok", "ok", "ok", "info", "fail"))
        kind = "resume" if rng.random() < 0.3 and outcome == "ok" else "advance"
        times = call, None if outcome == "info" else call + rng.randint(1, 9)
        position, key = number // 4 - rng.choice((0, 0, 0, 0, 3)), f"moved/o-{number % 5}"
        rows.append(effect(op + number, 0, kind, key, *times, group="moved", position=position, outcome=outcome))
    return rows


def absurd() -> list[Row]:
    """Polls that show one value at offsets near the ends of what 63 bits hold."""
    log, first = book(), (LOGS + REGISTERS + SOME_GROUPS + 1) * 1000
    for number, offset in enumerate((2**61 - 1, 2**61, 2**62 + 75, 2**63 - 2, 2**63 - 1)):
        end = min(offset + 1, 2**63 - 1)
        log.poll(5, [(offset, 5)], end, (1_900, 1_910), assignment=number, process=70 + number)
        log.add("end", (1_920, 1_930), offset, leader_epoch=number, process=80 + number)
    return [row | {"op": row["op"] + first} for row in log.rows]


def some_bank(number: int) -> Bank:
    """Makes a bank at random. Only the total is known of every third one."""
    first = 3 * 10**7 + number * 100
    return at_random(number, wrong=True, key=f"b-{number}", first=first, split=number % 3 > 0)


def test_two_engines_agree(tmp_path: Path, other: Opens) -> None:
    """To plan all these queries takes Spark 45 s of a core; by day it is asked of registers and generations below."""
    folder, contract, by_duck = check_together(tmp_path)
    with other(10_000) as second:
        by_other = answers(second, folder, contract)
    assert list(by_other) == list(by_duck)
    for anomaly, answer in by_duck.items():
        assert by_other[anomaly] == answer, anomaly


def check_together(folder: Path) -> tuple[Path, Contract, dict[str, Answer]]:
    """By DuckDB and the oracles; what of, and the answers."""
    some_logs, some_registers, some_groups = logs(), registers(), groups()
    some = (*some_logs, *some_registers, *some_groups, *members(), *kept(), owners(), moved_on(), absurd())
    rows = [row for history in some for row in history]
    rows += [row for n in range(30) for row in some_bank(n).rows]
    assert {"ok", "fail", "info"} == {row["outcome"] for row in rows}
    terms_of = [terms(f"e-{n}", random.Random(f"engines/e/{n}"), 10**7 + n * 100) for n in range(50)]
    rows += [row for _, ends in terms_of for row in ends]
    stored = [row for n in range(50) for row in disks(f"d-{n}", random.Random(f"engines/d/{n}"))]
    recorded = [row for events, _ in terms_of for row in events]
    recorded += [row for n in range(40) for row in states(f"s{n}-0", random.Random(f"engines/s/{n}"), 1 + 3 * n)]
    recorded += [row for n in range(40) for row in steps(f"c{n}-0", random.Random(f"engines/c/{n}"))]
    keyed = [compacted_disks(f"k-{n}", random.Random(f"engines/k/{n}"), 2 * 10**7 + n * 100) for n in range(50)]
    rows += [row for sends, _ in keyed for row in sends]
    stored += [row for _, left in keyed for row in left]
    ended = [
        {"look": 0, "time": n, "ended": n, "what": "crashed" if n == 4 else "ended", "node": f"n{n % 3}"}
        for n in range(1, 6)
    ]
    ended += [
        {"look": 0, "time": n, "ended": n, "what": what, "node": f"n{n % 3}", "key": "t-0", "position": n, "log_end": n}
        for n, what in enumerate(["lacking", "undurable"] * 9, 1)
    ]
    ended.append({"look": 0, "time": 90, "ended": 90, "what": "inspected", "size": 18})
    asserted = {"look": 0, "time": 91, "ended": 91, "invariant": "agree"}
    ended.append(asserted | {"what": "asserted", "assertions": 7})
    ended += [
        asserted | {"what": "broken", "claim": f"claim {n}", "node": "n1", "key": "t-0", "epoch": n, "position": n}
        for n in range(3)
    ]
    folder = write(
        folder / "history", rows, events=[*node_events(), *recorded], replicas=[*replicas(), *stored], looks=ended
    )
    compacted = tuple(history[0]["key"] for history in some_logs if history[0]["key"].startswith("c-"))
    contract = Contract(linearizable_ends=True, compacted=(*compacted, *(f"k-{n}" for n in range(50))))
    with DuckDB() as duck:
        by_duck = answers(duck, folder, contract)
    for anomaly, answer in by_duck.items():
        assert answer.found, f"no history had {anomaly}"
        assert answer.findings
    for history in some_logs:
        key = history[0]["key"]
        expected = Judge(history, linearizable_ends=True, compacted=key in compacted).found()
        assert _of(by_duck, key) == expected, key
    assert [value for key, value in by_duck["duplicate"].found if key == "orders-0"] == [5], "at absurd offsets"
    late = {(key, place) for key, place in by_duck["zombie-commit"].found}
    assert late == {instance for history in some_groups for instance in zombies(history)}
    twice = {(group, key, epoch) for key, group, epoch, _ in by_duck["double-ownership"].found}
    assert twice == {instance for history in some_groups for instance in owned_twice(history)}
    wrong = {key for anomaly in REGISTER_ANOMALIES for (key,) in by_duck[anomaly].found}
    for history in some_registers:
        assert linearizable(history, versions=False) is (history[0]["key"] not in wrong), history
    return folder, contract, by_duck


def changes(folder: Path) -> Path:
    """An administrator's, some of which are lost."""
    made = [Changes(f"t{number}", random.Random(f"engines/l/{number}"), 1000 * number) for number in range(100)]
    looks = [row for one in made for row in one.looks if row["what"] != "look"]
    looks += [row for row in made[0].looks if row["what"] == "look"]
    return write(folder, [row for one in made for row in one.rows], looks=looks)


def test_two_engines_agree_on_what_was_lost(tmp_path: Path, other: Opens) -> None:
    folder, contract = changes(tmp_path / "history"), Contract(obedience_deadline=10)
    with other(10_000) as second, DuckDB() as duck:
        by_other, by_duck = (answers(engine, folder, contract, (LOST_CHANGES,)) for engine in (second, duck))
    assert by_other == by_duck
    assert len(by_duck["done-but-lost"].found) > 20


def test_two_engines_agree_on_who_is_restless(tmp_path: Path, other: Opens) -> None:
    groups = [Random(number, random.Random(f"engines/r/{number}")) for number in range(200)]
    rows, ops = [row for one in groups for row in one.rows], [op for one in groups for op in one.ops]
    folder, contract = write(tmp_path / "history", rows, ops=ops), Contract(group_deadline=10)
    with other(10_000) as second, DuckDB() as duck:
        by_other, by_duck = (answers(engine, folder, contract, (REBALANCE_CHURN,)) for engine in (second, duck))
    assert by_other == by_duck
    assert len(by_duck["restless-group"].found) > 5


def test_two_engines_agree_on_where_owners_begin(tmp_path: Path, other: Opens) -> None:
    folder = write(tmp_path / "history", owners())
    with other(10_000) as second, DuckDB() as duck:
        by_other, by_duck = (answers(engine, folder, Contract(), (STARTS,)) for engine in (second, duck))
    assert by_other == by_duck
    assert all(answer.findings for answer in by_duck.values())


@pytest.mark.parametrize("count", [25, by_night(60)])
def test_two_engines_and_the_oracles_agree_on_who_held_what(tmp_path: Path, other: Opens, count: int) -> None:
    some = [
        Consumers(f"h{n}", random.Random(f"engines/h/{n}"), n * 1000, (n + 1) * 10_000).run(120) for n in range(count)
    ]
    leases = [lease_history(f"l{n}", random.Random(f"engines/l/{n}"), 10**6 + n * 100) for n in range(2 * count)]
    rows = [row for one in some for row in one.rows]
    faults = [row for one in some for row in one.faults]
    # No doubt that leases leave, whose workers never go on, is to reach into the groups' time.
    done = [row | {"op_outcome": "ok"} for one in leases for row in one]
    folder = write(tmp_path / "history", [*rows, *done], faults=faults)
    contract = Contract(rebalance_deadline=DEADLINE / 1000)
    with other(len(rows)) as second, DuckDB() as duck:
        by_other, by_duck = (answers(engine, folder, contract, HELD) for engine in (second, duck))
    for anomaly in ("double-ownership", "orphaned-partition", "fencing-violation"):
        assert by_other[anomaly] == by_duck[anomaly], anomaly
        assert by_duck[anomaly].findings
    reported = by_other["double-ownership"].found
    assert {(group, key, epoch) for key, group, epoch, _ in reported if group and epoch is not None} == {
        instance for one in some for instance in given_twice(one.rows)
    }
    assert {(group, key, begun) for key, group, _, begun in reported if begun is not None} == {
        instance for one in some for instance in overlapping(one.rows, one.faults)
    }
    assert {(group, key, since, until) for key, group, since, until in by_other["orphaned-partition"].found} == {
        instance for one in some for instance in Orphans(one.rows, one.faults).found()
    }
    assert set(by_other["fencing-violation"].found) == {
        instance for one in leases for instance in violations(one, by_requests=False)
    }


OBJECTS = {
    "counter": counter,
    "max-register": max_register,
    "set": some_set,
    "queue": queue,
    "unique-ids": some_ids,
    "monotonic": growing,
}


@pytest.mark.parametrize("family", OBJECT_FAMILIES, ids=lambda family: family.name)
def test_duckdb_sqlite_and_the_oracles_agree_on_objects(tmp_path: Path, family: Family) -> None:
    folder, contract, families, by_duck = check_objects(tmp_path, family)
    with SQLite() as lite:
        assert answers(lite, folder, contract, families) == by_duck


@pytest.mark.spark
@pytest.mark.parametrize(
    "family",
    [pytest.param(family, id=family.name, marks=() if family.name == "queue" else LONG) for family in OBJECT_FAMILIES],
)
def test_spark_agrees_on_objects(tmp_path: Path, application: Application, family: Family) -> None:
    folder, contract, families, by_duck = check_objects(tmp_path, family, histories=200)
    with application.engine(effects=1000) as spark:
        assert answers(spark, folder, contract, families) == by_duck


def check_objects(
    folder: Path, family: Family, histories: int = 600
) -> tuple[Path, Contract, tuple[Family, ...], dict[str, Answer]]:
    """By DuckDB and the oracles; what of, and the answers."""
    some = []
    for index in range(histories):
        rng = random.Random(f"engines/{family.name}/{index}")
        one = OBJECTS[family.name](f"k-{index}", rng, index * 100)
        some.append(one if index % 3 == 0 else broken_object(one, rng))
    folder = write(folder / "history", [row for one in some for row in one])
    contract = Contract(linearizable_queues=True, linearizable_sets=True, transaction_order="real-time")
    families = (
        family,
        *{
            "queue": (LINEARIZABLE_QUEUES,), "set": (LINEARIZABLE_SETS,), "monotonic": (MONOTONIC_REAL_TIME,),
        }.get(family.name, ()),
    )  # fmt: skip
    with DuckDB() as duck:
        by_duck = answers(duck, folder, contract, families)
    assert all(answer.findings for answer in by_duck.values())
    wrong = Counter(found[0] for answer in by_duck.values() for found in answer.found.elements())
    for one in [one for one in some if one]:
        key = one[0]["key"]
        if family.name in ("counter", "max-register"):
            start, step = {"counter": (0, count), "max-register": (None, largest)}[family.name]
            assert orderly(one, start, step) is (key not in wrong), one
        elif family.name == "queue":
            assert sum(found[0] == key for found in by_duck["queue-lost"].found) == queue_losses(one), one
    return folder, contract, families, by_duck


def test_two_engines_agree_on_transactions(tmp_path: Path, other: Opens) -> None:
    """The search for cycles is the same; what differs is who derives the edges and prunes them."""
    breaker, txns = random.Random(15), []
    for index in range(300):
        rng, level = random.Random(f"engines/t/{index}"), TRANSACTION_LEVELS[index % len(TRANSACTION_LEVELS)]
        store = SimulatedStore(level, rng, first_op=index * 1000, name=f"{index}/", registers=index % 3 == 0)
        history = store.run(rng.randint(2, 8))
        txns += broken_transactions(history, breaker) if index % 2 else history
    rows = [row for txn in txns for row in txn.rows()]
    folder, contract = write(tmp_path / "history", rows), Contract(transaction_order="real-time")
    with other(len(rows)) as second, DuckDB() as duck:
        by_other, by_duck = (answers(engine, folder, contract, TRANSACTION_FAMILIES) for engine in (second, duck))
    for anomaly in TRANSACTION_CHECKS:
        assert by_other[anomaly] == by_duck[anomaly], anomaly
    assert all(by_duck[anomaly].findings for anomaly in TRANSACTION_ANOMALIES if anomaly != "G-nonadjacent")
    assert by_duck["G-single-real-time"].findings


def _of(answers: dict[str, Answer], key: str) -> set[tuple[str, Any]]:
    """Returns what was found of one key, as the oracle of the log says it."""
    return {
        (anomaly, instance[1:] if len(instance) > 2 else instance[1])
        for anomaly in LOG.anomalies
        for instance in answers[anomaly].found
        if instance[0] == key
    }


def book() -> Book:
    """A run with a lost write (value 7), two faults and its drain."""
    log = Book()
    for number in range(20):
        log.send([number], number, (number * 100, number * 100 + 10), process=1)
        log.poll(number, [] if number == 7 else [(number, number)], number + 1, (number * 100 + 20, number * 100 + 30))
        log.add("end", (number * 100 + 40, number * 100 + 50), number + 1, leader_epoch=1, process=2)
    log.send([99], 20, (2_000, 2_010), phase="sentinel", process=3)
    shown = [(offset, 99 if offset == 20 else offset) for offset in range(21) if offset != 7]
    log.poll(0, shown, 21, (2_020, 2_030), phase="drain", process=4)
    log.drained(21, (2_040, 2_050))
    log.rows[-1]["process"] = 4
    return log


def faults() -> list[Row]:
    return [
        {"id": id, "fault": "kill", "targets": '["n1"]', "phase": phase, "time": time * 1_000_000, "detail": "{}",
         "took_effect": True if phase == "healed" else None}
        for id, start in ((1, 700), (2, 1100))
        for phase, time in (("intended", start), ("injected", start + 1), ("healed", start + 150))
    ]  # fmt: skip


def _but_times(judgement: Any) -> Any:
    return msgspec.structs.replace(without_times(judgement), engine="")


def _set(number: int, **given: Any) -> Callable[[list[Row]], None]:
    return lambda rows: rows[number].update(given)


CONTRADICTIONS: dict[str, Callable[[list[Row]], None]] = {
    "a word": _set(0, outcome="perhaps"),
    "a time": _set(3, ret=1),
    "a process": _set(1, process=8),
    "a row twice": lambda rows: rows.append(dict(rows[3])),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", some_by_day(CONTRADICTIONS, ("a row twice",)))
def test_contradictions_get_the_same_error(tmp_path: Path, application: Application, name: str) -> None:
    """Asked of each engine itself: of this machine's files a judgement by Spark would ask DuckDB.

    By day of the last rule that this history can break: all before it are asked on the way.
    """
    rows = book().rows
    CONTRADICTIONS[name](rows)
    folder = write(tmp_path / "history", rows)
    reported = []
    with application.engine(effects=100) as spark, DuckDB() as duck, SQLite() as lite:
        for engine in (spark, duck, lite):
            reader = register_history(engine, folder)
            with pytest.raises(HistoryError) as caught:
                validate(engine, reader)
            reported.append(str(caught.value))
    assert reported[0] == reported[1] == reported[2]
    assert ".parquet: row " in reported[0]


def _as(schema: pa.Schema, **types: pa.DataType) -> pa.Schema:
    return pa.schema([field.with_type(types.get(field.name, field.type)).with_nullable(True) for field in schema])


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        pa.nulls(rows.num_rows) if pa.types.is_null(field.type) else rows.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@pytest.mark.spark
def test_parts_from_elsewhere_read_alike(tmp_path: Path, application: Application) -> None:
    """Other widths of integers, other forms of text, a column that is all null, and names that look like patterns."""
    folder = write(tmp_path / "it's 100% [a]* {b} #1" / "history", book().rows)
    part = folder / "effects" / "part-000000.parquet"
    table = pq.read_table(part)
    forms = [
        _as(EFFECTS, op=pa.int32(), sub=pa.int8(), position=pa.uint32(), kind=pa.large_string()),
        _as(EFFECTS, op=pa.uint64(), key=pa.dictionary(pa.int32(), pa.string()), node=pa.null(), expected=pa.null()),
        EFFECTS,
    ]
    third = table.num_rows // 3
    for number, schema in enumerate(forms):
        rows = table.slice(number * third, third if number < 2 else None)
        pq.write_table(_cast(rows, schema), folder / "effects" / f"part-{number:06d}.parquet")
    columns = ", ".join(f'"{name}"' for name in EFFECTS.names)
    with DuckDB() as duck, application.engine(effects=100) as spark, SQLite() as lite:
        read = []
        for engine in (duck, spark, lite):
            register_history(engine, folder)
            read.append(engine.rows(f"select {columns} from effects order by op nulls first, sub nulls first"))
    assert read[0] == read[1] == read[2] == table.sort_by([("op", "ascending"), ("sub", "ascending")]).to_pylist()


@pytest.mark.spark
def test_spark_says_which_query_it_could_not_run(application: Application) -> None:
    with application.engine() as spark, pytest.raises(EngineError, match="could not run select nothing from nowhere"):
        spark.rows("select nothing from nowhere")


@pytest.mark.spark
def test_there_is_one_spark_at_a_time(application: Application) -> None:
    from assay.checkers.engine.spark_application import SparkApplication

    with pytest.raises(EngineUnavailable, match="runs Spark already"):
        SparkApplication()


def tree(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in folder.rglob("*")}


def hits() -> list[Row]:
    """A counter under the same faults, of which one read shows more than was ever added."""
    rows = [effect(n, 0, "counter-add", "orders-0", n * 4 * 10**7, n * 4 * 10**7 + 10**7, value=n) for n in range(20)]
    return [*rows, effect(20, 0, "counter-read", "orders-0", 700_000_001, 900_000_001, value=77, process=1)]


Said = tuple[int, str, str]  # the exit code, and what was printed


class Named(DuckDB):
    """It says that it is Spark, and answers sooner."""

    name = "spark"

    def __init__(self, *, effects: int, readable: bool) -> None:
        super().__init__(small=True)


class Running:
    """Takes the place of a Spark that a command starts and ends; ``engine`` makes what judges."""

    quick = True

    def __init__(self, engine: Callable[..., Engine], called: list[Any], master: str, *, quick: bool) -> None:
        self.judging_engine, self._called = engine, called
        called.append((master, quick))

    def close(self) -> None:
        self._called.append("closed")


@pytest.fixture
def here(
    application: Application, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path, Path, list[str]], Said]:
    return in_this_process(application.judging_engine, monkeypatch, capsys)


@pytest.fixture
def by_name_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path, Path, list[str]], Said]:
    return in_this_process(Named, monkeypatch, capsys)


def in_this_process(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path, Path, list[str]], Said]:
    def run(place: Path, temporary: Path, argv: list[str]) -> Said:
        called: list[Any] = []
        started = partial(Running, engine, called)
        monkeypatch.setattr("assay.checkers.engine.spark_application.SparkApplication", started)
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        monkeypatch.chdir(place)
        code = main(argv)
        assert called == [("local[1]", True), "closed"]
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def with_its_own() -> Callable[[Path, Path, list[str]], Said]:
    """Another process, with a Spark of its own; it takes half a minute for all the queries about a log."""

    def run(place: Path, temporary: Path, argv: list[str]) -> Said:
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-m", "assay.harness.cli.main", *argv],
            cwd=place, capture_output=True, text=True, check=False,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT / "src"), "JAVA_TOOL_OPTIONS": QUICK},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.spark
@pytest.mark.parametrize(
    ("rows", "anomaly", "command"),
    [
        (hits, "counter-phantom", "by_name_alone"),
        pytest.param(hits, "counter-phantom", "here", marks=LONG),
        pytest.param(hits, "counter-phantom", "with_its_own", marks=LONG),
        pytest.param(lambda: book().rows, "lost-write", "with_its_own", marks=LONG),
    ],
)
def test_the_command_on_spark_says_the_same_to_the_last_word_and_leaves_nothing_behind(
    tmp_path: Path, rows: Callable[[], list[Row]], anomaly: str, command: str, request: pytest.FixtureRequest
) -> None:
    """By day of a command that takes DuckDB for Spark: that both give the same answers is seen of queues, too.

    That a Spark of its own leaves nothing behind is seen of that of all tests, too, when it ends.
    """
    events = [{"time": 5, "node": "n1", "incarnation": 1, "seq": 1, "event": "became-leader", "key": "orders-0",
               "epoch": 0, "detail": "{}"}]  # fmt: skip
    folder = write(tmp_path / "history", rows(), faults=faults(), events=events)
    place, temporary = tmp_path / "place", tmp_path / "temporary"
    place.mkdir()
    temporary.mkdir()
    before = tree(folder)
    run: Callable[[Path, Path, list[str]], Said] = request.getfixturevalue(command)
    code, out, err = run(place, temporary, ["check", str(folder), "--json", "--engine=auto", "--spark-master=local[1]"])
    assert err == ""
    judgement = msgspec.json.decode(out, type=Judgement)
    assert (code, judgement.engine) == (1, "spark")
    by_duck = judge(folder, Contract(), requires_exposure=False)
    assert (by_duck.verdict, by_duck.anomalies[anomaly]) == (Verdict.FAIL, 1)
    assert (by_duck.findings[0].leader, by_duck.findings[0].faults) == ("n1", (1,))
    assert _but_times(judgement) == _but_times(by_duck)
    assert list(place.iterdir()) == list(temporary.iterdir()) == []
    assert tree(folder) == before


def test_duckdb_says_which_query_it_could_not_run() -> None:
    with DuckDB() as duck, pytest.raises(EngineError, match="could not run select nothing from nowhere"):
        duck.rows("select nothing from nowhere")


@pytest.mark.parametrize("call", [DuckDB.rows, DuckDB.arrow])
def test_duckdb_runs_one_statement_at_a_time(tmp_path: Path, call: Callable[[DuckDB, str], object]) -> None:
    with closing(DuckDB(small=True)) as engine, pytest.raises(EngineError, match="one statement at a time, not 2"):
        call(engine, f"select 1; copy (select 2) to '{tmp_path / 'file'}'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("small", [True, False])
def test_duckdb_loads_no_extension_for_a_query(small: bool) -> None:
    with closing(DuckDB(small=small)) as engine:
        chosen = "select name, value from duckdb_settings() where name like 'auto%_known_extensions'"
        assert {row["value"] for row in engine.rows(chosen)} == {"false"}
        with pytest.raises(EngineError, match="httpfs"):
            engine.rows("select * from read_text('http://127.0.0.1:9/leak')")


@pytest.mark.parametrize("text", ["it's", "a\\b", "a\0b"])
def test_a_text_that_engines_read_in_different_ways_is_no_literal(text: str) -> None:
    assert quote_texts(["a", "b-c"]) == "'a', 'b-c'"
    with pytest.raises(ValueError, match="is no literal that all engines read alike"):
        quote_texts(["a", text])


def test_duckdb_asks_the_same_text_of_what_there_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are parsed once: in another history, or after another table of that name, they mean something else."""
    monkeypatch.setattr(duck, "KEPT_TEXTS", 3)
    monkeypatch.setattr(duck, "_parsed_statements", {})
    for value in (1, "one", None):
        with DuckDB() as engine:
            for number in range(3):
                engine.load("here", pa.table({"value": [value], "number": [number]}))
                assert engine.rows("select * from here") == [{"value": value, "number": number}]
                engine.table("there", "select number + ? as number from here", [10])
                assert engine.rows("select number from there where number > ?", [5]) == [{"number": 10 + number}]
                assert len(duck._parsed_statements) <= 3
    with DuckDB() as engine, pytest.raises(EngineError, match="could not run select value from here"):
        engine.rows("select value from here")


def test_what_is_said_in_other_words_is_no_text() -> None:
    text = "select cast('as string.group' as string) as said, e.index from e where e.group = 'orders.group-0'"
    assert translate(text) == (
        "select cast('as string.group' as text) as said, e.\"index\" from e where e.\"group\" = 'orders.group-0'"
    )


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_key_may_be_called_as_a_column_is(tmp_path: Path, engine: str) -> None:
    """It is a text in the contract's views: what is compacted may be passed over."""
    book = Book(key="orders.group")
    book.send([1, 2, 3], 0, (0, 5))
    book.poll(0, [(0, 1), (2, 3)], 3, (10, 15))
    history = open_history(write(tmp_path / "history", book.rows))
    for compacted, expected in (((), {"lost-write": 1}), (("orders.group",), {})):
        with Engines(engine).open(history) as opened:
            found = judge_with(history, Contract(compacted=compacted), opened).anomalies
        assert found == expected


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_folder_above_a_history_is_no_column(tmp_path: Path, engine: str) -> None:
    """Data sets are partitioned by folders such as ``kind=observe``, which would hide that a message was lost."""
    lost = Book(key="orders-0")
    lost.send([1, 2, 3], 0, (0, 5))
    lost.poll(0, [(0, 1), (2, 3)], 3, (10, 15))
    for folder in (tmp_path, tmp_path / "outcome=ok" / "value=1" / "position=0"):
        history = open_history(write(folder / "history", lost.rows))
        with Engines(engine).open(history) as opened:
            assert judge_with(history, Contract(), opened).anomalies == {"lost-write": 1}


def test_an_old_sqlite_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = open_history(write(tmp_path / "history", book().rows))
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    assert Engines().pick(history) == "duckdb"
    for refused in (SQLite, Engines("sqlite").check):
        with pytest.raises(EngineUnavailable, match=r"the checks need SQLite 3.39 or later, .*use --engine=duckdb"):
            refused()


def test_ctrl_c_ends_a_query_of_sqlite_and_what_was_made_stays() -> None:
    with SQLite() as lite:
        lite.load("numbers", pa.table({"x": range(2_000)}))
        lite.table("few", "select x from numbers where x < 3")
        assert lite.rows("select count(*) as many from few") == [{"many": 3}]
        lite.table("more", "select a.x from numbers a cross join numbers b cross join numbers c")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt, match="SQLite was interrupted at create table more"):
            lite.rows("select count(*) as many from more")
        assert lite.rows("select count(*) as many from few") == [{"many": 3}]


@pytest.mark.parametrize(
    "sql",
    ["select concat(x, '') as made from numbers", "select bit_or(x) as made from numbers"],
    ids=["function", "aggregate"],
)
def test_ctrl_c_in_a_python_function_of_sqlite_is_no_error(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pressed: list[int] = []

    def press(*values: object) -> int:
        pressed.append(1)
        if len(pressed) == 3:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setitem(cast("dict[str, object]", sqlite_engine._FUNCTIONS), "concat", press)
    monkeypatch.setattr(sqlite_engine._BitOr, "step", press)
    with SQLite() as lite:
        lite.load("numbers", pa.table({"x": range(5)}))
        lite.table("made_once", sql)
        for query in ("select * from made_once", sql):  # a table that is made, and rows that are read
            with pytest.raises(KeyboardInterrupt, match="SQLite was interrupted at "):
                lite.rows(query)
            assert len(lite.rows("select * from made_once")) in (1, 5)
            pressed.clear()


def test_an_error_of_a_python_function_of_sqlite_stays_an_error() -> None:
    with SQLite() as lite, pytest.raises(EngineError, match="SQLite could not run select regexp_extract"):
        lite.rows("select regexp_extract('a', '(', 0) as none")


def test_auto_is_sqlite_for_small_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = book().rows
    small = HistoryReader(write(tmp_path / "small", rows))
    assert Engines().pick(small) == "sqlite"
    for common_sql, engine in ((True, "sqlite"), (False, "duckdb")):
        with Engines().open(small, common_sql=common_sql) as opened:
            assert opened.name == engine
    for most, rows_of in (("SMALL_ROWS", ("ops", "effects")), ("SMALL_ROWS_IN_ALL", DATA_SETS)):
        with monkeypatch.context() as patch:
            patch.setattr(engine_selection, most, sum(map(small.rows, rows_of)) - 1)
            assert Engines().pick(small) == "duckdb"


def test_the_footers_of_files_are_read_once(tmp_path: Path) -> None:
    """A large history is scanned some hundred times."""
    path = write(tmp_path / "history", book().rows)
    with DuckDB(kept_values=0) as engine:
        engine.register("effects", sorted((path / "effects").glob("*.parquet")), SCHEMAS["effects"])
        rows = "select count(*) as many, max(position) as last from effects where kind = 'append'"
        first = engine.rows(rows)
        assert engine.rows("select current_setting('parquet_metadata_cache') as cached") == [{"cached": True}]
        assert engine.rows(rows) == first


@pytest.mark.parametrize(
    ("few", "limited", "limit"),
    [(0, 1_000_000, "667.5 MiB"), (0, 1, "3.7 GiB"), (1_000_000, 1_000_000, "3.7 GiB")],
)
def test_a_session_of_pytest_limits_the_memory_of_large_histories(
    few: int, limited: int, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories of few effects share a database, which never needs its limit. Very large ones need more memory."""
    monkeypatch.setattr(engine_selection, "FEW_EFFECTS", few)
    monkeypatch.setattr(engine_selection, "RUN_MEMORY_EFFECTS", limited)
    history = HistoryReader(write(tmp_path / "history", book().rows))
    with Engines("duckdb", memory=RUN_MEMORY).open(history) as engine:
        assert engine.rows("select current_setting('memory_limit') as memory") == [{"memory": limit}]


@pytest.mark.parametrize("column", ["value", "position", "call"])
@pytest.mark.parametrize("sign", [1, -1])
def test_sqlite_is_given_no_numbers_that_may_leave_64_bits(column: str, sign: int, tmp_path: Path) -> None:
    """It would go on with something near them."""
    rows = book().rows
    most = 2**48 if column == "value" else 2**52
    for number, engine in ((most, "sqlite"), (most + 1, "duckdb")):
        history = HistoryReader(write(tmp_path / str(number), [*rows[:-1], {**rows[-1], column: sign * number}]))
        assert Engines().pick(history) == engine
        history.load()
        assert Engines().pick(history) == engine, "from memory"


def test_a_file_that_says_nothing_of_its_numbers_is_none_for_sqlite(tmp_path: Path) -> None:
    path = write(tmp_path / "history", book().rows)
    (part,) = (path / "effects").glob("*.parquet")
    pq.write_table(pq.read_table(part), part, write_statistics=False)
    assert Engines().pick(HistoryReader(path)) == "duckdb"


def test_auto_is_duckdb_while_it_fits_and_spark_when_a_master_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.checkers.engine.engine_selection.SMALL_ROWS", 10)
    reader = HistoryReader(write(tmp_path / "history", book().rows))
    assert Engines().pick(reader) == "duckdb"
    assert Engines(spark_master="local[4]").pick(reader) == "spark"
    assert Engines("spark").pick(reader) == "spark"
    monkeypatch.setattr("assay.checkers.engine.engine_selection.FITS_ROWS", 10)
    monkeypatch.setattr("assay.checkers.engine.engine_selection._is_spark_available", lambda: True)
    assert Engines().pick(reader) == "spark"
    assert Engines("duckdb").pick(reader) == "duckdb"
    assert Engines(spark=False).pick(reader) == "duckdb", "it may be in a task of Spark itself"
    monkeypatch.setattr("assay.checkers.engine.engine_selection._is_spark_available", lambda: False)
    assert Engines().pick(reader) == "duckdb"


def test_wrong_choices_are_errors() -> None:
    with pytest.raises(ValueError, match="no engine is called 'abacus'"):
        Engines("abacus")
    with pytest.raises(ValueError, match="use spark"):
        Engines("duckdb", spark_master="yarn")


def test_the_error_says_what_spark_lacks_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    Engines("duckdb").check()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EngineUnavailable, match="apt-get install default-jre-headless"):
        Engines("spark").check()
    monkeypatch.setattr("assay.checkers.engine.engine_selection.find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match="pip install pyspark"):
        Engines(spark_master="local[2]").check()


def test_duckdb_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with DuckDB(memory="40MB", threads=1) as duck:
        duck.table("big", "select i, hash(i) as h, hash(i + 1) as g from range(3000000) t(i)")
        assert duck.rows("select count(*) as many from big") == [{"many": 3000000}]
        assert list(tmp_path.glob("assay-duckdb-*/*"))
    assert list(tmp_path.iterdir()) == []
