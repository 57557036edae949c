"""Content of a report before it is drawn: a run's folder, read into one frozen value.

All parts are bounded, even for a long run: points of a series, bars, findings with their operations, faults. Rows that
differ only in numbers (partition, node, time) are folded into one. A run without a verdict, or with a missing or
damaged history, still has a report, which names the problem.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import pyarrow as pa

from assay.checkers.engine import EngineError
from assay.checkers.judging.verdict import LONGEST_LIST, Finding, Judgement, Verdict, find_beneath
from assay.harness.core.history import SCHEMAS, HistoryError, HistoryReader
from assay.reports.coverage import AnomalyPolicy, CheckRow, build_rows, find_meaning, find_policy
from assay.reports.cycle_drawing import CycleDrawing, draw_cycle
from assay.reports.edn_export import compress_history
from assay.reports.failure_text import is_about_invariant, replace_numbers
from assay.reports.faults import FaultBand, read_fault_bands
from assay.reports.files import RunFiles, RunSummary, read_files
from assay.reports.history_db import HistoryDatabase
from assay.reports.last_pass import Comparison, RunTotals, compare_with_last_pass, summarize
from assay.reports.leadership import CONTROLLER, Leadership, read_leadership
from assay.reports.node_logs import LogLines, read_node_logs
from assay.reports.operation_drawing import OperationDrawing, draw_operations
from assay.reports.operations import (
    FirstOccurrence,
    OperationLanes,
    OperationRow,
    PossibleDequeues,
    choose_lanes,
    find_earliest,
    find_first_occurrence,
    find_operations,
    find_possible_dequeues,
    list_first_operations,
    sort_for_display,
)
from assay.reports.resources import ResourceLines, build_lines
from assay.reports.roles import Roles, read_roles
from assay.reports.series import (
    ErrorCount,
    GroupOwnership,
    OperationCounts,
    Series,
    compute_series,
    count_errors,
    count_operations,
    count_ownership,
)
from assay.reports.zookeeper import ZooKeeperActivity, read_activity

T = TypeVar("T")
MIN_FOLD: Final = 3
"""Minimum number of rows to fold. Fewer rows are folded only if they are equal."""


@dataclass(frozen=True)
class Fold(Generic[T]):
    """A group of similar rows. ``first`` represents the group; ``others`` are shown when the reader opens it."""

    first: T
    others: tuple[T, ...] = ()


def fold(items: Sequence[T], text: Callable[[T], str]) -> tuple[Fold[T], ...]:
    """Groups items whose texts differ only in numbers, in the order of their first items. ``text``: returns the text of
    an item."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(replace_numbers(text(item)), []).append(item)
    folds: list[Fold[T]] = []
    for group in groups.values():
        if len(group) < MIN_FOLD and len({text(item) for item in group}) > 1:
            folds += [Fold(item) for item in group]
        else:
            folds.append(Fold(group[0], tuple(group[1:])))
    return tuple(folds)


def join_keys(keys: Sequence[str | None], most: int = 3) -> str:
    """Lists at most ``most`` of the keys, and the number of other keys; empty if all keys are None."""
    known = list(dict.fromkeys(key for key in keys if key is not None))
    more = f" and {len(known) - most:,} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


MOST_FINDINGS: Final = 120
"""Maximum number of findings on a page, for all anomalies together."""
MOST_NAMED: Final = 1_000
"""Maximum number of operations listed under findings; operations of later findings are only counted."""


@dataclass(frozen=True)
class BranchView:
    """A case of a refutation by cases: the orders of transactions that it assumes (``given``), and the resulting cycle.

    ``drawing`` is None if the cycle cannot be drawn. Its ``reasons`` are then only listed.
    """

    given: tuple[str, ...]
    drawing: CycleDrawing | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class FindingView:
    """A finding with its data from the history.

    ``start``, ``stop`` (ns): the interval of its operations and of its ``time``.
    """

    number: int
    anomaly: str
    policy: AnomalyPolicy
    key: str | None
    claim: str
    time: int | None
    leader: str | None
    epoch: int | None
    since: int | None
    until: int | None
    faults: tuple[FaultBand, ...]
    last_fault: FaultBand | None
    """The last fault healed before the finding, if no fault was active."""
    operations: tuple[OperationRow, ...]
    """First at most ``LONGEST_LIST`` operations that contradict each other, then the rest, both sorted by time."""
    unlisted: int
    """Number of involved operations that are not listed."""
    possible_dequeues: PossibleDequeues | None
    """For a lost element of a queue, operations that may have dequeued it."""
    first: FirstOccurrence | None
    """The first occurrence of the contradiction, if it is earlier than the operations above."""
    drawing: CycleDrawing | None
    """The drawing of a cycle whose reasons are known."""
    branches: tuple[BranchView, ...]
    """The cases of a refutation by cases."""
    side_by_side: OperationDrawing | None
    """The drawing of the first operations, for a finding without a cycle."""
    same_cause: tuple[Finding, ...]
    """Findings of the same cause, which are shown only beneath this finding."""
    start: int | None
    stop: int | None


