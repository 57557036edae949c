"""Judges a history by a contract, with one of three verdicts.

- ``fail``: a forbidden anomaly was found. An interrupted run fails, too, because no later operation can resolve a
  contradiction.
- ``unknown``: otherwise, if there is a reason not to pass. The judgement names every such reason.
- ``pass``: otherwise.

Checks of deadlines prove nothing about an interrupted run. A history that was not closed may lack operations. So a
value without a sender proves nothing there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Final

from assay.checkers.check import (
    LONG_STANDSTILL,
    NOTHING_COUNTED,
    Check,
    CheckCount,
    Family,
    PreparedByIteration,
    PreparedTables,
    create_views,
    read_findings,
    run_check,
)
from assay.checkers.engine import Engine, EngineError
from assay.checkers.engine.base import SupportsPartitioning
from assay.checkers.exposure import NO_BOUND, ExposureCount, describe_blindness, describe_low_share, describe_shortage
from assay.checkers.families import FAMILIES, list_meanings
from assay.checkers.isolation.exposure import declare_level_exposure
from assay.checkers.isolation.levels import find_level, name_level_check
from assay.checkers.judging import coverage
from assay.checkers.judging.cause_grouping import attributing_errors, group_by_cause
from assay.checkers.judging.contract import ALWAYS_FORBIDDEN, NO_RECOVERY, Contract
from assay.checkers.judging.early_checks import (
    LATE_NOTE,
    LATE_TABLES,
    find_late_tables,
    is_judged_late,
    may_have_lost_records,
    select_early_checks,
)
from assay.checkers.judging.finding_context import FindingContext
from assay.checkers.judging.health import Health, find_silent_end, find_unanswered, measure_health
from assay.checkers.judging.history_integrity import require_readable
from assay.checkers.judging.history_views import count_kinds, register_contract, register_data_sets
from assay.checkers.judging.validate import validate
from assay.checkers.judging.verdict import MOST_FINDINGS, CheckCoverage, Finding, Judgement, Verdict
from assay.checkers.judging.weaknesses import find_weaknesses
from assay.checkers.objects.kinds import MOST_NAMED, NAMELESS, describe_nameless_kinds, list_kinds
from assay.checkers.partitioned_by_key import PartitionAnswers, PartitionQuestion, combine_answers, select_divisible
from assay.checkers.servers.invariants import BROKEN_COUNT
from assay.checkers.transactions.family import LEVEL_ANOMALIES, TRANSACTIONS
from assay.checkers.transactions.level import read_level_coverage
from assay.harness.core.history.data_sets import KINDS, UNRECORDED
from assay.harness.core.printable import count_noun

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader


TYPO_RATIO: Final = 0.85
"""Minimum similarity to a known kind of effect, from 0 to 1. A more similar unknown kind counts as a typo. Any other
counts as a kind of the user's own."""


def find_unknown_kinds(kinds: Collection[str], families: Sequence[Family]) -> dict[str, str | None]:
    """Returns the kinds of effects that no check knows, such as a typo in a client's ``effects``.

    The value of each is the most similar known kind, or None if no known kind is similar. A user's check knows the
    kinds that its SQL names.
    """
    checks = [check for family in families for check in family.checks]
    known = {kind for names in (*KINDS.values(), *(check.kinds for check in checks)) for kind in names}
    unknown = sorted(kind for kind in set(kinds) - known if not _may_be_read_by_user(kind, families))
    return {kind: next(iter(get_close_matches(_normalize(kind), sorted(known), 1)), None) for kind in unknown}


def _may_be_read_by_user(kind: str, families: Sequence[Family]) -> bool:
    """Returns whether a user's family of checks names this kind in its SQL, or has Python code that may read it."""
    of_user = [family for family in families if not {id(check) for check in family.checks} <= _BUILT_IN]
    return any(f"'{kind}'" in text for family in of_user for text in _list_queries(family)) or any(
        family.prepare is not None and not isinstance(family.prepare, PreparedTables) for family in of_user
    )


def _list_queries(family: Family) -> Iterator[str]:
    yield family.applies
    yield from (view.sql for view in family.shared_views)
    for check in family.checks:
        yield from (check.evidence, check.examined)
        yield from (view.sql for view in (*check.views, *check.evidence_views))
        if check.exposure is not None:
            yield check.exposure.rows


def _normalize(kind: str) -> str:
    return kind.strip().casefold().replace("_", "-")


