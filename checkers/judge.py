"""From a history and a contract to a verdict.

Fail if any forbidden anomaly was found, also in a run that was cut short: a contradiction stays one. Otherwise pass
only if nothing speaks against it; every reason to doubt is told. Checks about deadlines say nothing of an interrupted
run, and a run that was not closed may lack operations, so a value nobody sent proves nothing there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from assay.checkers import coverage
from assay.checkers.check import MOST_FINDINGS, Check, Family, ask, build, findings
from assay.checkers.contract import NO_RECOVERY, Contract
from assay.checkers.engine import Engine, EngineError, Engines, Row
from assay.checkers.groups.family import GROUPS
from assay.checkers.groups.offsets import OFFSETS
from assay.checkers.groups.ownership import OWNERSHIP
from assay.checkers.log.family import LOG
from assay.checkers.log.replicas import REPLICAS
from assay.checkers.log.unflushed import UNFLUSHED
from assay.checkers.objects import kinds as objects
from assay.checkers.objects.counters import COUNTERS
from assay.checkers.objects.max_registers import MAX_REGISTERS
from assay.checkers.objects.queues import QUEUES
from assay.checkers.objects.sets import SETS
from assay.checkers.register.family import REGISTER, REGISTER_CAS
from assay.checkers.source import OPTIONAL, count_kinds, register_contract, register_parts
from assay.checkers.transactions.family import TRANSACTION_FAMILIES
from assay.checkers.validate import readable, validate
from assay.checkers.verdict import Examined, Finding, Judgement, Verdict
from assay.harness.core.history import HistoryReader

OBJECT_FAMILIES = (COUNTERS, MAX_REGISTERS, SETS, QUEUES)
FAMILIES = (
    UNFLUSHED,
    LOG,
    REGISTER,
    REGISTER_CAS,
    *OBJECT_FAMILIES,
    *OWNERSHIP,
    *GROUPS,
    OFFSETS,
    REPLICAS,
    *TRANSACTION_FAMILIES,
)
"""Every family of checks, each judged where the history has rows of it."""


Watch = Callable[[str, int, int], None]
"""Told before each check: its name, how many were done, and how many there may be."""


@dataclass
class _Bench:
    """What the judge has gathered so far."""

    anomalies: dict[str, int] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    examined: list[Examined] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    watch: Watch | None = None

    def begin(self, check: str) -> None:
        if self.watch is not None:
            self.watch(check, len(self.examined), sum(len(family.checks) for family in FAMILIES))


def judge(
    history: Path,
    contract: Contract,
    *,
    engine: str | Engines | Engine = "duckdb",
    interrupted: bool = False,
    complete: bool = True,
    notes: Sequence[str] = (),
    watch: Watch | None = None,
) -> Judgement:
    """Runs every check that applies over the history in the folder ``history``.

    ``interrupted``: the run was stopped before its own end. ``complete``: the history was closed. ``notes``: reasons
    not to pass that only the caller knows, such as unexpected client exceptions. ``engine``: a name (``auto``,
    ``duckdb``, ``spark``), or an object, which stays open. With a ``watch``, ``KeyboardInterrupt`` ends the checks, and
    the judgement is of what was found until then. Raises ``HistoryError`` when the history cannot be read or
    contradicts itself, naming file, row and reason; ``EngineUnavailable`` with the remedy.
    """
    if isinstance(engine, str):
        with Engines(engine) as engines:
            return judge(
                history, contract, engine=engines, interrupted=interrupted, complete=complete, notes=notes, watch=watch
            )
    reader = HistoryReader(history, optional=OPTIONAL)
    if isinstance(engine, Engines):
        with engine.open(reader) as own:
            return judge(
                history, contract, engine=own, interrupted=interrupted, complete=complete, notes=notes, watch=watch
            )
    try:
        return _judge(engine, reader, contract, interrupted=interrupted, complete=complete, notes=notes, watch=watch)
    except EngineError:
        readable(reader)  # an engine that came upon a damaged file says so in its own words; this names the file
        raise


def _judge(
    engine: Engine,
    reader: HistoryReader,
    contract: Contract,
    *,
    interrupted: bool,
    complete: bool,
    notes: Sequence[str],
    watch: Watch | None,
) -> Judgement:
    begun = time.perf_counter()
    register_parts(engine, reader)
    with engine.validator() as validator:
        if validator is not engine:
            register_parts(validator, reader)
        count_kinds(engine, validator)
        validate(validator, reader, complete=complete)
    register_contract(engine, contract)
    injected = {fault.name for fault in coverage.faults(engine) if fault.injected is not None}
    reasons, contract = contract.reasons(injected), contract.under(injected)
    bench = _Bench(watch=watch)
    bench.unknown += _circumstances(interrupted, complete, notes, reader.rows("ops"))
    bench.unknown += objects.doubts(engine, contract.family)
    stopped = False
    try:
        for family in FAMILIES:
            _try(engine, family, contract, bench, ended=complete and not interrupted, complete=complete)
        if bench.applied:
            _cover(engine, contract, bench, ended=complete and not interrupted)
        _check_names(contract, bench)
    except KeyboardInterrupt:
        if watch is None:
            raise
        stopped = True
        done = ", ".join(examined.check for examined in bench.examined)
        bench.unknown.insert(0, f"interrupted; of the checks, only these were done: {done or 'none'}")
    judgement = _judgement(engine, contract, bench, reader.rows("ops"), reader.rows("effects"), begun)
    return msgspec.structs.replace(judgement, reasons=reasons, interrupted=stopped)


def _circumstances(interrupted: bool, complete: bool, notes: Sequence[str], operations: int) -> list[str]:
    reasons = list(notes)
    if interrupted:
        reasons.append("the run was interrupted")
    if not complete:
        reasons.append("the history was not closed, so operations may be missing from it")
    if operations == 0:
        reasons.append("the history is empty")
    return reasons


def _try(engine: Engine, family: Family, contract: Contract, bench: _Bench, *, ended: bool, complete: bool) -> None:
    build(engine, family.views)
    if engine.rows(family.applies)[0]["examined"] == 0:
        return
    bench.applied += family.anomalies
    if family.prepare is not None:
        bench.unknown += family.prepare(engine)
    for check in family.checks:
        bench.begin(check.anomaly)
        if check.needs_end and not ended:
            _skip(bench, contract, check, "it is about a deadline, and the run did not come to its end")
        elif check.needs_close and not complete:
            _skip(bench, contract, check, "operations may be missing from a history that was not closed")
        else:
            _examine(engine, contract, check, bench)


def _cover(engine: Engine, contract: Contract, bench: _Bench, *, ended: bool) -> None:
    """Whatever families apply: did enough happen, and did the system come back?"""
    begun = time.perf_counter()
    covered = coverage.cover(engine, contract, ended=ended)
    bench.unknown += covered.reasons
    bench.applied.append(NO_RECOVERY)
    if covered.slow:
        bench.anomalies[NO_RECOVERY] = len(covered.slow)
        bench.findings += _placed(engine, covered.slow[:MOST_FINDINGS])
    bench.examined.append(
        Examined(
            check=NO_RECOVERY,
            rows=len(covered.recoveries),
            seconds=time.perf_counter() - begun,
            note=coverage.slowest(covered.recoveries),
        )
    )


def _skip(bench: _Bench, contract: Contract, check: Check, why: str) -> None:
    bench.examined.append(Examined(check=check.anomaly, rows=0, seconds=0.0, note=why))
    if contract.forbids(check.anomaly):
        bench.unknown.append(f"{check.anomaly} cannot be judged: {why}")


def _examine(engine: Engine, contract: Contract, check: Check, bench: _Bench) -> None:
    begun = time.perf_counter()
    build(engine, check.views)
    rows, instances = ask(engine, check)
    if instances:
        bench.anomalies[check.anomaly] = instances
        bench.findings += _placed(engine, findings(engine, check))
    elif rows == 0 and contract.forbids(check.anomaly):
        bench.unknown.append(f"{check.anomaly} is forbidden, but its check had no data")
    bench.examined.append(Examined(check=check.anomaly, rows=rows, seconds=time.perf_counter() - begun))


def _check_names(contract: Contract, bench: _Bench) -> None:
    """A contract may speak of what this history has nothing of, or not speak of what was found."""
    for anomaly in contract.forbidden or ():
        if anomaly not in bench.applied:
            bench.unknown.append(f"{anomaly} is forbidden, but the history has nothing to which it applies")
    for anomaly in bench.anomalies:
        if not contract.forbids(anomaly) and not contract.tolerates(anomaly):
            bench.unknown.append(f"{anomaly} was found, which the contract neither forbids nor tolerates")
    if contract.forbidden is None and not bench.applied:
        bench.unknown.append("no check applies to this history")


def _judgement(
    engine: Engine, contract: Contract, bench: _Bench, operations: int, effects: int, begun: float
) -> Judgement:
    failed = any(contract.forbids(anomaly) for anomaly in bench.anomalies)
    unknown = tuple(dict.fromkeys(bench.unknown))
    return Judgement(
        verdict=Verdict.FAIL if failed else Verdict.UNKNOWN if unknown else Verdict.PASS,
        anomalies=bench.anomalies,
        forbidden=tuple(name for name in bench.applied if contract.forbids(name))
        if contract.forbidden is None
        else contract.forbidden,
        tolerated=contract.tolerated,
        findings=tuple(sorted(bench.findings, key=lambda finding: not contract.forbids(finding.anomaly))),
        examined=tuple(bench.examined),
        unknown=unknown,
        operations=operations,
        effects=effects,
        seconds=time.perf_counter() - begun,
        engine=engine.name,
    )


def _placed(engine: Engine, found: Sequence[Finding]) -> list[Finding]:
    """The findings with the faults in force between their first call and their moment, and the leader then."""
    if not found:
        return []
    known = coverage.faults(engine)
    leaders = engine.rows(
        "select time, node, key, epoch from events where event = 'became-leader' and key is not null "
        "order by time nulls first, node nulls first, seq nulls first"
    )
    spans = _spans(engine, found)
    return [_place(finding, known, leaders, spans) for finding in found]


def _spans(engine: Engine, found: Sequence[Finding]) -> dict[int, tuple[int, int]]:
    ops = sorted({op for finding in found for op in finding.operations})
    if not ops:
        return {}
    rows = engine.rows(
        "select op, min(call) as call, max(coalesce(ret, call)) as ret from effects "
        f"where op in ({', '.join(map(str, ops))}) group by op"
    )
    return {row["op"]: (row["call"], row["ret"]) for row in rows}


def _place(
    finding: Finding, known: Sequence[coverage.Fault], leaders: Sequence[Row], spans: dict[int, tuple[int, int]]
) -> Finding:
    moment = finding.time
    if moment is None:
        return finding
    # Only the two that contradict each other: others may be anywhere in the run.
    pair = [spans[op] for op in finding.operations[:2] if op in spans]
    start = min([moment, *(call for call, _ in pair)])
    end = max([moment, *(ret for _, ret in pair)])
    leader = max(
        (row for row in leaders if row["key"] == finding.key and row["time"] <= moment and row["epoch"] is not None),
        key=lambda row: (row["epoch"], row["time"]),
        default=None,
    )
    return msgspec.structs.replace(
        finding,
        faults=finding.faults or tuple(fault.id for fault in known if fault.overlaps(start, end)),
        leader=None if leader is None else leader["node"],
        epoch=None if leader is None else leader["epoch"],
    )