@dataclass(frozen=True)
class AnomalyGroup:
    """All findings of one anomaly. ``count``: number of instances. ``findings``: those that are shown."""

    name: str
    meaning: str | None
    policy: AnomalyPolicy
    count: int
    findings: tuple[FindingView, ...]
    beneath: int = 0
    """Number of findings shown beneath other findings of the same cause."""
    first: FirstOccurrence | None = None
    """The first occurrence of the anomaly, if the first finding does not show it."""

    @property
    def omitted(self) -> int:
        return max(0, self.count - len(self.findings) - self.beneath)

    @property
    def folds(self) -> tuple[Fold[FindingView], ...]:
        """The findings. Equal claims about many keys are folded."""
        return fold(self.findings, lambda finding: finding.claim)


@dataclass(frozen=True)
class RecordedRun:
    """Data of a run's history. ``end``: in nanoseconds. ``phases``: begin of the phases sentinel and drain."""

    end: int
    closed: bool
    operations: int
    effects: int
    series: Series
    operation_counts: tuple[OperationCounts, ...]
    error_counts: tuple[ErrorCount, ...]
    ownership_counts: tuple[GroupOwnership, ...]
    faults: tuple[FaultBand, ...]
    more_faults: int
    """Number of faults that are left out of ``faults``."""
    leadership: Leadership
    zookeeper_activity: ZooKeeperActivity
    log: LogLines
    log_view_time: int | None
    """Initial time of the log view: the first finding, otherwise the first fault."""
    lanes: OperationLanes
    phases: Mapping[str, int]
    resources: ResourceLines
    worker_nodes: Mapping[str, str]
    """By worker, the node to which its clients connected, if known."""
    edn: bytes | None
    """All operations in the format of :mod:`assay.reports.edn_export`, compressed. None if there are too many, or
    for a file of another tool."""

    @property
    def summary(self) -> RunTotals:
        return summarize(self.end, self.operation_counts, self.faults)


@dataclass(frozen=True)
class ForeignFile:
    """A file of another tool that a page is about.

    - ``facts``: name and value of each fact at the head of the page
    - ``notes``: sentences on how the file was read and judged
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The report of a run, or of a file of another tool.

    - ``recorded``: None if there is no operation to draw
    - ``last_pass``: comparison with the last passing run of its cell; None if there is none, or this run passed
    - ``problems``: files and history data that could not be read, in sentences
    """

    name: str
    files: RunFiles
    judgement: Judgement | None
    groups: tuple[AnomalyGroup, ...]
    checks: tuple[CheckRow, ...]
    recorded: RecordedRun | None
    roles: Roles
    last_pass: Comparison | None
    problems: tuple[str, ...]
    file: ForeignFile | None = None
    """The file of another tool; None for a run."""

    @property
    def findings(self) -> tuple[FindingView, ...]:
        return tuple(finding for group in self.groups for finding in group.findings)


def read_report(run_dir: Path, history: HistoryReader | None = None) -> Report:
    """Reads a run's folder. Missing or damaged files never raise; a missing folder raises ``FileNotFoundError``.

    ``history``: the run's history, if the caller has opened it.
    """
    if not run_dir.is_dir():
        raise FileNotFoundError(f"{run_dir} is not a folder; a report needs a run's folder")
    return _make_report(run_dir, read_files(run_dir), history)


def read_file_report(file: ForeignFile, judgement: Judgement, folder: Path) -> Report:
    """Reads the report of a file of another tool. ``folder`` holds ``history/``, made from the file."""
    files = RunFiles(
        run=RunSummary(test=file.name, notes=file.notes),
        settings={},
        judgement=judgement,
        omitted=(),
        shrinking=None,
        sensitivity=None,
        resources=None,
        logs=(),
        problems=(),
    )
    return _make_report(folder, files, None, file)


