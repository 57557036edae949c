"""Recovery of registers; that of logs is in ``test_judge``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.checkers.judging.contract import NO_RECOVERY, forbid
from assay.checkers.judging.coverage import _find_fault_reasons
from assay.checkers.judging.disturbance import FaultTimes
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.register.family import REGISTER_ANOMALIES

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
