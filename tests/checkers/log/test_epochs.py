"""Leader epochs and replicas on disks: the anomalies, their legal neighbours, every pair of many small histories."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import Check, create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.log.epochs import EPOCH_HISTORY_DIVERGENCE, LEADER_COMPLETENESS, MEMBER_COMPLETENESS, REPLICATION
from assay.checkers.log.replicas import LOST_LAST_VALUE, REPLICA_HOLE

from helpers.epoch_histories import (
    ack,
    began,
    compacted_disks,
    disks,
    divergent,
    end,
    event,
    holes,
    incomplete,
    joined,
    keyed,
    log_end,
    lost_last,
    mark,
    premature,
    record,
    replica,
    shown,
    terms,
)  # fmt: skip
from helpers.judging import opened
from helpers.log_histories import Row, effect, write
from helpers.nightly import by_night


def found(
    folder: Path,
    *,
    effects: list[Row] | None = None,
    contract: Contract | None = None,
    **others: list[Row],
) -> list[Finding]:
    with opened(write(folder / "history", effects or [], **others)) as engine:
        register_contract(engine, contract or Contract())
        reported = []
        for family in REPLICATION:
            for check in family.checks:
                create_views(engine, check.views)
                reported += read_findings(engine, check)
        return reported


def test_a_leader_that_lacks_what_was_announced_is_reported_with_who_announced_it(tmp_path: Path) -> None:
    events = [began(1, 3, 0, 0), mark(2, 3, 9), began(3, 4, 7, 7, node="n2")]
    (finding,) = found(tmp_path, events=events)
    assert (finding.anomaly, finding.key, finding.time) == ("leader-completeness", "t-0", 3_000_000_000)
    assert finding.claim == (
        "n2 began to lead t-0 in epoch 4 with a log that ends at offset 7, although n1 had announced the high "
        "watermark 9 in epoch 3."
    )


def test_a_leader_that_lacks_what_a_client_was_given_is_reported_with_the_client(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, effects=[end(2, 9, 3)], events=[began(1, 3, 0, 0), began(3, 4, 7, 7, node="n2")])
    assert finding.operations == (2,)
    assert finding.claim == (
        "n2 began to lead t-0 in epoch 4 with a log that ends at offset 7, although process 2, called at 2.000 "
        "s, had been answered that it goes to 9 in epoch 3."
    )


def test_a_member_that_joined_too_early_is_reported_with_its_leader(tmp_path: Path) -> None:
    events = [mark(1, 3, 9, node="n3"), began(2, 4, 9, 5, node="n2"), joined(3, 4, 8, 5, node="n2")]
    (finding,) = found(tmp_path / "before", events=events)
    assert finding.claim == (
        "N2, the leader of t-0 in epoch 4, let a replica into the in-sync set that had come to offset 8, although n3 "
        "had announced the high watermark 9 in epoch 3."
    )
    (finding,) = found(tmp_path / "own", events=[began(2, 4, 9, 9), joined(3, 4, 10, 11)])
    assert "although its own high watermark was 11" in finding.claim


def test_epochs_that_begin_at_different_offsets_are_reported_with_both_replicas(tmp_path: Path) -> None:
    disk = [*replica("n1", {0: 0, 2: 4}, 0, 8), *replica("n2", {0: 0, 2: 5}, 0, 8), *replica("n3", {0: 0, 2: 4}, 0, 8)]
    (finding,) = found(tmp_path, replicas=disk)
    assert (finding.anomaly, finding.key) == ("epoch-history-divergence", "t-0")
    assert finding.claim == (
        "Epoch 2 of t-0 begins at offset 4 by the history of n1 and at offset 5 by that of n2, after all replicas had "
        "rejoined."
    )


def test_offsets_that_a_member_lacks_are_reported_with_one_that_has_them(tmp_path: Path) -> None:
    disk = [*replica("n1", {0: 0}, 0, 8), *replica("n2", {0: 0}, 0, 8)]
    (finding,) = found(tmp_path / "two", replicas=[row for row in disk if row not in disk[3:5]])
    assert (finding.anomaly, finding.key) == ("replica-hole", "t-0")
    assert finding.claim == (
        "n1, a member of the in-sync set, lacks 2 offsets from 3 to 4 of t-0, which n2 has, between its log start 0 "
        "and its high watermark 8."
    )
    (finding,) = found(tmp_path / "one", replicas=[row for row in disk if row not in disk[3:4]])
    assert "lacks offset 3 of t-0" in finding.claim


def test_a_log_that_its_node_finds_damaged_is_reported_with_the_offset(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, events=[damaged(7), damaged(5)], faults=[injected("kill")])
    assert (finding.anomaly, finding.key) == ("damaged-log", "t-0")
    assert finding.claim == (
        "n1 found its log of t-0 damaged from offset 5 on, although no fault had touched a file of it."
    )


def damaged(position: int) -> Row:
    return mark(position, 3, 9) | {"event": "log-damaged", "position": position}


def injected(name: str, **impact: bool) -> Row:
    return {
        "id": 1, "fault": name, "targets": '["n2"]', "phase": "injected", "time": 1, "detail": "{}",
        "damages_files": False, **impact,
    }  # fmt: skip


def sole(enough: int, isr: str) -> list[Row]:
    """A leader whose in-sync set had come down to that begins again without the last two records."""
    written = event(2, "partition-state-written", 3, isr=isr, elr="", value=1, min_insync=enough)
    return [mark(1, 3, 9), written, began(3, 4, 7, 7)]


def in_sync(*sets: str, known: tuple[int, ...] = (1, 2)) -> list[Row]:
    """The in-sync sets that there were, and the nodes n1, n2, ... whose numbers are known."""
    numbers = [event(1, "registered", 0, key=None, node=f"n{number}", value=number) for number in known]
    return [*numbers, *(event(2 + at, "isr-change", 3, isr=isr, value=len(isr)) for at, isr in enumerate(sets))]


def of_power(*targets: str) -> Row:
    return injected("power-loss", loses_unsynced=True) | {"targets": json.dumps(targets)}


CUT = {"contract": Contract(unflushed=2), "faults": [of_power("n2")]}
LACKING = [mark(6, 3, 9), began(7, 4, 7, 7, node="n2")]
JOINED = [mark(6, 3, 9), began(7, 4, 9, 5, node="n2"), joined(8, 4, 8, 5, node="n2")]


def deletion(topic: str, outcome: str) -> Row:
    return effect(1, 0, "topic-delete", topic, 1, None if outcome == "info" else 2, outcome=outcome)


def compacted(*sends: Row, n1: range | tuple[int, ...], n2: range | tuple[int, ...], **given: Any) -> dict[str, Any]:
    """Returns what is left of a compacted log: on n1 these values, each at the offset of its number, on n2 those."""
    held = {"n1": n1, "n2": n2}
    disk = [record(node, at, 0, 0, **(given if node == "n2" else {})) for node in held for at in held[node]]
    ends = [log_end(node, 9, None, 9, in_isr=given.get("in_isr", True) or node == "n1") for node in held]
    return {"effects": list(sends), "replicas": disk + ends, "contract": Contract(compacted=("t-0",))}


OF_A = (keyed(1, 1, 1, "a"), keyed(2, 2, 2, "a"), keyed(3, 3, None, "a"), keyed(4, 4, 4, "b"))
HALF = {2: 4, 0: 0}
HAVE: dict[str, tuple[str, dict[str, Any]]] = {
    "a deletion that was rejected": (
        "leader-completeness", {"effects": [deletion("t", "fail")], "events": [mark(1, 3, 9), began(2, 4, 7, 7)]},
    ),
    "another topic is deleted": (
        "leader-completeness", {"effects": [deletion("t-0", "ok")], "events": [mark(1, 3, 9), began(2, 4, 7, 7)]},
    ),
    "a member that lacks what was committed before the epoch": (
        "member-completeness",
        {"events": [mark(1, 3, 9), began(2, 4, 9, 5, node="n2"), joined(3, 4, 8, 5, node="n2")]},
    ),
    "a member that lacks what a client was answered": (
        "member-completeness",
        {"effects": [end(5, 9, 3)], "events": [began(2, 4, 9, 5), joined(3, 4, 8, 5)]},
    ),
    "a member below its leader's high watermark": (
        "member-completeness", {"events": [began(2, 4, 9, 9), joined(3, 4, 10, 11)]},
    ),
    "two epochs later": ("leader-completeness", {"events": [mark(1, 3, 9), began(2, 7, 8, 8)]}),
    "announced by the leader that began": (
        "leader-completeness", {"events": [began(1, 3, 9, 9), began(2, 4, 8, 8, node="n2")]},
    ),
    "acknowledged in an earlier epoch": (
        "leader-completeness", {"effects": [ack(1, 8, "n1", epoch=3)], "events": [began(2, 4, 8, 8)]},
    ),
    "acknowledged by one that led in an earlier epoch": (
        "leader-completeness",
        {"effects": [ack(5, 8, "n1")], "events": [began(1, 3, 4, 4), began(2, 5, 9, 9), began(1, 4, 8, 8, node="n2")]},
    ),
    "a record was shown by a leader of an earlier epoch": (
        "leader-completeness",
        {"effects": [shown(5, 8, "n1")], "events": [began(1, 3, 9, 4), began(1, 4, 8, 8, node="n2")]},
    ),
    "a record was shown by a leader of an earlier epoch, and a poll of unknown outcome went further": (
        "leader-completeness",
        {
            "effects": [shown(5, 8, "n1"), shown(6, 9, "n1") | {"outcome": "info"}],
            "events": [began(1, 3, 9, 4), began(1, 4, 8, 8, node="n2")],
        },
    ),
    "a replica joined without a record that was shown": (
        "member-completeness",
        {
            "effects": [shown(5, 8, "n1")],
            "events": [began(1, 3, 4, 4), began(1, 4, 9, 4, node="n2"), joined(2, 4, 8, 5, node="n2")],
        },
    ),
    "damaged after a loss of power": (
        "damaged-log", {"events": [damaged(7)], "faults": [injected("power-loss", loses_unsynced=True)]},
    ),
    "a fault that would have changed files did not come": (
        "damaged-log",
        {"events": [damaged(7)], "faults": [injected("corrupt", damages_files=True) | {"phase": "intended"}]},
    ),
    "a fault that would have changed files found no target": (
        "damaged-log",
        {
            "events": [damaged(7)],
            "faults": [injected("corrupt", damages_files=True) | {"phase": "failed", "stage": "target"}],
        },
    ),
    "a loss of power that found no target takes nothing": (
        "leader-completeness",
        {
            "events": [mark(1, 3, 9), began(2, 4, 7, 7)], "contract": Contract(unflushed=2),
            "faults": [injected("power-loss", loses_unsynced=True) | {"phase": "failed", "stage": "target"}],
        },
    ),
    "nor has one whose trigger never came a part in what a member lacks": (
        "member-completeness",
        {
            "events": [mark(1, 3, 9), began(2, 4, 9, 5, node="n2"), joined(3, 4, 8, 5, node="n2")],
            "contract": Contract(unflushed=2),
            "faults": [injected("power-loss", loses_unsynced=True) | {"phase": "failed", "stage": "trigger"}],
        },
    ),
    "one lost its power, and another in sync had all": (
        "leader-completeness", {**CUT, "events": [*in_sync("1,2", "1"), *LACKING]},
    ),
    "what another in sync had, a member lacks": (
        "member-completeness", {**CUT, "events": [*in_sync("1,2", "1"), *JOINED]},
    ),
    "alone, and another lost its power": (
        "leader-completeness", {"events": [*in_sync("1"), *sole(1, "1")], "faults": [of_power("n2")]},
    ),
    "alone, and no power was lost": ("leader-completeness", {"events": sole(1, "1")}),
    "one of two that are needed": (
        "leader-completeness", {"events": sole(2, "1"), "faults": [injected("power-loss", loses_unsynced=True)]},
    ),
    "one of two, though one is enough": (
        "leader-completeness", {"events": sole(1, "1,2"), "faults": [injected("power-loss", loses_unsynced=True)]},
    ),
    "compacted for the sake of a value that is no more": ("lost-last-value", compacted(*OF_A, n1=(2, 4), n2=(4,))),
    "an earlier value left": ("lost-last-value", compacted(*OF_A, n1=(2, 4), n2=(1, 4))),
    "an empty log": (
        "replica-hole", {"replicas": [*replica("n1", {0: 0}, 0, 8), log_end("n2", 0, 0, 8)]},
    ),
    "both logs begin later": (
        "epoch-history-divergence",
        {"replicas": [*replica("n1", {0: 2, 2: 4}, 2, 8), *replica("n2", {0: 1, 2: 5}, 1, 8)]},
    ),
}  # fmt: skip
HAVE_NOT: dict[str, dict[str, Any]] = {
    "all that was announced": {"events": [began(1, 3, 0, 0), mark(2, 3, 9), began(3, 4, 9, 7, node="n2")]},
    "a member that has all that was committed": {"events": [mark(1, 3, 9), began(2, 4, 9, 5), joined(3, 4, 9, 9)]},
    "a member that lacks what the next epoch committed": {
        "events": [began(2, 4, 5, 5), joined(3, 4, 6, 6), began(4, 5, 9, 9), mark(5, 5, 9)],
    },
    "a member of a topic that is being deleted": {
        "effects": [deletion("t", "info")], "events": [mark(1, 3, 9), began(2, 4, 9, 5), joined(3, 4, 8, 5)],
    },
    "a set that no one joined": {"events": [mark(1, 3, 9), began(2, 4, 9, 5), event(3, "isr-change", 4)]},
    "announced in a later epoch": {"events": [began(1, 4, 7, 7), mark(2, 4, 9), began(3, 3, 7, 7)]},
    "of another partition": {"events": [mark(1, 3, 9, key="t-1"), began(2, 4, 7, 7)]},
    "of the topic that had this name before": {
        "events": [began(1, 3, 0, 0), mark(2, 3, 9), began(3, 4, 0, 0, key="t#2-0")],
    },
    "an end of one of two topics, counted in another order": {
        "effects": [end(2, 9, 3)], "events": [began(1, 4, 0, 0), began(3, 0, 0, 0, key="t#0-0")],
    },
    "of a topic that is being deleted": {
        "effects": [deletion("t", "info")], "events": [mark(1, 3, 9), began(2, 4, 0, 0)],
    },
    "of a later topic of a name that is being deleted": {
        "effects": [deletion("t#3", "ok")], "events": [mark(1, 3, 9, key="t#2-0"), began(2, 4, 0, 0, key="t#2-0")],
    },
    "an end of an unknown epoch": {"effects": [end(2, 9, None)], "events": [began(1, 4, 7, 7)]},
    "acknowledged by one that may have led later": {
        "effects": [ack(5, 8, "n1")], "events": [began(1, 3, 4, 4), began(2, 5, 8, 8), began(1, 4, 8, 8, node="n2")],
    },
    "acknowledged by one whose event log has gaps": {
        "effects": [ack(5, 8, "n1")], "events": [began(1, 3, 4, 4), began(3, 5, 9, 9), began(1, 4, 8, 8, node="n2")],
    },
    "a record before the end of the next epoch was shown": {
        "effects": [shown(5, 7, "n1")], "events": [began(1, 3, 4, 4), began(1, 4, 8, 8, node="n2")],
    },
    "a record was shown by a node that led later, too": {
        "effects": [shown(5, 8, "n1")],
        "events": [began(1, 3, 4, 4), began(2, 5, 9, 9), began(1, 4, 8, 8, node="n2")],
    },
    "a record was shown by a node that may have led later, too": {
        "effects": [shown(5, 8, "n1")], "events": [began(1, 3, 4, 4), mark(3, 3, 6), began(1, 4, 8, 8, node="n2")],
    },
    "a record was shown by a node that no one has seen lead": {
        "effects": [shown(5, 8, "n3")], "events": [began(1, 3, 4, 4), mark(1, 4, 3, node="n3"), began(2, 5, 8, 8)],
    },
    "a poll that may have shown a record": {
        "effects": [shown(5, 8, "n1") | {"outcome": "info"}],
        "events": [began(1, 3, 4, 4), began(1, 4, 8, 8, node="n2")],
    },
    "a record was shown of a topic of the same name": {
        "effects": [shown(5, 8, "n1")],
        "events": [began(1, 3, 4, 4), began(1, 4, 8, 8, node="n2"), began(2, 5, 9, 9, node="n2", key="t#2-0")],
    },
    "a file was changed": {"events": [damaged(7)], "faults": [injected("corrupt", damages_files=True)]},
    "half a fault that changes files": {
        "events": [damaged(7)],
        "faults": [injected("corrupt", damages_files=True) | {"phase": "failed", "stage": "inject"}],
    },
    "a fault of which it is not known whether it changes files": {
        "events": [damaged(7)], "faults": [injected("dust") | {"damages_files": None}],
    },
    "one was enough, alone, and lost its power": {
        "events": sole(1, "1"), "faults": [injected("power-loss", loses_unsynced=True)],
    },
    "a granted cut": {
        "events": [mark(1, 3, 9), began(2, 4, 7, 7)], "contract": Contract(unflushed=2),
        "faults": [{
            "id": 1, "fault": "power-loss", "targets": "[]", "phase": "injected", "time": 1, "detail": "{}",
            "loses_unsynced": True,
        }],
    },
    "one lost its power, which had been alone in sync": {**CUT, "events": [*in_sync("1,2", "2"), *LACKING]},
    "and so a member lacks it": {**CUT, "events": [*in_sync("1,2", "2"), *JOINED]},
    "all in sync lost their power, though another did not": {
        **CUT, "events": [*in_sync("1,2", known=(1, 2, 3)), *LACKING], "faults": [of_power("n1", "n2")],
    },
    "all in sync lost something, one after the other": {
        **CUT, "events": [*in_sync("1,2"), *LACKING],
        "faults": [injected("wipe", damages_files=True) | {"id": 2, "targets": '["n1"]'}, of_power("n2")],
    },
    "one lost its power, and which node is the other is not known": {
        **CUT, "events": [*in_sync("1,2", known=(2,)), *LACKING],
    },
    "some lost their power, and no one knows who": {
        **CUT, "events": [*in_sync("1,2"), *LACKING], "faults": [of_power()],
    },
    "an in-sync set of which one part of a number is not the number": {
        **CUT, "events": [*in_sync("12,2", known=(1, 2)), *LACKING],
    },
    "one log begins in the epoch": {
        "replicas": [*replica("n1", {0: 0, 2: 4}, 0, 8), *replica("n2", {2: 6}, 6, 8)],
    },
    "beyond what counts": {
        "replicas": [record("n1", 4, 2, 4), record("n2", 4, 2, 3, below_hw=False)],
    },
    "another begins later": {"replicas": [*replica("n1", {0: 0}, 0, 8), *replica("n2", {0: 4}, 4, 8)]},
    "not below its own high watermark": {
        "replicas": [*replica("n1", {0: 0}, 0, 8), *replica("n2", {0: 0}, 0, 6)[:-1], log_end("n2", 6, 0, 6)],
    },
    "not in the in-sync set": {
        "replicas": [*replica("n1", {0: 0}, 0, 8), log_end("n2", 0, 0, 8, in_isr=False)],
    },
    "compacted as far as the last value": compacted(*OF_A, n1=(1, 2, 4), n2=(2, 4)),
    "the later value is there after all": compacted(*OF_A, n1=(2, 3, 4), n2=(3, 4)),
    "a tombstone": compacted(*OF_A, keyed(5, 5, 5, "a", tombstone=True), n1=(2, 4), n2=(4,)),
    "out of the in-sync set, and compacted": compacted(*OF_A, n1=(2, 4), n2=(4,), in_isr=False),
    "compacted on the disk": {
        "replicas": [*replica("n1", {0: 0}, 0, 8), log_end("n2", 0, None, 8)],
    },
    "compacted by contract": {
        "replicas": [*replica("n1", {0: 0}, 0, 8), log_end("n2", 0, 0, 8)], "contract": Contract(compacted=("t-0",)),
    },
}  # fmt: skip


@pytest.mark.parametrize(("anomaly", "history"), HAVE.values(), ids=HAVE)
def test_it_is_found(anomaly: str, history: dict[str, Any], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, **history)] == [anomaly]


@pytest.mark.parametrize("history", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(history: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, **history) == []


def test_more_than_a_power_loss_may_take_is_found(tmp_path: Path) -> None:
    history = HAVE_NOT["a granted cut"] | {"contract": Contract(unflushed=1)}
    assert [finding.anomaly for finding in found(tmp_path, **history)] == ["leader-completeness"]


@pytest.mark.parametrize("count", [120, by_night(300)])
def test_they_say_what_looking_at_every_pair_says(tmp_path: Path, count: int) -> None:
    logs = [terms(f"t-{n}", random.Random(f"terms/{n}"), n * 100) for n in range(count)]
    stored = [disks(f"d-{n}", random.Random(f"disks/{n}")) for n in range(count)]
    keyed_logs = [compacted_disks(f"c-{n}", random.Random(f"compacted/{n}"), 10**6 + n * 100) for n in range(count)]
    by_force: dict[Check, list[set[tuple[Any, ...]]]] = {
        LEADER_COMPLETENESS: [incomplete(*one) for one in logs],
        MEMBER_COMPLETENESS: [premature(*one) for one in logs],
        EPOCH_HISTORY_DIVERGENCE: [divergent(one) for one in stored],
        REPLICA_HOLE: [holes(one) for one in stored],
        LOST_LAST_VALUE: [lost_last(*one) for one in keyed_logs],
    }
    columns = {
        LEADER_COMPLETENESS: "key epoch",
        MEMBER_COMPLETENESS: "key epoch position",
        EPOCH_HISTORY_DIVERGENCE: "key epoch",
        REPLICA_HOLE: "key node position missing",
        LOST_LAST_VALUE: "key node position",
    }
    folder = write(
        tmp_path / "history",
        [row for _, answers in logs for row in answers] + [row for sends, _ in keyed_logs for row in sends],
        events=[row for events, _ in logs for row in events],
        replicas=[row for rows in (*stored, *(left for _, left in keyed_logs)) for row in rows],
    )
    with opened(folder) as engine:
        register_contract(engine, Contract(compacted=tuple(f"c-{n}" for n in range(count))))
        for check, expected in by_force.items():
            create_views(engine, check.views)
            rows = engine.rows(f"select * from {check.found}")
            assert {tuple(row[name] for name in columns[check].split()) for row in rows} == set().union(*expected)
            assert count // 8 < sum(map(bool, expected)) < count, check.anomaly
            for finding in read_findings(engine, check):
                assert finding.claim.endswith(".")
                assert "None" not in finding.claim, finding.claim