def _make_report(
    run_dir: Path, files: RunFiles, history: HistoryReader | None, file: ForeignFile | None = None
) -> Report:
    problems = list(files.problems)
    judgement = files.judgement
    shown = _choose_findings(judgement)
    recorded, rows, dequeues = None, {}, {}
    if (run_dir / "history").is_dir():
        try:
            history = history or HistoryReader(run_dir / "history", optional=tuple(SCHEMAS))
            with HistoryDatabase(history) as database:
                rows = find_operations(database, _list_operations(shown))
                if file is None:  # the effects of a file are not stored
                    dequeues = {
                        number: find_possible_dequeues(database, finding) for number, finding in enumerate(shown, 1)
                    }
                recorded = _read_recorded(
                    database, run_dir, files, shown, rows, history.worker_nodes, is_run=file is None
                )
        except (HistoryError, EngineError, pa.ArrowException, OSError) as error:
            problems.append(f"the history cannot be read: {error}")
    else:
        problems.append("there is no history in this run's folder")
    faults = recorded.faults if recorded is not None else ()
    passed = judgement is not None and judgement.verdict is Verdict.PASS
    return Report(
        name=run_dir.name if file is None else file.name,
        files=files,
        judgement=judgement,
        groups=() if judgement is None else group_findings(judgement, shown, rows, faults, dequeues),
        checks=() if judgement is None else build_rows(judgement),
        recorded=recorded,
        roles=read_roles(files.settings),
        last_pass=None
        if recorded is None or passed or file is not None
        else compare_with_last_pass(run_dir.resolve(), files, recorded.summary),
        problems=tuple(problems),
        file=file,
    )


def group_findings(
    judgement: Judgement,
    shown: Sequence[Finding],
    rows: Mapping[int, OperationRow],
    faults: Sequence[FaultBand],
    dequeues: Mapping[int, PossibleDequeues | None],
) -> tuple[AnomalyGroup, ...]:
    """Returns the anomalies in the order of their first finding. Anomalies without a finding on the page come last.

    ``dequeues``: by the number of a finding, from 1.
    """
    by_id = {band.id: band for band in faults}
    views: dict[str, list[FindingView]] = {finding.anomaly: [] for finding in shown}
    listed: set[int] = set(_list_operations(shown))
    for number, finding in enumerate(shown, start=1):
        views[finding.anomaly].append(_to_view(number, finding, judgement, rows, by_id, listed, dequeues.get(number)))
    beneath = Counter(finding.anomaly for finding in judgement.findings if finding.same_cause_as is not None)
    names = [*views, *(name for name in judgement.anomalies if name not in views)]
    heads = {finding.anomaly: finding for finding in reversed(shown)}
    return tuple(
        AnomalyGroup(
            name=name,
            meaning=find_meaning(judgement, name),
            policy=find_policy(judgement, name),
            count=judgement.anomalies.get(name, len(views.get(name, ()))),
            findings=tuple(views.get(name, ())),
            beneath=beneath[name],
            first=None if name not in heads else _find_first_elsewhere(judgement, heads[name], rows),
        )
        for name in names
    )


def _find_first_elsewhere(
    judgement: Judgement, head: Finding, rows: Mapping[int, OperationRow]
) -> FirstOccurrence | None:
    """Returns the first occurrence of the anomaly of ``head``, if another finding shows it."""
    earliest = find_earliest(judgement.findings, head)
    calls = {index: rows[index].call for index in list_first_operations(earliest) if index in rows}
    return None if earliest is head else find_first_occurrence(earliest, head, calls)


def _choose_findings(judgement: Judgement | None) -> tuple[Finding, ...]:
    """Chooses at most ``MOST_FINDINGS`` findings: the first one of each anomaly, then the second ones, and so on.

    They are in the order of the failure text: forbidden ones first, but those about invariants after other forbidden
    ones.
    """
    if judgement is None:
        return ()
    rank: dict[str, int] = {}
    ranked = []
    for position, finding in enumerate(judgement.findings):
        if finding.same_cause_as is not None:
            continue
        rank[finding.anomaly] = rank.get(finding.anomaly, 0) + 1
        ranked.append((rank[finding.anomaly], position, finding))
    kept = sorted(
        sorted(ranked, key=lambda one: one[:2])[:MOST_FINDINGS],
        key=lambda one: (one[2].anomaly not in judgement.forbidden, is_about_invariant(one[2]), one[1]),
    )
    return tuple(finding for _, _, finding in kept)


def _list_operations(shown: Sequence[Finding]) -> list[int]:
    """Returns at most ``MOST_NAMED`` operations that findings name, each once, in the order of findings."""
    return list(dict.fromkeys(index for finding in shown for index in finding.operations))[:MOST_NAMED]


