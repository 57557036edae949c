"""Recovery of registers; that of logs is in ``test_judge``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.checkers.judging.contract import NO_RECOVERY, forbid
from assay.checkers.judging.coverage import RUN_ENDED, _find_fault_reasons
from assay.checkers.judging.disturbance import FaultTimes
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.register.family import REGISTER_ANOMALIES
from assay.nemesis.engine import waiting_steps

from helpers.judging import judge
from helpers.log_histories import write
from helpers.register_histories import Ledger

HEALED = 2_000
END = 9_000
CONTRACT = forbid(*REGISTER_ANOMALIES, recovery_deadline=4.0).tolerate("lost-update")


def fault(phase: str, at: int) -> dict[str, Any]:
    return {
        "id": 1, "fault": "partition", "targets": "[]", "phase": phase, "time": at * 1_000_000,
        "detail": "{}", "took_effect": phase == "healed" or None,
    }  # fmt: skip


FAULTS = [fault("intended", 900), fault("injected", 1_000), fault("healed", HEALED), fault("recovered", HEALED)]


def judged(folder: Path, *, writes_from: int, reads_from: int, others: Sequence[dict[str, Any]] = ()) -> Judgement:
    """A write, a CAS and a read every 100 ms; those called from the heal on to the given time are not answered."""
    ledger, value = Ledger(), None
    for number, at in enumerate(range(0, END, 100), start=1):
        kept = value
        if HEALED <= at < writes_from:
            ledger.write(1_000 + number, (at, None))
        else:
            ledger.write(number, (at, at + 10))
            ledger.cas(number, 2_000 + number, (at + 20, at + 30))
            value = kept = 2_000 + number
        answered = not HEALED <= at < reads_from
        ledger.read(kept if answered else None, (at + 40, at + 50), outcome="ok" if answered else "fail")
    return judge(write(folder, ledger.rows, faults=[*FAULTS, *others]), CONTRACT)


def test_a_register_that_answers_again_in_time_has_recovered_and_the_times_are_noted(tmp_path: Path) -> None:
    found = judged(tmp_path, writes_from=3_000, reads_from=4_000)
    assert found.verdict is Verdict.PASS, (found.unknown, found.findings)
    note = next(one.note for one in found.examined if one.check == NO_RECOVERY)
    assert note == "fault 1 (partition): write 1.010 s, read 2.050 s after the heal"


@pytest.mark.parametrize(("writes", "reads", "what"), [(6_500, 0, "write to"), (0, 6_500, "read of")])
def test_one_that_does_not_is_no_recovery(tmp_path: Path, writes: int, reads: int, what: str) -> None:
    found = judged(tmp_path, writes_from=writes, reads_from=reads)
    assert found.anomalies == {NO_RECOVERY: 1}
    assert f"the first {what} r-0" in found.findings[0].claim


def second(*phases: tuple[str, int], stage: str | None = None) -> list[dict[str, Any]]:
    """Another fault, which was to begin at 3,000 ms at the earliest."""
    rows = [{"phase": "intended", "time": 1, "not_before": 3_000_000_000}]
    rows += [{"phase": phase, "time": at * 1_000_000} for phase, at in phases]
    for row in rows:
        row |= {"id": 2, "fault": "kill", "targets": "[]", "detail": "{}"}
        row |= {"stage": stage} if row["phase"] == "failed" else {}
        row |= {"took_effect": True} if row["phase"] == "healed" else {}
    return rows


@pytest.mark.parametrize(
    "others",
    [
        second(("injected", 6_400), ("healed", 6_450)),
        second(("failed", 3_500), stage="inject"),
        second(("failed", 3_500), ("healed", 3_600), stage="inject"),
    ],
    ids=["one that took long to be injected", "half a fault that stayed", "half a fault"],
)
def test_another_fault_in_that_time_excuses_it(tmp_path: Path, others: list[dict[str, Any]]) -> None:
    assert NO_RECOVERY not in judged(tmp_path, writes_from=6_500, reads_from=0, others=others).anomalies


@pytest.mark.parametrize(
    "others",
    [second(("failed", 3_500), stage="target"), second(("injected", 6_400))[1:]],
    ids=["one without a target", "one that came after it"],
)
def test_one_that_was_not_in_the_way_does_not(tmp_path: Path, others: list[dict[str, Any]]) -> None:
    assert judged(tmp_path, writes_from=6_500, reads_from=0, others=others).anomalies == {NO_RECOVERY: 1}


def test_one_that_is_not_asked_again_until_late_proves_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    for number, at in enumerate([0, 1_200, 1_400, *range(8_000, END, 100)], start=1):
        ledger.write(number, (at, at + 10))
        ledger.read(number, (at + 40, at + 50))
    found = judge(write(tmp_path, ledger.rows, faults=FAULTS), CONTRACT)
    assert NO_RECOVERY not in found.anomalies


def times(number: int, name: str = "kill", *, injected: bool = True, effect: bool = True) -> FaultTimes:
    at = number * 1_000 if injected else None
    healed = None if at is None else at + 500
    return FaultTimes(number, name, at, healed, failed=not effect, took_effect=injected and effect)


@pytest.mark.parametrize("without", [{"injected": False}, {"effect": False}])
def test_a_kind_that_took_effect_ten_times_may_also_have_none(without: dict[str, bool]) -> None:
    many = [times(number) for number in range(10)] + [times(10, **without)]
    assert _find_fault_reasons(many) == ([], ["kill: 1 fault found no target or had no effect, 10 took effect"])
    reasons, warnings = _find_fault_reasons(many[1:])
    assert (len(reasons), warnings) == (1, []), "nine are too few"
    reasons, warnings = _find_fault_reasons([*many[:10], times(11, "stop", **without)])
    assert (len(reasons), warnings) == (1, []), "another kind took effect"
    reasons, warnings = _find_fault_reasons([*many[:10], *(times(20 + one, **without) for one in range(11))])
    assert (len(reasons), warnings) == (11, []), "most had no effect"


def test_a_fault_that_was_not_healed_or_failed_in_part_is_a_reason_however_many_there_are() -> None:
    many = [times(number) for number in range(40)]
    for other, reason in (
        (FaultTimes(50, "kill", 50_000, None, failed=True, took_effect=False), "never healed"),
        (FaultTimes(50, "kill", None, None, failed=True, took_effect=False, earliest_begin=50_000), "never injected"),
        (FaultTimes(50, "kill", 50_000, 51_000, failed=True, took_effect=True), "failed in part"),
    ):
        (found,), warnings = _find_fault_reasons([*many, other])
        assert reason in found
        assert warnings == []


@pytest.mark.parametrize(("called", "at_work"), [(1_700, False), (1_800, True), (2_999, True)])
def test_an_operation_without_a_return_is_pending_for_the_time_of_a_failover(
    tmp_path: Path, called: int, at_work: bool
) -> None:
    """The fault begins at 3,000 ms, and a failover takes 1.2 s. Only one operation was called shortly before."""
    ledger = Ledger()
    for number, at in enumerate((*range(0, 300, 20), *range(4_500, 9_000, 100)), start=1):
        ledger.write(number, (at, at + 5))
        ledger.read(number, (at + 6, at + 10))
    ledger.write(1_000, (called, None))
    contract = msgspec.structs.replace(CONTRACT, failover=1.2)
    faults = [fault("intended", 900), fault("injected", 3_000), fault("healed", 4_000), fault("recovered", 4_000)]
    found = judge(write(tmp_path, ledger.rows, faults=faults), contract)
    silent = [reason for reason in found.unknown if "no client was at work during fault 1" in reason]
    assert len(silent) == (not at_work), found.unknown


SLOW_NODES = "if nodes answer slowly, raise --nemesis-interval and --time-limit"
S = 1_000_000_000


def reasons_of(*faults: FaultTimes, ended: bool = True) -> list[str]:
    return _find_fault_reasons(list(faults), ended=ended)[0]


def test_a_fault_without_an_effect_names_the_missing_proof() -> None:
    one = FaultTimes(1, "clock", 2 * S, 7 * S, failed=True, took_effect=False, why="n1: its clock was not read")
    assert reasons_of(replace(one, planned_seconds=5.0)) == [
        "fault 1 (clock) was injected at 2.000000000 s, but nothing shows that it took effect; "
        "n1: its clock was not read"
    ]


@pytest.mark.parametrize(
    ("delay", "healed", "clause"),
    [
        (6.13, 29.0, "it began 6.1 s later than planned and was active for 0.9 s of 5 s"),
        (6.13, 32.0, "it began 6.1 s later than planned"),
        (0.4, 30.0, "it was active for 1.9 s of 5 s"),
    ],
)
def test_a_fault_that_began_late_or_was_cut_short_needs_more_time(delay: float, healed: float, clause: str) -> None:
    one = FaultTimes(
        1, "clock", 28_100_000_000, int(healed * S), failed=True, took_effect=False, delay=delay, planned_seconds=5.0
    )
    (reason,) = reasons_of(one)
    assert reason.endswith(f"nothing shows that it took effect; {clause}; {SLOW_NODES}")


def test_a_fault_whose_turn_never_came_is_advised_by_what_delayed_it() -> None:
    never = FaultTimes(2, "kill", None, None, failed=False, took_effect=False)
    began = "fault 2 (kill) was intended but never injected"
    late = FaultTimes(1, "freeze", 20 * S, 21 * S, failed=False, took_effect=True, delay=18.0)
    assert reasons_of(late, never) == [f"{began}: the main phase ended before its turn; {SLOW_NODES}"]
    workload = "let the workload last until the --time-limit"
    assert reasons_of(replace(late, delay=0.0), never) == [f"{began}: the main phase ended before its turn; {workload}"]
    assert reasons_of(late, never, ended=False) == [began], "an interruption has a reason of its own"


def test_a_step_that_waited_until_the_end_needs_a_longer_run() -> None:
    assert RUN_ENDED == waiting_steps.RUN_ENDED
    waited = FaultTimes(2, "kill", None, None, failed=True, took_effect=False, why=f"kill leader: {RUN_ENDED}")
    assert reasons_of(waited) == [
        "fault 2 (kill) was intended but never injected: kill leader: the run ended first; "
        "a longer --time-limit leaves it time"
    ]


def test_a_fault_that_failed_in_part_says_why() -> None:
    one = FaultTimes(1, "kill", 2 * S, 7 * S, failed=True, took_effect=True, why="n1 was not examined")
    assert reasons_of(one) == ["fault 1 (kill) failed in part (see faults): n1 was not examined"]
    assert reasons_of(replace(one, why=None)) == ["fault 1 (kill) failed in part (see faults)"]


def planned(phase: str, at: int, /, **detail: Any) -> dict[str, Any]:
    return {**fault(phase, at), "detail": json.dumps(detail)}


@pytest.mark.parametrize(
    ("injection", "late"),
    [
        ({"at": 2.0, "began": 4_500_000_000}, True),
        ({"at": 1.0, "began": 3_000_000_000}, True),
        ({"at": 1.0, "began": 5_000_000_000}, False),
        ({"at": 2.0, "began": 4_500_000_000, "trigger": {"at": 1.9}}, False),
    ],
    ids=["begun late", "injected slowly", "in time", "at its trigger"],
)
@pytest.mark.parametrize("failover", [1.2, 0.0])
def test_clients_that_are_idle_under_a_short_fault_that_was_late_are_not_blamed(
    tmp_path: Path, injection: dict[str, Any], late: bool, failover: float
) -> None:
    ledger = Ledger()
    for number, at in enumerate((*range(0, 300, 20), *range(6_000, 9_000, 100)), start=1):
        ledger.write(number, (at, at + 5))
        ledger.read(number, (at + 6, at + 10))
    faults = [
        planned("intended", 10, at=1.0, duration=1.0 if late else 0.4),
        planned("injected", 5_000, **injection),
        planned("healed", 5_400),
        fault("recovered", 5_400),
    ]
    found = judge(write(tmp_path, ledger.rows, faults=faults), msgspec.structs.replace(CONTRACT, failover=failover))
    (reason,) = (reason for reason in found.unknown if "during fault 1 (partition, 5.000 s to 5.400 s)" in reason)
    advice = "or name the fault in may_stall" if not failover else "raise --rate, or see why clients do not connect"
    assert reason.endswith(f"was active for 0.4 s of 1 s; {SLOW_NODES}" if late else advice)
    assert ("later than planned" in reason) == late
    interrupted = judge(write(tmp_path / "interrupted", ledger.rows, faults=faults), CONTRACT, interrupted=True)
    assert not [reason for reason in interrupted.unknown if "planned" in reason or "was active for" in reason]
