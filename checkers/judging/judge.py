"""From a history and a contract to a verdict.

Fail if any forbidden anomaly was found, also in a run that was cut short: a contradiction stays one. Otherwise pass
only if nothing speaks against it; every reason to doubt is named. Checks about deadlines say nothing of an interrupted
run, and a run that was not closed may lack operations, so a value without a sender proves nothing there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Final

from assay.checkers.check import (
    LONG_STANDSTILL,
    MOST_FINDINGS,
    Check,
    Family,
    PreparedInRounds,
    build,
    findings,
    run_check,
)
from assay.checkers.engine import Engine, EngineError
from assay.checkers.engine.base import SupportsPartitioning
from assay.checkers.families import FAMILIES, list_meanings
from assay.checkers.judging import coverage
from assay.checkers.judging.cause_grouping import attributing_errors, group_by_cause
from assay.checkers.judging.contract import NO_RECOVERY, Contract
from assay.checkers.judging.early_checks import (
    COME_LATE,
    LATE,
    find_late_tables,
    is_judged_late,
    may_have_lost,
    select_early_checks,
)
from assay.checkers.judging.finding_context import FindingContext
from assay.checkers.judging.history_integrity import require_readable
from assay.checkers.judging.history_views import count_kinds, register_contract, register_data_sets
from assay.checkers.judging.validate import validate
from assay.checkers.judging.verdict import CheckCoverage, Finding, Judgement, Verdict
from assay.checkers.objects import kinds as objects
from assay.checkers.partitioned_by_key import PartitionAnswers, PartitionQuestion, combine_answers, select_divisible
from assay.checkers.servers.invariants import BROKEN_COUNT
from assay.harness.core.history.data_sets import KINDS as OF_FORMAT
from assay.harness.core.history.data_sets import UNRECORDED

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader


def find_unknown_kinds(kinds: Collection[str], families: Sequence[Family]) -> dict[str, str | None]:
    """Returns each kind of effect that no check knows, such as a typo in a client's ``effects``, and the nearest known
    one, if one is near."""
    checks = [check for family in families for check in family.checks]
    known = {kind for some in (*OF_FORMAT.values(), *(check.kinds for check in checks)) for kind in some}
    return {kind: next(iter(get_close_matches(kind, sorted(known), 1)), None) for kind in sorted(set(kinds) - known)}


def describe_unknown_kinds(unknown: Mapping[str, str | None]) -> list[str]:
    """Returns a reason for each kind of effect that no check knows."""
    return [
        f"no check knows effects of kind {kind}" + (f"; was {near} meant?" if near else "")
        for kind, near in unknown.items()
    ]


def describe_misspelt(misspelt: Mapping[str, str], against: Sequence[str]) -> str:
    """Returns the reason if ``against`` (anomalies) may be found only because effects have a misspelt kind."""
    kinds = ", ".join(f"{kind} (was {near} meant?)" for kind, near in misspelt.items())
    return f"{', '.join(sorted(against))}: found while no check reads the effects of kind {kinds}, so it proves nothing"


def describe_unrecorded(engine: Engine, against: Sequence[str]) -> str:
    """Returns the reason if some operations have no effects, so that others may be accused wrongly by ``against``
    (anomalies)."""
    (row,) = engine.rows(f"select sum(many) as many from effect_kinds where kind = '{UNRECORDED}'")
    return (
        f"{', '.join(sorted(against))}: of {row['many']} operations it is not known what they did, since the client's "
        "effects() raised, so nothing that contradicts the others proves anything"
    )


def describe_standstill(overdue: Sequence[str], stood_still: float) -> str:
    """Returns the reason if the tester itself stood still for that many seconds."""
    return (
        f"{', '.join(overdue)}: deadlines were missed, but for {stood_still:.1f} s in all this machine did not let the "
        "tester itself go on (it, or its disk, was too busy, or it was paused), so it proves nothing; do it again when "
        "there is less to do"
    )


ProgressCallback = Callable[[str, int, int], None]
"""Called before each step with what is done now, how many steps were done, and how many there may be."""


UNNAMED: Final = "which the contract neither forbids nor tolerates"
NONE_MISSING: Final[Mapping[str, str]] = {}
IDLE: Final = "the history has nothing to which it applies"
"""The note of a check that does not apply to a run."""
VALIDATING: Final = "validating"


def judge(
    history: HistoryReader,
    contract: Contract,
    engine: Engine,
    *,
    families: Sequence[Family] = FAMILIES,
    interrupted: bool = False,
    complete: bool = True,
    going_on: bool = False,
    notes: Sequence[str] = (),
    stood_still: float = 0.0,
    watch: ProgressCallback | None = None,
    missing: Mapping[str, str] = NONE_MISSING,
) -> Judgement:
    """Runs every check that applies over a history, in an engine that holds nothing else; it stays open.

    ``interrupted``: the run was stopped before its own end. ``complete``: the history was closed, or holds what is
    under way. ``going_on``: the run is not over (``select_early_checks`` says what of it is judged). ``notes``: reasons
    not to pass that only the caller knows, such as unexpected client exceptions. ``stood_still``: seconds for which the
    tester's machine did not let it go on; from ``LONG_STANDSTILL`` on, or a check's own ``standstill``, no missed
    deadline fails the run. ``families``: at least those of the log and of registers, on which coverage rests. With a
    ``watch``, ``KeyboardInterrupt`` ends the checks, and the judgement is of what was found until then. ``missing``:
    anomalies whose checks are not available, each with the reason; only they are not judged. Raises ``HistoryError``
    when the history cannot be read or contradicts itself, naming file, row and reason.
    """
    judging = _Judging(
        history, contract, engine, tuple(families), interrupted or going_on, complete, going_on, tuple(notes),
        stood_still, watch, missing,
    )  # fmt: skip
    try:
        return judging.judgement()
    except EngineError:
        require_readable(history)  # an engine reports a damaged file in its own words; this names the file
        raise


_BUILT_IN: Final = {id(check) for family in FAMILIES for check in family.checks}
"""Another check may have any bug, which is to show at once."""


@dataclass
class _Judging:
    """A judgement in progress: its input, and the results so far."""

    history: HistoryReader
    contract: Contract
    engine: Engine
    families: tuple[Family, ...]
    interrupted: bool
    complete: bool
    going_on: bool
    notes: tuple[str, ...]
    stood_still: float
    watch: ProgressCallback | None
    missing: Mapping[str, str]

    late: frozenset[str] = COME_LATE
    through: Mapping[str, str] = field(default_factory=dict)
    """By worker, the node that its clients were sent to."""
    kinds: set[str] = field(default_factory=set)
    """The kinds of effects in the history."""
    anomalies: dict[str, int] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)
    judged: bool = False
    """Whether a family could judge anything that clients did."""
    findings: list[Finding] = field(default_factory=list)
    examined: list[CheckCoverage] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    known: PartitionAnswers = field(default_factory=PartitionAnswers)
    """Answers that the engine found key by key before the other checks."""

    cut: bool = False
    """Whether a broken invariant ended the run at once."""

    @cached_property
    def surroundings(self) -> FindingContext:
        """To be asked once the history is loaded."""
        return FindingContext(self.engine)

    @property
    def ended(self) -> bool:
        """Whether the run came to its own end, so that its deadlines count."""
        return self.complete and not self.interrupted and not self.cut

    def judgement(self) -> Judgement:
        begun = time.perf_counter()
        try:
            self._load()
        except KeyboardInterrupt:
            if self.watch is None:
                raise
            self.unknown.insert(0, "interrupted before the first check: the history was still being validated")
            return self._summary({}, stopped=True, begun=begun, loaded=time.perf_counter())
        loaded = time.perf_counter()
        self.through = self.history.worker_nodes
        # While the run goes on, a fault may be active before its injection is recorded.
        known = self.surroundings.faults
        present = [fault for fault in known if fault.begun or self.going_on]
        struck = {name: f"{fault.name} (as {name})" for fault in present for name in fault.like}
        struck |= {fault.name: fault.name for fault in present}
        reasons, self.contract = self.contract.reasons(struck), self.contract.under(struck)
        if self.going_on:
            self.late = find_late_tables(self.engine, self.contract)
        self.unknown += self._circumstances()
        self.unknown += objects.doubts(self.engine)
        stopped = False
        try:
            self._divide()
            for family in self.families:
                with attributing_errors(f"in the family of checks {family.name!r}"):
                    self._try(family)
            if self.judged or self.contract.model is not None:
                self._cover()
            self._check_names()
            self._name_missing()
        except KeyboardInterrupt:
            if self.watch is None:
                raise
            stopped = True
            done = ", ".join(examined.check for examined in self.examined)
            self.unknown.insert(0, f"interrupted; of the checks, only these were done: {done or 'none'}")
        return self._summary(reasons, stopped=stopped, begun=begun, loaded=loaded)

    def _load(self) -> None:
        register_data_sets(self.engine, self.history)
        with self.engine.validation_engine() as validator:
            if validator is not self.engine:
                register_data_sets(validator, self.history)
            self._step(VALIDATING, 0, 1)
            count_kinds(self.engine, validator)
            validate(
                validator, self.history, complete=self.complete,
                progress=lambda done, total: self._step(VALIDATING, done, total),
            )  # fmt: skip
            self.kinds = objects.present(validator)
        register_contract(self.engine, self.contract)
        self.cut = any(next(iter(row.values())) for row in self.engine.rows(BROKEN_COUNT))

    def _circumstances(self) -> list[str]:
        reasons = list(self.notes)
        if self.going_on:
            reasons.append("the run had not come to its end when this was judged")
        elif self.interrupted:
            reasons.append("the run was interrupted")
        if self.cut:
            reasons.append("the run was ended at once, as an invariant was broken")
        if not self.complete:
            reasons.append("the history was not closed, so operations may be missing from it")
        if self.history.rows("ops") == 0:
            reasons.append("the history is empty")
        return reasons

    def _divide(self) -> None:
        """Has answered by key what can be, where the engine shares out such a history."""
        if (
            not isinstance(self.engine, SupportsPartitioning)
            or self.going_on
            or may_have_lost(self.engine, self.contract)
        ):
            return  # what the log's checks read is made of all keys where power was lost
        families = [family for family in select_divisible(self.families) if self._has(family)]
        if not families:
            return
        skipped = frozenset(check.anomaly for family in families for check in family.checks if self._why_not(check))
        question = PartitionQuestion(self.contract, tuple(one.name for one in families), frozenset(self.kinds), skipped)
        parts = self.engine.ask_each_part(
            self.history, question, lambda done, total: self._step("checking key by key", done, total)
        )
        if parts:
            self.known = combine_answers(parts)
            self.engine.preset_tables({name: rows for name, rows in self.known.tables.items() if rows is not None})

    def _has(self, family: Family) -> bool:
        """Whether the history has something that the family is about."""
        if family.kinds and not self.kinds.intersection(family.kinds):
            return False
        (row,) = self.engine.rows(family.applies)
        return bool(next(iter(row.values())))

    def _why_not(self, check: Check) -> str | None:
        """Why a check is not asked of this run, if so."""
        if check.needs_end and not self.ended:
            return "it is about a deadline, and the run did not come to its end"
        if check.needs_close and not self.complete:
            return "operations may be missing from a history that was not closed"
        return None

    def _prepare(self, family: Family) -> list[str]:
        """Makes a family's tables. Returns why the verdict cannot be pass."""
        made = family.prepare
        if isinstance(made, PreparedInRounds) and (table := self.known.tables.get(made.doubts.table)) is not None:
            self.engine.load(made.doubts.table, table)
            return made.doubts(self.engine)
        return [] if made is None else made(self.engine)

    def _try(self, family: Family) -> None:
        if self.going_on:
            for check in family.checks:
                if is_judged_late(family, check, self.late):
                    self._skip(check, LATE)
            family = select_early_checks(family, self.late)  # without checks, too, it makes what others read
        build(self.engine, family.views)
        if not self._has(family):
            for check in family.checks:
                if check.lacks and check.anomaly in (self.contract.forbidden or ()):
                    self._add(check, 0, 0.0, lacking=True)
            return
        self.applied += family.anomalies
        self.judged |= not family.beside
        self.unknown += self._prepare(family)
        for check in family.checks:
            self._announce(check.anomaly)
            why = self._why_not(check)
            if why is not None:
                self._skip(check, why)
            else:
                with attributing_errors(f"in the check {check.anomaly!r}"):
                    self._examine(check)

    def _announce(self, anomaly: str) -> None:
        total = sum(len(family.checks) for family in self.families)
        self._step(f"checking, now {anomaly}", len(self.examined), total)

    def _step(self, what: str, done: int, total: int) -> None:
        if self.watch is not None:
            self.watch(what, done, total)

    def _skip(self, check: Check, why: str) -> None:
        self.examined.append(CheckCoverage(check=check.anomaly, rows=0, seconds=0.0, note=why))
        if self.contract.forbids(check.anomaly):
            self.unknown.append(f"{check.anomaly} cannot be judged: {why}")

    def _examine(self, check: Check) -> None:
        begun = time.perf_counter()
        rows = instances = 0
        known = self.known.checks.get(check.anomaly) if id(check) in _BUILT_IN else None
        if not check.kinds or self.kinds.intersection(check.kinds):
            build(self.engine, check.views)
            rows, instances = run_check(self.engine, check, known, tried=id(check) in _BUILT_IN)
        if instances:
            self.anomalies[check.anomaly] = instances
            first = None if known is None else known.first
            self.findings += self.surroundings.around(findings(self.engine, check, self.through, first))
        elif rows == 0 and self._owes(check):
            self.unknown.append(f"{check.anomaly} is forbidden, but its check had no data")
        self._add(check, rows, time.perf_counter() - begun, lacking=rows == instances == 0)

    def _owes(self, check: Check) -> bool:
        """Whether a run without data for it is unknown."""
        speaks = not check.lacks or self.contract.needed is not None
        return speaks and not check.optional and self.contract.needs(check.anomaly)

    def _add(self, check: Check, rows: int, taken: float, *, lacking: bool) -> None:
        applies = not (lacking and check.lacks)
        note = None if applies else check.lacks
        self.examined.append(CheckCoverage(check=check.anomaly, rows=rows, seconds=taken, note=note, applies=applies))

    def _cover(self) -> None:
        """Of every history, no matter which families apply: did enough happen, and did the system come back?"""
        begun = time.perf_counter()
        covered = coverage.measure_coverage(self.engine, self.contract, self.surroundings.faults, ended=self.ended)
        self.unknown += covered.reasons
        self.applied.append(NO_RECOVERY)
        if covered.slow:
            self.anomalies[NO_RECOVERY] = len(covered.slow)
            self.findings += self.surroundings.around(covered.slow[:MOST_FINDINGS])
        self.examined.append(
            CheckCoverage(
                check=NO_RECOVERY,
                rows=len(covered.recoveries),
                seconds=time.perf_counter() - begun,
                note=coverage.describe_slowest(covered.recoveries),
            )
        )

    def _check_names(self) -> None:
        """A contract may name what does not apply to this history, and may not name what was found."""
        excused = {check.anomaly for family in self.families for check in family.checks if not self._owes(check)}
        idle = [
            anomaly
            for anomaly in self.contract.forbidden or ()
            if anomaly not in (*self.applied, *excused, *self.missing) and self.contract.needs(anomaly)
        ]
        if idle:
            self.unknown += describe_unknown_kinds(find_unknown_kinds(self.kinds, self.families))
        missed = [anomaly for anomaly in idle if not self._may_be_idle(anomaly)]
        self.unknown += [f"{name} is forbidden, but the history has nothing to which it applies" for name in missed]
        self.examined += [
            CheckCoverage(check=name, rows=0, seconds=0.0, note=IDLE, applies=False)
            for name in idle
            if name not in missed and name not in {one.check for one in self.examined}
        ]
        for anomaly in self.anomalies:
            if not self.contract.forbids(anomaly) and not self.contract.tolerates(anomaly):
                self.unknown.append(f"{anomaly} was found, {UNNAMED}")
        if self.contract.forbidden is None and not self.judged:
            self.unknown.append("no check applies to this history")

    def _name_missing(self) -> None:
        """An anomaly that is tolerated changes no verdict, so its check need not be there."""
        for anomaly, why in self.missing.items():
            self.examined.append(CheckCoverage(check=anomaly, rows=0, seconds=0.0, note=why))
            if not self.contract.tolerates(anomaly):
                self.unknown.append(why)

    def _may_be_idle(self, anomaly: str) -> bool:
        """Returns whether a run may lack data for an anomaly's family without being unknown.

        1. Another family has judged what clients did, for an anomaly that the contract forbids as well.
        2. The contract names no anomalies that must have data.
        3. Every kind of effect is known; a misspelt kind would be unknown.
        4. The family is about what clients do. Missing replicas or snapshots were not read, which is a doubt.
        """
        known = {check.anomaly for family in self.families for check in family.checks}
        judged = self.judged and any(self.contract.forbids(name) for name in self.applied if name in known)
        named = self.contract.needed is not None
        done = {check.anomaly for family in self.families if "effect" in family.applies for check in family.checks}
        return judged and anomaly in done and not named and not find_unknown_kinds(self.kinds, self.families)

    def _overdue(self) -> set[str]:
        """Returns forbidden anomalies about deadlines that are in doubt because the tester stood still too long."""
        checks = [check for family in self.families for check in family.checks]
        enough = {check.anomaly: LONG_STANDSTILL for check in checks if check.needs_end} | {
            NO_RECOVERY: LONG_STANDSTILL
        }
        enough |= {check.anomaly: check.standstill for check in checks if check.standstill is not None}
        late = {anomaly for anomaly in enough.keys() & self.anomalies.keys() if self.stood_still >= enough[anomaly]}
        return {anomaly for anomaly in late if self.contract.forbids(anomaly)}

    def _summary(self, reasons: dict[str, str], *, stopped: bool, begun: float, loaded: float) -> Judgement:
        now, contract = time.perf_counter(), self.contract
        overdue = self._overdue()
        against = [anomaly for anomaly in self.anomalies.keys() - overdue if contract.forbids(anomaly)]
        unknown_kinds = find_unknown_kinds(self.kinds, self.families)
        misspelt = {kind: near for kind, near in unknown_kinds.items() if near is not None}
        failed = bool(against) and UNRECORDED not in self.kinds and not misspelt
        if against and UNRECORDED in self.kinds:
            self.unknown.insert(0, describe_unrecorded(self.engine, against))
        if against and misspelt:
            self.unknown.insert(0, describe_misspelt(misspelt, against))
        if overdue:
            self.unknown.insert(0, describe_standstill(sorted(overdue), self.stood_still))
        unknown = tuple(dict.fromkeys(self.unknown))
        if contract.forbidden is None:
            forbidden = tuple(name for name in self.applied if contract.forbids(name))
        else:
            forbidden = tuple(name for name in contract.forbidden if contract.needs(name) or name in self.applied)
        return Judgement(
            verdict=Verdict.FAIL if failed else Verdict.UNKNOWN if unknown else Verdict.PASS,
            anomalies=self.anomalies,
            forbidden=forbidden,
            tolerated=contract.tolerated,
            reasons=reasons,
            findings=group_by_cause(
                sorted(self.findings, key=lambda finding: not contract.forbids(finding.anomaly)),
                {check.anomaly: check.explained_by for family in self.families for check in family.checks},
                contract.forbids,
                {check.anomaly for family in self.families for check in family.checks if check.seen_again},
            ),
            examined=tuple(self.examined),
            unknown=unknown,
            operations=self.history.rows("ops"),
            effects=self.history.rows("effects"),
            seconds=now - begun,
            stages={"validating": round(loaded - begun, 6), "checking": round(now - loaded, 6)},
            engine=self.engine.name,
            meanings=self._meanings(forbidden),
            interrupted=stopped,
        )

    def _meanings(self, forbidden: Sequence[str]) -> dict[str, str]:
        known = list_meanings(self.families)
        named = dict.fromkeys((*(one.check for one in self.examined), *forbidden, *self.contract.tolerated))
        return {name: known[name] for name in named if name in known}