def _to_view(
    number: int,
    finding: Finding,
    judgement: Judgement,
    rows: Mapping[int, OperationRow],
    faults: Mapping[int, FaultBand],
    listed: Collection[int],
    possible_dequeues: PossibleDequeues | None,
) -> FindingView:
    calls = {index: rows[index].call for index in finding.operations if index in listed and index in rows}
    parts = finding.operations[:LONGEST_LIST], finding.operations[LONGEST_LIST:]
    found = tuple(rows[index] for part in parts for index in sort_for_display(finding, part, calls) if index in calls)
    times = [time for row in found for time in (row.call, row.ret) if time is not None]
    times += [finding.time] if finding.time is not None else []
    drawing = _draw(finding.operations, finding.reasons, rows) if finding.cycle else None
    branches = tuple(
        BranchView(branch.given, _draw(branch.operations, branch.reasons, rows), branch.reasons)
        for branch in finding.branches
    )
    return FindingView(
        number=number,
        anomaly=finding.anomaly,
        policy=find_policy(judgement, finding.anomaly),
        key=finding.key,
        claim=finding.claim,
        time=finding.time,
        leader=finding.leader,
        epoch=finding.epoch,
        since=finding.since,
        until=finding.until,
        faults=tuple(faults[id] for id in finding.faults if id in faults),
        last_fault=None if finding.faults else _find_last_fault(finding, faults.values()),
        operations=found,
        drawing=drawing,
        branches=branches,
        side_by_side=None if drawing or branches else draw_operations(found, finding.operations[:2]),
        same_cause=find_beneath(judgement, finding),
        unlisted=finding.omitted + len(finding.operations) - len(found),
        possible_dequeues=possible_dequeues,
        first=find_first_occurrence(finding, finding, calls),
        start=min(times, default=None),
        stop=max(times, default=None),
    )


def _draw(operations: Sequence[int], reasons: Sequence[str], rows: Mapping[int, OperationRow]) -> CycleDrawing | None:
    """Returns the drawing of a cycle; None if it has no reasons, meets an operation twice, or is too large."""
    if len({*operations[: len(reasons)]}) < len(reasons):
        return None
    processes = [(index, f"process {rows[index].process}" if index in rows else "") for index in operations]
    return draw_cycle(processes, reasons)


def _find_last_fault(finding: Finding, faults: Iterable[FaultBand]) -> FaultBand | None:
    begin = finding.since if finding.since is not None else finding.time
    before = [band for band in faults if band.healed is not None and begin is not None and band.healed <= begin]
    return max(before, key=lambda band: band.healed or 0, default=None)


def _read_recorded(
    database: HistoryDatabase,
    run_dir: Path,
    files: RunFiles,
    shown: Sequence[Finding],
    rows: Mapping[int, OperationRow],
    worker_nodes: Mapping[str, str],
    *,
    is_run: bool,
) -> RecordedRun | None:
    """Returns the data of a history. ``is_run``: False for a file of another tool, whose values need not be JSON.

    Without JSON, there are neither counts of ownership nor the EDN export.
    """
    if database.operations == 0:
        return None
    end = database.end()
    faults, more = read_fault_bands(database)
    keys_with_findings = list(dict.fromkeys(finding.key for finding in shown if finding.key is not None))
    leadership = read_leadership(database, faults, keys_with_findings, end)
    keys = [lane for lane in leadership.lanes if lane != CONTROLLER]
    moments = _list_moments(shown, rows, faults)
    phases = database.rows("select phase, min(call) as start from ops where phase <> 'main' group by phase")
    return RecordedRun(
        end=end,
        closed=database.closed,
        operations=database.operations,
        effects=database.effects,
        series=compute_series(database, end),
        operation_counts=count_operations(database),
        error_counts=count_errors(database),
        ownership_counts=count_ownership(database) if is_run else (),
        faults=faults,
        more_faults=more,
        leadership=leadership,
        zookeeper_activity=read_activity(database, faults, keys, end),
        log=read_node_logs(database, run_dir / "logs", files.run.origin, moments),
        log_view_time=moments[0] if moments else None,
        lanes=choose_lanes(database, [rows[index] for index in _list_operations(shown) if index in rows], end),
        phases={row["phase"]: int(row["start"]) for row in phases},
        resources=build_lines(files.resources, simulated=files.run.cluster == "sim"),
        worker_nodes=worker_nodes,
        edn=compress_history(database) if is_run else None,
    )


def _list_moments(shown: Sequence[Finding], rows: Mapping[int, OperationRow], faults: Sequence[FaultBand]) -> list[int]:
    """Returns at most a few hundred times of findings and faults. Times of findings come first."""
    found = [finding.time for finding in shown if finding.time is not None]
    found += [rows[index].call for finding in shown for index in finding.operations[:2] if index in rows]
    for band in faults:
        found += [time for time in (band.start, band.healed, band.recovered) if time is not None]
    return found