def is_misspelt(kind: str, near: str | None) -> bool:
    """Returns whether an unknown kind is probably a typo of ``near``, the most similar known kind."""
    return near is not None and SequenceMatcher(None, _normalize(kind), near).ratio() >= TYPO_RATIO


def describe_unknown_kinds(unknown: Mapping[str, str | None]) -> list[str]:
    """Returns a reason for each kind of effect that no check knows."""
    return [
        f"no check knows effects of kind {kind}" + (f"; was {near} meant?" if near else "")
        for kind, near in unknown.items()
    ]


def describe_unread_effects(engine: Engine, kinds: Collection[str]) -> str:
    """Returns a warning with the numbers of effects of these kinds."""
    rows = engine.rows("select kind, sum(many) as many from effect_kinds group by kind order by kind")
    rows = [row for row in rows if row["kind"] in kinds]
    counts = ", ".join(f"{row['kind']} ({int(row['many'])})" for row in rows[:MOST_NAMED])
    more = f" and {count_noun(len(rows) - MOST_NAMED, 'other kind')}" if len(rows) > MOST_NAMED else ""
    return f"{count_noun(sum(int(row['many']) for row in rows), 'effect')} of kinds that no check reads: {counts}{more}"


def describe_misspelt(misspelt: Mapping[str, str], anomalies: Sequence[str]) -> str:
    """Returns a reason not to fail: the anomalies may have been found only because effects have a misspelt kind."""
    kinds = ", ".join(f"{kind} (was {near} meant?)" for kind, near in misspelt.items())
    return (
        f"{', '.join(sorted(anomalies))}: found while no check reads the effects of kind {kinds}, so it proves nothing"
    )


MIN_WITHOUT_EFFECTS: Final = 20
"""Minimum number of successful operations of one name (``f``) for a report that none of them has effects."""


def find_operations_without_effects(engine: Engine) -> dict[str, int]:
    """Returns each operation name (``f``) whose successful operations have no effects, with their number."""
    rows = engine.rows(
        f"""
        select o.f, count(*) as many from ops o left join (select op from effects group by op) e on o."index" = e.op
        where o.outcome = 'ok' group by o.f having count(e.op) = 0 and count(*) >= {MIN_WITHOUT_EFFECTS} order by o.f
        """
    )
    return {row["f"]: int(row["many"]) for row in rows}


def describe_operations_without_effects(without_effects: Mapping[str, int]) -> str:
    """Returns a clause that names these operations; empty if there are none."""
    if not without_effects:
        return ""
    named = ", ".join(f"{f} ({many} ok)" for f, many in without_effects.items())
    return f", and effects() returned nothing for {named}"


def describe_unrecorded(engine: Engine, anomalies: Sequence[str]) -> str:
    """Returns a reason not to fail: some operations have no effects, so the anomalies may be wrong."""
    (row,) = engine.rows(f"select sum(many) as many from effect_kinds where kind = '{UNRECORDED}'")
    raised = count_noun(row["many"], "operation")
    return (
        f"{', '.join(sorted(anomalies))}: the client's effects() raised for {raised}. Their effects are unknown, so "
        "contradictions between other operations prove nothing"
    )


def describe_standstill(overdue: Sequence[str], stood_still: float) -> str:
    """Returns a reason not to fail: the tester itself stood still for ``stood_still`` seconds."""
    return (
        f"{', '.join(overdue)}: deadlines were missed, but the tester itself stood still for {stood_still:.1f} s in "
        "all, because this machine or its disk was too busy, or the machine was paused or slept. So the missed "
        "deadlines prove nothing; repeat the run when the machine is less busy"
    )


ProgressCallback = Callable[[str, int, int], None]
"""Called before each step with its description, the number of steps done, and the maximum number of steps."""


