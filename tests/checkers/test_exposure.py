"""Exposure: what a history could have contradicted, by brute force, and runs that must not pass without any."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.check import Check, create_views
from assay.checkers.exposure import (
    EXPOSURE_BOUND,
    NO_BOUND,
    Exposure,
    ExposureCount,
    add_counts,
    describe_blindness,
    read_count,
)
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.objects.counters import COUNTER_ORDER, COUNTERS
from assay.checkers.objects.max_registers import MAX_ORDER, MAX_REGISTERS
from assay.checkers.objects.queues import QUEUE_LOST, QUEUES
from assay.checkers.objects.sets import SET_LOST, SET_VANISHED, SETS
from assay.checkers.register.family import REGISTER
from assay.checkers.register.order import STALE_READ
from assay.nemesis.faults.fault import Impact
from assay.workloads.generic import locks

from helpers.fault_rows import fault
from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write
from helpers.object_histories import counter, max_register, queue, some_set
from helpers.register_histories import SimulatedRegister

S: Final = 1_000_000_000
Counts = dict[str, tuple[int, int]]
"""Claims and exposed claims by key."""


def of_element(rows: Sequence[Row], kind: str, value: int) -> list[Row]:
    return [row for row in rows if row["kind"] == kind and row["value"] == value and row["outcome"] != "fail"]


def set_lost(rows: Sequence[Row], bound: int) -> tuple[int, int]:
    claims = exposed = 0
    reads = [row["call"] for row in rows if row["kind"] == "set-read" and row["outcome"] == "ok"]
    for value in {row["value"] for row in rows} - {None}:
        adds = of_element(rows, "set-add", value)
        if len(adds) == 1 and adds[0]["outcome"] == "ok" and not of_element(rows, "set-remove", value):
            claims += 1
            exposed += any(call > adds[0]["ret"] and call > bound for call in reads)
    return claims, exposed


def set_vanished(rows: Sequence[Row], bound: int) -> tuple[int, int]:
    claims = exposed = 0
    reads = [row for row in rows if row["kind"] == "set-read" and row["outcome"] == "ok"]
    for value in {row["value"] for row in reads} - {None}:
        if not of_element(rows, "set-remove", value):
            claims += 1
            seen = min(row["ret"] for row in reads if row["value"] == value)
            exposed += any(row["call"] > seen for row in reads)
    return claims, exposed


def queue_lost(rows: Sequence[Row], bound: int) -> tuple[int, int]:
    drains = [row for row in rows if row["kind"] == "queue-drained"]
    complete = max((row["call"] for row in drains if row["outcome"] == "ok"), default=-1)
    open_ended = any(row["outcome"] == "info" for row in drains)
    excuses = sum(row["kind"] == "queue-dequeue" and row["outcome"] == "info" for row in rows)
    claims = taken = missed = 0
    for value in {row["value"] for row in rows} - {None}:
        adds = of_element(rows, "queue-enqueue", value)
        if len(adds) == 1 and adds[0]["outcome"] == "ok":
            claims += 1
            if any(row["outcome"] == "ok" for row in of_element(rows, "queue-dequeue", value)):
                taken += 1
            else:
                missed += complete > max(adds[0]["ret"], bound) and not open_ended
    return claims, taken + max(0, missed - excuses)


def counter_order(rows: Sequence[Row], bound: int) -> tuple[int, int]:
    ok = [row for row in rows if row["outcome"] == "ok"]
    adds = [row for row in ok if row["kind"] == "counter-add"]
    exposed = sum(any(row["call"] > max(add["ret"], bound) for row in ok) for add in adds)
    return len(adds), exposed


def max_order(rows: Sequence[Row], bound: int) -> tuple[int, int]:
    ok = [row for row in rows if row["outcome"] == "ok"]
    writes = [row for row in ok if row["kind"] == "max-write"]
    reads = [row for row in ok if row["kind"] == "max-read"]
    return len(writes), sum(any(row["call"] > max(one["ret"], bound) for row in reads) for one in writes)


FAULTS: Final = (
    pytest.param([], NO_BOUND, id="no-faults"),
    pytest.param([*fault(1, "kill", 3, 9), *fault(2, "partition", 2, 7)], 9, id="kill-and-partition"),
    pytest.param([*fault(1, "power-loss", 1, 5), *fault(2, "slow-disk", 8, 12)], 5, id="a-slow-disk-does-not-count"),
)


@pytest.mark.parametrize(("faults", "bound"), FAULTS)
@pytest.mark.parametrize(
    ("make", "family", "check", "expected"),
    [
        pytest.param(some_set, SETS, SET_LOST, set_lost, id="set-lost"),
        pytest.param(some_set, SETS, SET_VANISHED, set_vanished, id="set-vanished"),
        pytest.param(queue, QUEUES, QUEUE_LOST, queue_lost, id="queue-lost"),
        pytest.param(counter, COUNTERS, COUNTER_ORDER, counter_order, id="counter-order"),
        pytest.param(max_register, MAX_REGISTERS, MAX_ORDER, max_order, id="max-order"),
    ],
)
def test_claims_and_exposed_claims_are_those_of_the_definition(
    tmp_path: Path,
    make: Callable[[str, random.Random, int], list[Row]],
    family: Any,
    check: Check,
    expected: Callable[[Sequence[Row], int], tuple[int, int]],
    faults: list[Row],
    bound: int,
) -> None:
    histories = {
        f"k-{number}": make(f"k-{number}", random.Random(f"{check.anomaly}/{number}"), 100 * number)
        for number in range(300)
    }
    rows = [row for one in histories.values() for row in one]
    assert check.exposure is not None
    with opened(write(tmp_path / "history", rows, faults=faults)) as engine:
        register_contract(engine, Contract())
        assert family.prepare is not None
        family.prepare(engine)
        create_views(engine, check.views)
        counted: Counts = {row["key"]: (row["claims"], row["exposed"]) for row in engine.rows(check.exposure.rows)}
        total = read_count(engine.rows(check.exposure.totals)[0])
    wanted = {key: expected(one, bound) for key, one in histories.items()}
    if check is COUNTER_ORDER:  # a counter with an add of unknown result is not judged at all
        unclear = {
            row["key"]
            for row in rows
            if row["kind"] == "counter-add" and row["outcome"] == "ok" and row["value"] is None
        }
        wanted = {key: count for key, count in wanted.items() if key not in unclear}
    assert counted == {key: count for key, count in wanted.items() if count[0]}
    blind = sorted(key for key, (claims, exposed) in counted.items() if claims and not exposed)
    claims, exposed = (sum(count[place] for count in counted.values()) for place in (0, 1))
    assert total == ExposureCount(claims, exposed, len(blind), blind[0] if blind else None)
    assert blind
    assert 0 < exposed < claims


@pytest.mark.parametrize(("drained", "exposed"), [(60, 0), (90, 2)])
def test_a_drain_before_the_last_heal_exposes_only_what_was_dequeued(
    tmp_path: Path, drained: int, exposed: int
) -> None:
    rows = [
        *[effect(op, 0, "queue-enqueue", "q", op, op + 5, value=op, process=op) for op in range(3)],
        effect(3, 0, "queue-dequeue", "q", 10, 15, value=0, process=3),
        effect(4, 0, "queue-drained", "q", drained, drained + 5, process=4),
    ]
    assert QUEUE_LOST.exposure is not None
    assert QUEUES.prepare is not None
    with opened(write(tmp_path / "history", rows, faults=fault(1, "kill", 70, 80))) as engine:
        register_contract(engine, Contract())
        QUEUES.prepare(engine)
        create_views(engine, QUEUE_LOST.views)
        assert read_count(engine.rows(QUEUE_LOST.exposure.totals)[0]) == ExposureCount(3, 1 + exposed)


@pytest.mark.parametrize(
    ("does", "bound"),
    [
        *[
            pytest.param({name: True}, 9, id=name)
            for name in ("ends_process", "pauses_process", "cuts_links", "loses_unsynced", "damages_files")
        ],
        pytest.param({"wrong_clock": True, "moves_replicas": True, "gradual": True}, NO_BOUND, id="others"),
    ],
)
def test_a_fault_that_may_destroy_data_or_stop_servers_moves_the_bound(
    tmp_path: Path, does: dict[str, bool], bound: int
) -> None:
    """Also a fault of an extension that does only one of these."""
    rows = [{**row, **asdict(Impact()), **does} for row in fault(1, "slow-disk", 3, 9)]
    with opened(write(tmp_path / "history", ADDS, faults=rows)) as engine:
        assert engine.rows(EXPOSURE_BOUND) == [{"since": bound}]


def test_counts_of_separate_keys_add_up() -> None:
    parts = [ExposureCount(3, 1, 1, "b"), ExposureCount(2, 0, 1, "a"), ExposureCount(5, 5)]
    assert add_counts(parts) == ExposureCount(10, 6, 2, "a")
    assert add_counts([]) == ExposureCount(0, 0)


DECLARED: Final = Exposure(
    rows="", nouns="elements", asserted="acknowledged", observed="read", remedy="add a final read", each_key=True
)


@pytest.mark.parametrize(
    ("count", "bound", "reason"),
    [
        (ExposureCount(0, 0), NO_BOUND, "no elements were acknowledged"),
        (
            ExposureCount(1, 0, 1, "k"),
            NO_BOUND,
            "of the elements, one was acknowledged, and it was not read afterwards",
        ),
        (ExposureCount(381, 0, 1, "k"), NO_BOUND, "381 elements were acknowledged, none was read afterwards"),
        (
            ExposureCount(9, 0, 1, "k"),
            2 * S,
            "9 elements were acknowledged, none was read after the last fault was healed at 2.000 s",
        ),
        (
            ExposureCount(9, 4, 1, "k"),
            NO_BOUND,
            "of the elements that were acknowledged in k, none was read afterwards",
        ),
        (
            ExposureCount(9, 4, 3, "k"),
            NO_BOUND,
            "of the elements that were acknowledged in k and 2 other keys, none was read afterwards",
        ),
        (ExposureCount(9, 4), NO_BOUND, None),
    ],
)
def test_the_reason_is_one_sentence_with_the_remedy(count: ExposureCount, bound: int, reason: str | None) -> None:
    said = describe_blindness("set-lost", DECLARED, count, bound)
    assert said == (None if reason is None else f"set-lost: {reason}; add a final read")
    said = describe_blindness("set-lost", DECLARED, count, bound, ended=False)
    assert said == (None if reason is None else f"set-lost: {reason}; the run did not come to its own end")


# -- whole runs


def add(op: int, value: int, call: float, key: str = "k") -> Row:
    """An add of 30 ms. Stamps differ by the number of the operation."""
    return effect(op, 0, "set-add", key, int(call * S) + op, int((call + 0.03) * S) + op, value=value, process=op)


def read(op: int, values: Sequence[int], call: float, key: str = "k") -> list[Row]:
    return [
        effect(op, sub, "set-read", key, int(call * S) + op, int((call + 0.03) * S) + op, value=value, process=op)
        for sub, value in enumerate(values or [None])
    ]


ADDS: Final = [add(op, op, 0.1 * op + 0.05) for op in range(20)]
"""Acknowledged from 0.15 to 2.05 s."""
LOST_ONLY: Final = Contract(forbidden=("set-lost",))


def judged(folder: Path, rows: Sequence[Row], faults: Sequence[Row] = (), contract: Contract = LOST_ONLY) -> Judgement:
    return judge(write(folder / "history", rows, faults=faults), contract)


def test_a_set_without_any_read_is_unknown_and_passes_with_a_final_read(tmp_path: Path) -> None:
    blind = judged(tmp_path / "blind", ADDS)
    assert blind.verdict is Verdict.UNKNOWN
    assert blind.unknown == (
        "set-lost: 20 elements were acknowledged, none was read afterwards; add a final read (sets.final_reads())",
    )
    (coverage,) = [one for one in blind.examined if one.check == "set-lost"]
    assert (coverage.claims, coverage.exposed) == (20, 0)
    sound = judged(tmp_path / "sound", [*ADDS, *read(20, range(20), 3)])
    assert (sound.verdict, sound.unknown, sound.warnings) == (Verdict.PASS, (), ())
    (coverage,) = [one for one in sound.examined if one.check == "set-lost"]
    assert (coverage.claims, coverage.exposed) == (20, 20)
    lost = judged(tmp_path / "lost", [*ADDS, *read(20, range(19), 3)])
    assert (lost.verdict, lost.anomalies) == (Verdict.FAIL, {"set-lost": 1})


def test_reads_before_a_power_loss_expose_nothing_that_it_may_have_destroyed(tmp_path: Path) -> None:
    early = [*ADDS, *read(20, range(4), 0.45), add(21, 21, 6.0)]
    power_loss = fault(1, "power-loss", 3 * S, 4 * S)
    blind = judged(tmp_path / "blind", early, power_loss)
    assert blind.verdict is Verdict.UNKNOWN
    assert (
        "set-lost: 21 elements were acknowledged, none was read after the last fault was healed at 4.000 s; "
        "add a final read (sets.final_reads())"
    ) in blind.unknown
    sound = judged(tmp_path / "sound", [*early, *read(22, [*range(20), 21], 7)], power_loss)
    assert not [reason for reason in sound.unknown if "set-lost" in reason]
    lost = judged(tmp_path / "lost", [*early, *read(22, [*range(10), 21], 7)], power_loss)
    assert (lost.verdict, lost.anomalies) == (Verdict.FAIL, {"set-lost": 10})


def test_a_second_addition_of_each_element_would_hide_a_loss(tmp_path: Path) -> None:
    again = [*ADDS, *[add(20 + op, op, 3 + 0.1 * op) for op in range(20)], *read(50, range(20), 9)]
    blind = judged(tmp_path / "blind", again)
    assert blind.verdict is Verdict.UNKNOWN
    assert blind.unknown == (
        "set-lost: no acknowledged element was added exactly once and never removed; "
        "add a final read (sets.final_reads())",
    )
    assert judged(tmp_path / "sound", [*again, add(60, 60, 8)]).unknown == ()


def test_each_set_needs_a_read_of_its_own(tmp_path: Path) -> None:
    other = [add(30 + op, op, 0.1 * op, key="other") for op in range(3)]
    blind = judged(tmp_path / "blind", [*ADDS, *other, *read(50, range(20), 9)])
    assert blind.unknown == (
        "set-lost: of the elements that were acknowledged in other, none was read afterwards; "
        "add a final read (sets.final_reads())",
    )
    sound = judged(tmp_path / "sound", [*ADDS, *other, *read(50, range(20), 9), *read(51, range(3), 9, "other")])
    assert (sound.verdict, sound.unknown) == (Verdict.PASS, ())


def test_an_anomaly_that_the_contract_does_not_need_owes_nothing(tmp_path: Path) -> None:
    contract = Contract(forbidden=("set-phantom",)).forbid_also("set-lost", "set-vanished")
    rows = [*ADDS, *read(20, range(4), 0.4), *[add(21 + op, 21 + op, 5 + op) for op in range(3)]]
    assert judged(tmp_path, rows, fault(1, "kill", 1 * S, 4 * S), contract).verdict is Verdict.PASS


def test_histories_of_other_tools_show_the_counts_and_owe_nothing(tmp_path: Path) -> None:
    shown = judge(write(tmp_path / "history", ADDS), LOST_ONLY, requires_exposure=False)
    assert (shown.verdict, shown.unknown) == (Verdict.PASS, ())
    (coverage,) = [one for one in shown.examined if one.check == "set-lost"]
    assert (coverage.claims, coverage.exposed) == (20, 0)


def test_a_run_that_goes_on_has_no_counts_and_no_doubt_of_exposure(tmp_path: Path) -> None:
    shown = judge(write(tmp_path / "history", ADDS), LOST_ONLY, still_running=True)
    assert all(one.claims is None for one in shown.examined if one.check == "set-lost")
    assert not [reason for reason in shown.unknown if "read afterwards" in reason]


def lease(op: int, token: int, kind: str, call: float) -> Row:
    return effect(
        op, 0, kind, "lock", int(call * S), int((call + 0.03) * S), token=token, owner=f"o{token}", process=op
    )


def leases(number: int) -> list[Row]:
    """Each lease is followed by two actions of its holder."""
    kinds = ("acquire", "guarded", "guarded")
    return [lease(op, 1 + op // 3, kinds[op % 3], 0.1 * op) for op in range(3 * number)]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (21, None),
        (20, "19 of 20 claims, and the contract asks for 20"),
        (4, "3 of 4 claims, and the contract asks for 20"),
        (1, "of the leases, one was given, and it was not followed by another lease of its name afterwards"),
    ],
)
def test_a_lock_that_is_hardly_ever_given_proves_nothing(tmp_path: Path, number: int, reason: str | None) -> None:
    contract = msgspec.structs.replace(locks.build_contract(), needed=("fencing-violation",), minimum_operations=1)
    found = judged(tmp_path, leases(number), contract=contract)
    if reason is None:
        assert (found.verdict, found.unknown) == (Verdict.PASS, ())
    else:
        assert found.verdict is Verdict.UNKNOWN
        assert [said for said in found.unknown if reason in said]


def test_a_contract_may_ask_for_a_share(tmp_path: Path) -> None:
    early = [*ADDS, *read(20, range(4), 0.4)]
    passed = judged(tmp_path / "any", early, contract=LOST_ONLY)
    assert passed.verdict is Verdict.PASS
    assert passed.warnings == (
        "set-lost: only 4 of 20 elements that were acknowledged could have been contradicted; "
        "add a final read (sets.final_reads())",
    )
    shared = judged(tmp_path / "share", early, contract=LOST_ONLY.need_exposed("set-lost", share=0.5))
    assert shared.verdict is Verdict.UNKNOWN
    assert "set-lost: the run could have contradicted 4 of 20 claims, and the contract asks for 10" in shared.unknown[0]
    odd = judged(tmp_path / "odd", early, contract=LOST_ONLY.need_exposed("set-lost", share=0.21))
    assert "the contract asks for 5" in odd.unknown[0], "4.2 claims are more than 4"
    with pytest.raises(ValueError, match="a share of 2"):
        LOST_ONLY.need_exposed("set-lost", share=2)


def register_writes(rows: Sequence[Row], bound: int) -> tuple[int, int]:
    """A write is exposed by a later read, or by a compare-and-set that succeeded, because it saw the value."""
    ok = [row for row in rows if row["outcome"] == "ok"]
    writes = [row for row in ok if row["kind"] in ("register-write", "register-cas")]
    looks = [row["call"] for row in ok if row["kind"] in ("register-read", "register-cas")]
    return len(writes), sum(any(call > max(one["ret"], bound) for call in looks) for one in writes)


@pytest.mark.parametrize(("faults", "bound"), FAULTS)
def test_writes_of_registers_are_exposed_by_later_reads(tmp_path: Path, faults: list[Row], bound: int) -> None:
    histories = {
        f"r-{number}": SimulatedRegister(f"r-{number}", random.Random(number), 100 * number).run(7)
        for number in range(300)
    }
    assert STALE_READ.exposure is not None
    with opened(
        write(tmp_path / "history", [row for one in histories.values() for row in one], faults=faults)
    ) as engine:
        register_contract(engine, Contract())
        create_views(engine, REGISTER.views)
        assert REGISTER.prepare is not None
        REGISTER.prepare(engine)
        counted: Counts = {row["key"]: (row["claims"], row["exposed"]) for row in engine.rows(STALE_READ.exposure.rows)}
        unclear = {row["key"] for row in engine.rows("select key from register_unclear")}
    wanted = {key: register_writes(one, bound) for key, one in histories.items() if key not in unclear}
    assert counted == {key: count for key, count in wanted.items() if count[0]}
    assert {exposed < claims for claims, exposed in counted.values()} == {True, False}


def leases_in_turn(processes: int) -> list[Row]:
    """Twelve leases, given by turns to so many clients, each used once."""
    rows: list[Row] = []
    for turn in range(12):
        call, process = 100 * turn, turn % processes
        given: dict[str, Any] = {
            "token": turn + 1,
            "owner": f"client-{process}",
            "assignment": turn,
            "process": process,
        }
        for step, kind in enumerate(("acquire", "guarded", "release")):
            rows.append(effect(3 * turn + step, 0, kind, "lock", call + 20 * step, call + 20 * step + 10, **given))
    return rows


@pytest.mark.parametrize(("processes", "verdict"), [(1, Verdict.UNKNOWN), (2, Verdict.PASS)])
def test_a_lock_that_only_one_client_asks_for_has_no_second_owner(
    tmp_path: Path, processes: int, verdict: Verdict
) -> None:
    found = judge(write(tmp_path / "history", leases_in_turn(processes)), forbid("double-ownership"))
    assert found.verdict is verdict, found.unknown
    if processes == 1:
        assert found.unknown == (
            "double-ownership: 12 holds were given, none was contested by another client afterwards; let several "
            "clients ask for the same thing",
        )
