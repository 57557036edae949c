"""Makes run folders as a trial leaves them, small enough to know every operation by heart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.checkers.judging.verdict import CheckCoverage, Finding, Judgement, Verdict
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase

from helpers.fault_rows import impact

SECOND = 1_000_000_000
HOSTILE = "</script><img src=x onerror=alert(1)><script>window.pwned=1</script>"
COMMAND = "pytest workloads/test_log.py::test_log --cluster=sim --nemesis=kill --seed=7"
CLAIM = "offset 4 of orders-3 was acknowledged to process 0 at 2.004 s and is missing from every later read."


def completed(
    index: int,
    call: int,
    *,
    worker: int = 0,
    f: str = "send",
    key: str | None = "orders-3",
    argument: Any = (1,),
    result: Any = None,
    outcome: Outcome = Outcome.OK,
    took: int = 4_000_000,
    error: str | None = None,
    phase: Phase = Phase.MAIN,
    scheduled: int | None = None,
) -> Completed:
    return Completed(
        index=index,
        process=worker,
        worker=f"w{worker}",
        operation=Operation(f, key, argument, phase),
        completion=Completion(outcome, result, error),
        call=call,
        ret=None if outcome is Outcome.INFO else call + took,
        scheduled=scheduled,
    )


def ordinary(count: int = 60) -> list[Completed]:
    """Returns operations, one every 0.1 s by three workers in turn; every tenth fails, every twentieth is unknown."""
    rows = []
    for index in range(count):
        outcome = Outcome.INFO if index % 20 == 19 else Outcome.FAIL if index % 10 == 9 else Outcome.OK
        rows.append(
            completed(
                index, index * SECOND // 10, worker=index % 3, f="send" if index % 2 == 0 else "poll", argument=[index],
                result={"offset": index} if outcome is Outcome.OK else None, outcome=outcome,
                error=None if outcome is Outcome.OK else f"timeout: operation {index}",
            )
        )  # fmt: skip
    return rows


def write_history(folder: Path, operations: Sequence[Completed], *, faults: bool = True, close: bool = True) -> None:
    """With a kill of n3 from 2 s to 3 s, a partition that never took effect, and leaders that change at the kill."""
    writer = HistoryWriter(folder)
    for operation in operations:
        kind = "append" if operation.operation.f == "send" else "observe"
        writer.completed(operation, [Effect(kind, operation.operation.key or "", operation.index, operation.index)])
    if faults:
        _fault(writer, 1, "kill", ("n3",), injected=2 * SECOND, healed=3 * SECOND, recovered=3 * SECOND + SECOND // 4)
        writer.fault(id=2, fault="partition", targets=(), phase="intended", time=2, detail={"what": "partition one"})
        writer.fault(
            id=2, fault="partition", targets=(), phase="failed", time=4 * SECOND,
            detail={"stage": "target", "reason": "no one leads orders-9"}, stage="target",
        )  # fmt: skip
        leader = {"event": "became-leader", "key": "orders-3"}
        writer.event(time=-5, node="n3", incarnation=1, seq=1, epoch=0, **leader)
        writer.event(time=2 * SECOND + 500_000_000, node="n1", incarnation=1, seq=1, epoch=1, **leader)
    if close:
        writer.close()
    else:
        writer.flush()
        writer.abandon()


def _fault(
    writer: HistoryWriter, id: int, fault: str, targets: Sequence[str], *, injected: int, healed: int, recovered: int
) -> None:
    what = {"what": f"{fault} leader of orders-3"}
    writer.fault(id=id, fault=fault, targets=(), phase="intended", time=1, detail=what)
    writer.fault(id=id, fault=fault, targets=targets, phase="injected", time=injected, detail=what, **impact(fault))
    writer.fault(id=id, fault=fault, targets=targets, phase="healed", time=healed, took_effect=True)
    writer.fault(id=id, fault=fault, targets=targets, phase="recovered", time=recovered)


def finding(*operations: int, claim: str = CLAIM, anomaly: str = "lost-write", key: str = "orders-3") -> Finding:
    return Finding(anomaly=anomaly, key=key, claim=claim, operations=operations, omitted=3, time=2_004_000_000,
                   leader="n3", epoch=0, faults=(1,))  # fmt: skip


def judgement(verdict: Verdict, *findings: Finding, **changes: Any) -> Judgement:
    counts: dict[str, int] = {}
    for one in findings:
        counts[one.anomaly] = counts.get(one.anomaly, 0) + 1
    plain = Judgement(
        verdict=verdict,
        anomalies=counts,
        forbidden=("lost-write", "vanished", "phantom", "stale-read"),
        tolerated=("duplicate",),
        findings=findings,
        examined=(
            CheckCoverage(check="lost-write", rows=40, seconds=0.01),
            CheckCoverage(check="vanished", rows=0, seconds=0.01),
            CheckCoverage(check="phantom", rows=0, seconds=0.0, note="operations may be missing"),
            CheckCoverage(check="duplicate", rows=41, seconds=0.02),
        ),
        unknown=(),
        operations=60,
        effects=120,
        seconds=0.1,
        engine="duckdb",
    )
    return msgspec.structs.replace(plain, **changes)


def write_run(
    folder: Path,
    verdict: Judgement | None,
    operations: Sequence[Completed] | None = None,
    *,
    close: bool = True,
    faults: bool = True,
    **info: Any,
) -> Path:
    """A run's folder; without ``verdict`` or ``operations`` it lacks these."""
    folder.mkdir()
    (folder / "logs").mkdir()
    (folder / "logs" / "n1.log").write_text("started\n")
    run = {
        "test": "workloads/test_log.py::test_log[kill]", "status": "finished", "command": COMMAND, "seed": 7,
        "started": "2026-01-02T03:04:05+00:00", "ended": "2026-01-02T03:04:09.500000+00:00", "cluster": "sim",
        "nemesis": "kill", "digest": "ab" * 16, "notes": [], "problem": None, "schema_version": 1, "owner": "1.2.3",
        "verdict": None if verdict is None else str(verdict.verdict),
    }  # fmt: skip
    settings = {
        "settings": {"seed": 7, "rate": 100.0, "defect": "ack-before-replication"},
        "versions": {"python": "3.11.0", "kernel": "6.1"},
        "cluster": {"kind": "sim", "fall_back": "no engine answers"},
    }
    (folder / "run.json").write_bytes(msgspec.json.encode({**run, **info}))
    (folder / "settings.json").write_bytes(msgspec.json.encode(settings))
    if operations is not None:
        write_history(folder / "history", operations, close=close, faults=faults)
    if verdict is not None:
        (folder / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    return folder


def hostile_run(folder: Path) -> Path:
    """Every text that a system, a client or a user may choose is an attack."""
    rows = [
        completed(index, index * SECOND, argument=HOSTILE, result={"v": HOSTILE}, key=HOSTILE, f=HOSTILE,
                  error=HOSTILE if index else None, outcome=Outcome.FAIL if index else Outcome.OK)
        for index in range(4)
    ]  # fmt: skip
    verdict = judgement(
        Verdict.FAIL, finding(0, 1, claim=HOSTILE, anomaly=HOSTILE, key=HOSTILE), unknown=(HOSTILE,), engine=HOSTILE,
        forbidden=(HOSTILE,),
    )  # fmt: skip
    return write_run(
        folder, verdict, rows, test=HOSTILE, command=HOSTILE, notes=[HOSTILE], problem=HOSTILE, nemesis=HOSTILE,
        status=HOSTILE, digest=HOSTILE, started=HOSTILE, cluster=HOSTILE,
    )  # fmt: skip