NOT_IN_CONTRACT: Final = "which the contract neither forbids nor tolerates"
NONE_MISSING: Final[Mapping[str, str]] = {}
"""The checks of all anomalies are available."""
NOT_APPLICABLE: Final = "the history has no data for it"
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
    still_running: bool = False,
    notes: Sequence[str] = (),
    stood_still: float = 0.0,
    progress: ProgressCallback | None = None,
    missing: Mapping[str, str] = NONE_MISSING,
    requires_exposure: bool = True,
) -> Judgement:
    """Runs every check that applies to a history. The engine must be empty, and stays open.

    - ``families``: the families of checks. Coverage needs at least those of logs and registers.
    - ``interrupted``: the run was stopped before its own end.
    - ``complete``: the history was closed, or has all operations, including pending ones.
    - ``still_running``: the run is not over, so only early checks are valid (``select_early_checks``).
    - ``notes``: reasons not to pass that only the caller knows, such as unexpected client exceptions.
    - ``stood_still``: total seconds for which the tester itself could not run. If they reach ``LONG_STANDSTILL``, or
      the check's own ``standstill``, a missed deadline does not fail the run.
    - ``progress``: called with the progress. If it is given, ``KeyboardInterrupt`` ends the checks, and the judgement
      has the findings so far.
    - ``missing``: anomalies whose checks are not available, each with the reason. All others are judged.
    - ``requires_exposure``: the verdict is unknown if the contract needs data for an anomaly, and the history could not
      have shown this anomaly. False for histories of other tools, whose workloads cannot be changed here.

    Raises ``HistoryError`` if the history cannot be read or contradicts itself. The error names file, row and reason.
    """
    judging = _Judging(
        history, contract, engine, tuple(families), interrupted or still_running, complete, still_running, tuple(notes),
        stood_still, progress, missing, requires_exposure,
    )  # fmt: skip
    try:
        return judging.judge()
    except EngineError:
        require_readable(history)  # an engine reports a damaged file in its own words; this names the file
        raise


_BUILT_IN: Final = {id(check) for family in FAMILIES for check in family.checks}
"""Ids of the built-in checks. The SQL of any other check is always run, so that its errors show at once."""


@dataclass
class _Judging:
    """A judgement in progress: its input, and the results so far."""

    history: HistoryReader
    contract: Contract
    engine: Engine
    families: tuple[Family, ...]
    interrupted: bool
    complete: bool
    still_running: bool
    notes: tuple[str, ...]
    stood_still: float
    progress: ProgressCallback | None
    missing: Mapping[str, str]
    requires_exposure: bool

    late: frozenset[str] = LATE_TABLES
    """The tables that are incomplete while the run goes on."""
    worker_nodes: Mapping[str, str] = field(default_factory=dict)
    """By worker, the node that its clients were sent to."""
    effect_kinds: set[str] = field(default_factory=set)
    """The kinds of effects in the history."""
    anomalies: dict[str, int] = field(default_factory=dict)
    """The number of instances of each anomaly found."""
    applied: list[str] = field(default_factory=list)
    """The anomalies of the families that apply to the history."""
    judged: bool = False
    """Whether a family could judge operations of clients."""
    findings: list[Finding] = field(default_factory=list)
    examined: list[CheckCoverage] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Reasons not to pass."""
    warnings: list[str] = field(default_factory=list)
    health: Health = field(default_factory=Health)

    known: PartitionAnswers = field(default_factory=PartitionAnswers)
    """Answers that the engine found key by key before the other checks."""

    level_is_blind: bool = False
    """Whether the history could not have contradicted the contract's isolation level."""
    cut_short: bool = False
    """Whether a broken invariant ended the run at once."""

    @cached_property
    def finding_context(self) -> FindingContext:
        """Valid after ``_load``."""
        return FindingContext(self.engine)

    @cached_property
    def unknown_kinds(self) -> dict[str, str | None]:
        """Valid after ``_load``."""
        return find_unknown_kinds(self.effect_kinds, self.families)

    @property
    def ended(self) -> bool:
        """Whether the run came to its own end, so that its deadlines count."""
        return self.complete and not self.interrupted and not self.cut_short

    def judge(self) -> Judgement:
        begun = time.perf_counter()
        try:
            self._load()
        except KeyboardInterrupt:
            if self.progress is None:
                raise
            self.unknown.insert(0, "interrupted before the first check: the history was still being validated")
            return self._summarize({}, stopped=True, begun=begun, loaded=time.perf_counter())
        loaded = time.perf_counter()
        self.worker_nodes = self.history.worker_nodes
        # While the run goes on, a fault may be active before its injection is recorded.
        present = [fault for fault in self.finding_context.faults if fault.has_begun or self.still_running]
        injected = {name: f"{fault.name} (as {name})" for fault in present for name in fault.like}
        injected |= {fault.name: fault.name for fault in present}
        reasons, self.contract = self.contract.reasons(injected), self.contract.under(injected)
        if self.still_running:
            self.late = find_late_tables(self.engine, self.contract)
        self.unknown += self._describe_circumstances()
        self.unknown += describe_nameless_kinds(self.engine)
        stopped = False
        try:
            self._measure_health()
            self._judge_by_key()
            for family in self.families:
                with attributing_errors(f"in the family of checks {family.name!r}"):
                    self._judge_family(family)
            if self.judged or self.contract.model is not None:
                self._measure_coverage()
            self._compare_with_contract()
            self._report_missing_checks()
            self._report_unread_effects()
        except KeyboardInterrupt:
            if self.progress is None:
                raise
            stopped = True
            done = ", ".join(examined.check for examined in self.examined)
            self.unknown.insert(0, f"interrupted; of the checks, only these were done: {done or 'none'}")
        return self._summarize(reasons, stopped=stopped, begun=begun, loaded=loaded)

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
            self.effect_kinds = list_kinds(validator)
        register_contract(self.engine, self.contract)
        self.cut_short = any(next(iter(row.values())) for row in self.engine.rows(BROKEN_COUNT))

    def _describe_circumstances(self) -> list[str]:
        """Returns the reasons not to pass that do not depend on any check."""
        reasons = list(self.notes)
        if self.still_running:
            reasons.append("the run had not come to its end when this was judged")
        elif self.interrupted:
            reasons.append("the run was interrupted")
        if self.cut_short:
            reasons.append("the run was ended at once, because an invariant was broken")
        if not self.complete:
            reasons.append("the history was not closed, so operations may be missing from it")
        if self.history.rows("ops") == 0:
            reasons.append("the history is empty")
        return reasons

    def _judge_by_key(self) -> None:
        """Judges the parts of the history in parallel, for the checks that judge each key by itself.

        Does nothing if the engine does not partition this history.
        """
        if (
            not isinstance(self.engine, SupportsPartitioning)
            or self.still_running
            or may_have_lost_records(self.engine, self.contract)
        ):
            return  # after a power loss, tables of the log's checks depend on all keys
        families = [family for family in select_divisible(self.families) if self._applies(family)]
        if not families:
            return
        skipped = frozenset(check.anomaly for family in families for check in family.checks if self._why_skipped(check))
        question = PartitionQuestion(
            self.contract, tuple(one.name for one in families), frozenset(self.effect_kinds), skipped
        )
        parts = self.engine.ask_each_part(
            self.history, question, lambda done, total: self._step("checking key by key", done, total)
        )
        if parts:
            self.known = combine_answers(parts)
            self.engine.preset_tables({name: rows for name, rows in self.known.tables.items() if rows is not None})

    def _applies(self, family: Family) -> bool:
        """Returns whether the history has data for the family."""
        if family.kinds and not self.effect_kinds.intersection(family.kinds):
            return False
        (row,) = self.engine.rows(family.applies)
        return bool(next(iter(row.values())))

    def _why_skipped(self, check: Check) -> str | None:
        """Returns why the check cannot be run on this history, or None."""
        if check.needs_end and not self.ended:
            return "it is about a deadline, and the run did not come to its end"
        if check.needs_close and not self.complete:
            return "operations may be missing from a history that was not closed"
        return None

    def _prepare(self, family: Family) -> list[str]:
        """Creates a family's tables. Returns the reasons not to pass."""
        prepare = family.prepare
        if (
            isinstance(prepare, PreparedByIteration)
            and (table := self.known.tables.get(prepare.undecided_keys.table)) is not None
        ):
            self.engine.load(prepare.undecided_keys.table, table)
            return prepare.undecided_keys(self.engine)
        return [] if prepare is None else prepare(self.engine)

    def _judge_family(self, family: Family) -> None:
        if self.still_running:
            for check in family.checks:
                if is_judged_late(family, check, self.late):
                    self._skip(check, LATE_NOTE)
            # Even without early checks the family's tables are created, because other families read them.
            family = select_early_checks(family, self.late)
        create_views(self.engine, family.views)
        if not self._applies(family):
            for check in family.checks:
                if check.lacks and check.anomaly in (self.contract.forbidden or ()):
                    self._add_examined(check, NOTHING_COUNTED, 0.0, lacking=True)
            return
        self.applied += family.anomalies
        self.judged |= not family.about_servers
        self.unknown += self._prepare(family)
        if family is TRANSACTIONS and self.contract.transaction_level is not None:
            self._measure_level(self.contract.transaction_level)
        total = sum(len(family.checks) for family in self.families)
        for check in family.checks:
            self._step(f"checking, now {check.anomaly}", len(self.examined), total)
            why = self._why_skipped(check)
            if why is not None:
                self._skip(check, why)
            else:
                with attributing_errors(f"in the check {check.anomaly!r}"):
                    self._run_check(check)

    def _measure_level(self, name: str) -> None:
        """Reports the claims of the contract's isolation level. If none was exposed, the run cannot pass."""
        begun = time.perf_counter()
        level = find_level(name)
        covered = read_level_coverage(self.engine, level)
        counts = None if self.still_running else covered.exposure
        self.examined.append(
            CheckCoverage(
                check=name_level_check(name),
                rows=covered.transactions,
                claims=None if counts is None else counts.claims,
                exposed=None if counts is None else counts.exposed,
                seconds=time.perf_counter() - begun,
                note=covered.note,
            )
        )
        if self.ended and self.requires_exposure:
            declared = declare_level_exposure(level)
            blind = describe_blindness(name_level_check(name), declared, covered.exposure, NO_BOUND)
            if blind is not None:
                self.level_is_blind = True
                self.unknown.append(f"{blind}{self._explain_missing_data()}")

    def _step(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)

    def _skip(self, check: Check, why: str) -> None:
        self.examined.append(CheckCoverage(check=check.anomaly, rows=0, seconds=0.0, note=why))
        if self.contract.forbids(check.anomaly):
            self.unknown.append(f"{check.anomaly} cannot be judged: {why}")

    def _run_check(self, check: Check) -> None:
        begun = time.perf_counter()
        count = NOTHING_COUNTED
        known = self.known.checks.get(check.anomaly) if id(check) in _BUILT_IN else None
        if not check.kinds or self.effect_kinds.intersection(check.kinds):
            create_views(self.engine, check.views)
            asked = replace(check, exposure=None) if self.still_running else check
            count = run_check(self.engine, asked, known, tried=id(check) in _BUILT_IN)
        if count.instances:
            self.anomalies[check.anomaly] = count.instances
            first = None if known is None else known.evidence_rows
            self.findings += self.finding_context.add_to(read_findings(self.engine, check, self.worker_nodes, first))
        elif self._needs_data(check):
            if count.examined == 0:
                self.unknown.append(
                    f"{check.anomaly} is forbidden, but its check had no data{self._explain_missing_data()}"
                )
            elif self.ended:
                self._judge_exposure(check, count.exposure)
        lacking = count.examined == count.instances == 0
        self._add_examined(check, count, time.perf_counter() - begun, lacking=lacking)

    def _judge_exposure(self, check: Check, count: ExposureCount) -> None:
        """Adds a reason not to pass if no claim of the check was exposed, or a warning if few claims were.

        ``checkers.exposure`` explains claims. ``LEVEL_ANOMALIES`` are those that refute the contract's isolation level.
        """
        if not self.requires_exposure or (self.level_is_blind and check.anomaly in LEVEL_ANOMALIES):
            return
        reason = warning = None
        if check.exposure is not None:
            (row,) = self.engine.rows("select since from exposure_bound")
            reason = describe_blindness(check.anomaly, check.exposure, count, int(row["since"]), ended=self.ended)
            warning = describe_low_share(check.anomaly, check.exposure, count, ended=self.ended)
        minimums = (one for one in self.contract.minimum_exposed if one.anomaly == check.anomaly)
        reason = reason or next((describe_shortage(one, count, ended=self.ended) for one in minimums), None)
        if reason is not None:
            self.unknown.append(f"{reason}{self._explain_missing_data()}")
        elif warning is not None:
            self.warnings.append(warning)

    def _explain_missing_data(self) -> str:
        """Returns the errors of failed operations, to be appended to a reason about missing data."""
        failures = self.health.describe_failures() if self.requires_exposure else ""
        return f"; {failures}" if failures else ""

    def _needs_data(self, check: Check) -> bool:
        """Returns whether a run without data for the check is unknown."""
        # A history may lack the subject of a check with `lacks`, unless the contract lists the data that it needs.
        requires_subject = not check.lacks or self.contract.needed is not None
        return requires_subject and not check.optional and self.contract.needs(check.anomaly)

    def _add_examined(self, check: Check, count: CheckCount, taken: float, *, lacking: bool) -> None:
        applies = not (lacking and check.lacks)
        self.examined.append(
            CheckCoverage(
                check=check.anomaly,
                rows=count.examined,
                claims=None if self.still_running else count.exposure.claims,
                exposed=None if self.still_running else count.exposure.exposed,
                seconds=taken,
                note=None if applies else check.lacks,
                applies=applies,
            )
        )

    def _measure_health(self) -> None:
        """Counts the operations by kind and outcome. A kind that was never answered is a reason not to pass.

        This runs before the checks, because an unanswered kind explains why a check had no data.
        """
        self.health = measure_health(self.engine, self.contract)
        if self.requires_exposure and self.ended:
            faults = self.finding_context.faults
            self.unknown += find_unanswered(self.engine, self.health)
            self.unknown += find_silent_end(self.engine, self.contract, faults)
            self.warnings += find_weaknesses(
                self.engine, self.contract, self.health, faults, self.effect_kinds, self.worker_nodes
            )

    def _measure_coverage(self) -> None:
        """Judges whether enough happened and whether the system recovered (``coverage``), whatever the families
        found."""
        begun = time.perf_counter()
        covered = coverage.measure_coverage(
            self.engine,
            self.contract,
            self.finding_context.faults,
            ended=self.ended,
            health=self.health if self.requires_exposure else None,
        )
        self.unknown += covered.reasons
        self.warnings += covered.warnings
        self.applied.append(NO_RECOVERY)
        if covered.overdue:
            self.anomalies[NO_RECOVERY] = len(covered.overdue)
            self.findings += self.finding_context.add_to(covered.overdue[:MOST_FINDINGS])
        self.examined.append(
            CheckCoverage(
                check=NO_RECOVERY,
                rows=len(covered.recoveries),
                seconds=time.perf_counter() - begun,
                note=coverage.describe_slowest(covered.recoveries),
            )
        )

    def _compare_with_contract(self) -> None:
        """Adds a reason for each forbidden anomaly without data, and for each found anomaly that the contract does not
        name."""
        excused = {check.anomaly for family in self.families for check in family.checks if not self._needs_data(check)}
        without_data = [
            anomaly
            for anomaly in self.contract.forbidden or ()
            if anomaly not in (*self.applied, *excused, *self.missing) and self.contract.needs(anomaly)
        ]
        if without_data:
            self.unknown += describe_unknown_kinds(self.unknown_kinds)
        without_effects = find_operations_without_effects(self.engine) if without_data else {}
        missed = [anomaly for anomaly in without_data if without_effects or not self._may_lack_data(anomaly)]
        why = f"{NOT_APPLICABLE}{describe_operations_without_effects(without_effects)}"
        self.unknown += [f"{name} is forbidden, but {why}" for name in missed]
        self.examined += [
            CheckCoverage(check=name, rows=0, seconds=0.0, note=NOT_APPLICABLE, applies=False)
            for name in without_data
            if name not in missed and name not in {one.check for one in self.examined}
        ]
        for anomaly in self.anomalies:
            if not self.contract.forbids(anomaly) and not self.contract.tolerates(anomaly):
                self.unknown.append(f"{anomaly} was found, {NOT_IN_CONTRACT}")
        self._report_empty_promise()
        level = self.contract.transaction_level
        if level is not None and self.requires_exposure and not set(TRANSACTIONS.anomalies) & set(self.applied):
            self.unknown.append(f"the contract demands {level}, but the history has no transactions")
        if self.contract.forbidden is None and not self.judged:
            self.unknown.append("no check applies to this history")

    def _report_empty_promise(self) -> None:
        """Adds a reason if the contract names anomalies, and none of their checks had data."""
        named = set(self.contract.forbidden or ()) - ALWAYS_FORBIDDEN
        with_data = {one.check for one in self.examined if one.rows} | self.anomalies.keys()
        has_reason = any(reason.startswith(tuple(named)) for reason in self.unknown)
        if named and self.contract.model is None and not named & with_data and not has_reason:
            self.unknown.append(f"{', '.join(sorted(named))}: the contract forbids only these, and {NOT_APPLICABLE}")

    def _report_missing_checks(self) -> None:
        """Reports the checks that are not available. A tolerated anomaly changes no verdict, so it needs no check."""
        for anomaly, why in self.missing.items():
            self.examined.append(CheckCoverage(check=anomaly, rows=0, seconds=0.0, note=why))
            if not self.contract.tolerates(anomaly):
                self.unknown.append(why)

    def _report_unread_effects(self) -> None:
        """Adds a warning if no check reads effects of some kinds, and a reason if such a kind is misspelt.

        No reason is added if checks are missing, because a missing check may read the kind.
        """
        # kinds that name no object, such as `add`, are a reason already (`describe_nameless_kinds`)
        unread = {kind: near for kind, near in self.unknown_kinds.items() if kind not in NAMELESS}
        if not unread or self.still_running:
            return
        if self.requires_exposure:
            self.warnings.append(describe_unread_effects(self.engine, unread))
        if not self.missing:
            self.unknown += describe_unknown_kinds(
                {kind: near for kind, near in unread.items() if is_misspelt(kind, near)}
            )

    def _may_lack_data(self, anomaly: str) -> bool:
        """Returns whether missing data for a forbidden anomaly is no reason not to pass.

        All of these must hold:

        1. Another family judged operations of clients, for another anomaly that the contract forbids.
        2. The contract does not list anomalies that must have data (``needed``).
        3. No kind of effect is unknown, because an unknown kind may be a typo.
        4. The anomaly's family judges operations of clients. If replicas or snapshots are missing, the harness failed
           to read them.
        """
        known = {check.anomaly for family in self.families for check in family.checks}
        judged = self.judged and any(self.contract.forbids(name) for name in self.applied if name in known)
        about_clients = {
            check.anomaly for family in self.families if "effect" in family.applies for check in family.checks
        }
        if not judged or anomaly not in about_clients or self.contract.needed is not None:
            return False
        return not self.unknown_kinds

    def _find_doubtful_deadlines(self) -> set[str]:
        """Returns the forbidden anomalies that were found, but that prove nothing: they are about deadlines, and the
        tester stood still too long."""
        checks = [check for family in self.families for check in family.checks]
        limits = {check.anomaly: LONG_STANDSTILL for check in checks if check.needs_end} | {
            NO_RECOVERY: LONG_STANDSTILL
        }
        limits |= {check.anomaly: check.standstill for check in checks if check.standstill is not None}
        late = {anomaly for anomaly in limits.keys() & self.anomalies.keys() if self.stood_still >= limits[anomaly]}
        return {anomaly for anomaly in late if self.contract.forbids(anomaly)}

    def _summarize(self, reasons: dict[str, str], *, stopped: bool, begun: float, loaded: float) -> Judgement:
        now, contract = time.perf_counter(), self.contract
        overdue = self._find_doubtful_deadlines()
        anomalies = [anomaly for anomaly in self.anomalies.keys() - overdue if contract.forbids(anomaly)]
        misspelt = {kind: near for kind, near in self.unknown_kinds.items() if near is not None}
        # UNRECORDED: the kind of effect that stands for an operation whose client's `effects` raised
        failed = bool(anomalies) and UNRECORDED not in self.effect_kinds and not misspelt
        if anomalies and UNRECORDED in self.effect_kinds:
            self.unknown.insert(0, describe_unrecorded(self.engine, anomalies))
        if anomalies and misspelt:
            self.unknown.insert(0, describe_misspelt(misspelt, anomalies))
        if overdue:
            self.unknown.insert(0, describe_standstill(sorted(overdue), self.stood_still))
        unknown = tuple(dict.fromkeys(self.unknown))
        if contract.forbidden is None:
            forbidden = tuple(name for name in self.applied if contract.forbids(name))
        else:
            named = (name for name in contract.forbidden if contract.needs(name) or name in self.applied)
            forbidden = tuple(dict.fromkeys((*named, *filter(contract.forbids, self.applied))))
        meanings = list_meanings(self.families)
        if contract.transaction_level is not None:
            level = find_level(contract.transaction_level)
            meanings[name_level_check(level.name)] = level.meaning
        shown = dict.fromkeys((*(one.check for one in self.examined), *forbidden, *contract.tolerated))
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
            warnings=tuple(self.warnings),
            operations=self.history.rows("ops"),
            kinds=dict(self.health.counts),
            effects=self.history.rows("effects"),
            seconds=now - begun,
            stages={"validating": round(loaded - begun, 6), "checking": round(now - loaded, 6)},
            engine=self.engine.name,
            meanings={name: meanings[name] for name in shown if name in meanings},
            interrupted=stopped,
        )
