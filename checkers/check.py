"""Declaration of a check: SQL views that end in a table of violations, and a template that describes each violation.

The SQL finds *all* instances of one anomaly and stores them in a table (``Check.found``). The query ``evidence`` picks
the first few instances and joins them with the operations that contradict each other. SQL yields only numbers and
names; ``claims`` makes the sentences.

A check reads these tables without creating them:

- ``found_<anomaly>``: the violations of the check for this anomaly, one row per instance (``name_violations``)
- ``ops``, ``effects``, ``faults``, ``events``, ``replicas``, ``looks``: the history (``docs/reference/history.md``)
- ``..._declared``: values of the contract, in one row; ``log_compacted``: the keys that the contract declares as
  compacted (``judging.history_views``)
- ``effect_kinds``: the number of effects, by key and kind (``objects.kinds``)
- ``log_effects``: the rows of ``effects`` if the history has a log, else nothing
- ``exposure_bound``: the time up to which contradictions count (``exposure``)
- ``log_...``, ``rest_...``, ``register_...``, ``txn_...``: tables that several checks share. ``log.views``,
  ``liveness.snapshots``, ``register.views`` and ``transactions.views`` create and explain most of them. Other modules
  of the same folder create the rest.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from assay.checkers.claims import InvolvedOperation, InvolvedOperations, parse_template
from assay.checkers.engine import Engine, Row
from assay.checkers.exposure import Exposure, ExposureCount, read_count
from assay.checkers.judging.verdict import MOST_OPERATIONS, CycleBranch, Finding
from assay.checkers.times import shorten_times

MOST_NAMED_KEYS: Final = 5
"""Maximum number of keys that :class:`UndecidedKeys` names. Further keys are only counted."""


@dataclass(frozen=True)
class View:
    """A named SQL text.

    - ``keep``: the view is materialised, because several queries read it.
    - ``high_cardinality``: the query of a materialised table has a ``group by`` with nearly one group per input row.
    - ``reads_other_keys``: in a family judged by key, the rows of a key depend on effects of other keys, too.
    """

    name: str
    sql: str
    keep: bool = False
    high_cardinality: bool = False
    reads_other_keys: bool = False


@dataclass(frozen=True)
class Table(View):
    """A view that is materialised."""

    keep: bool = True


def name_violations(anomaly: str) -> str:
    """Returns the name of the table of violations of the check for ``anomaly``."""
    return "found_" + anomaly.lower().replace("-", "_")


_CREATE: Final = re.compile(r"^ *create (?P<kind>view|table) (?P<name>\w+)(?: \((?P<options>[\w, ]+)\))? as$", re.M)


def parse_views(script: str) -> tuple[View, ...]:
    """Parses a script of queries. A line ``create view NAME as`` or ``create table NAME as`` precedes each query.

    Options of :class:`View` follow the name: ``create table NAME (high_cardinality, reads_other_keys) as``.
    Lines that begin with ``--`` are comments.
    """
    code = re.sub(r"^ *--.*\n", "", script, flags=re.M)
    heads = list(_CREATE.finditer(code))
    ends = [head.start() for head in heads[1:]] + [len(code)]
    if not heads or code[: heads[0].start()].strip():
        raise ValueError(f"the SQL does not begin with `create view NAME as`: {code.strip()[:80]}")
    return tuple(
        View(
            head["name"],
            code[head.end() : end],
            keep=head["kind"] == "table",
            **dict.fromkeys((head["options"] or "").replace(",", " ").split(), True),
        )
        for head, end in zip(heads, ends, strict=True)
    )


OFFSET: Final = "offset {position} of {key}"
"""Subject of a finding: the record at an offset."""
VALUE: Final = "value {value} of {key}"
"""Subject of a finding: a value that was sent to a key, or read there."""
EPOCH: Final = "leader epoch {epoch} of {key}"
"""Subject of a finding: a leader epoch of a partition."""


@dataclass(frozen=True)
class OffsetRange:
    """Subjects of a finding: all offsets of a range. The columns ``first`` and ``last`` hold its bounds.

    If a bound is null, there are no subjects.
    """

    first: str
    last: str


@dataclass(frozen=True)
class EachOperation:
    """Subjects of a finding: all operations that ``column`` lists. ``subject`` is a format string for one operation."""

    column: str
    subject: str


LONG_STANDSTILL: Final = 3.0
"""If the tester itself could not run for this many seconds in total, a missed deadline proves nothing."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """Finds every instance of one anomaly.

    ``examined`` is SQL for one number, in a column of any name: the amount of data that the check had.
    """

    anomaly: str
    """Name in contracts, verdicts and reports: ``lost-write``."""
    meaning: str
    """Meaning of the name for new readers: a clause without a capital and a full stop."""
    views: tuple[View, ...] = ()
    """The views, in order. The last one is the table of violations: one row per instance, with a column ``key``."""
    violations: InitVar[str] = ""
    """SQL of the table of violations. If it is given, the table is appended to ``views`` (``name_violations``)."""
    evidence: str
    """SQL for at most ``MOST_FINDINGS`` rows with ``key``. Columns that end in ``_op`` name operations. The optional
    columns ``earliest`` and ``earliest_op`` are the time of the first contradiction, and the operation that showed it.
    """
    examined: str
    exposure: Exposure | None = None
    """Counts the claims of the history, and those that the history could have contradicted. None: each row in
    ``examined`` is one claim, and is exposed.
    """
    claim: str
    """Template of the sentence for an instance, with columns of ``evidence``. ``claims`` explains the syntax."""
    operations: tuple[str, ...] = ()
    """Columns with the operations of a finding. The operations that contradict each other come first. A column has one
    operation, or a list such as ``3,17``. Empty: the columns that ``claim`` names, in its order.
    """
    more: str = ""
    """Template of the number of further operations of a finding, which are not listed: ``{times-2}``."""
    cycle: str = ""
    """The column that is 1 if the operations of a finding, in their order, form a cycle."""
    reasons: str = ""
    """The column with the reasons of a cycle's edges, as a JSON list of sentences; null if there are none."""
    branches: str = ""
    """The column with the cycles of a refutation by cases (each possible order of two transactions is a case), as a
    JSON list of ``CycleBranch``; null if there are none."""
    time: str = ""
    """The column with the time of a finding without operations: the time of an event, by its node's clock."""
    moments: tuple[str, ...] = ()
    """Columns with further times of cause and effect: a deadline, another event, call and return of an operation."""
    about: tuple[str | OffsetRange | EachOperation, ...] = ()
    """The subjects of a finding: templates that name the records, polls and answers in question (``OFFSET``,
    ``VALUE``). A subject with a null column is left out. Findings with a common subject may have one cause
    (``cause_grouping``).
    """
    evidence_views: tuple[View, ...] = ()
    """Further views that ``evidence`` reads. They are created only if the check found something."""
    needs_close: bool = False
    """The check proves nothing about a run that was not closed, because operations may be missing from its history."""
    optional: bool = False
    """Missing data is no reason not to pass, because a workload need not use the feature that the check is about."""
    lacks: str = ""
    """Why a history may have no data for the check: ``no compare-and-set was done``. Such a check is reported as not
    applicable, unless the contract requires data for it (``Contract.needed``). Empty: every history must have data.
    """
    kinds: tuple[str, ...] = ()
    """Kinds of effects of which the check needs at least one. Without them its views are not created, because even
    empty views cost as much as others.
    """
    explained_by: tuple[str, ...] = ()
    """Anomalies that name the cause better, the best first. They apply to findings with a common subject."""
    seen_again: bool = False
    """The check may report one cause several times: once per replica, partition, operation or later epoch. Findings
    have one cause if the first entries of ``about`` are equal.
    """
    needs_end: bool = False
    """The check proves nothing about an interrupted run, because it is about a deadline."""
    standstill: float | None = None
    """If the tester itself could not run for this many seconds in total, a finding about a time proves nothing. None:
    ``LONG_STANDSTILL`` for a check with ``needs_end``, and no limit for all other checks.
    """

    @property
    def found(self) -> str:
        """The name of the table of violations."""
        return self.views[-1].name

    def __post_init__(self, violations: str) -> None:
        if violations:
            found = Table(name_violations(self.anomaly), violations)
            object.__setattr__(self, "views", (*self.views, found))
        if not self.views:
            raise TypeError(f"the check {self.anomaly} has no `violations`")
        if not isinstance(self.claim, str):
            raise TypeError(
                f"the claim of {self.anomaly} is a sentence with names of columns, not {self.claim!r}; "
                "docs/cookbook/extending.md has an example"
            )
        parse_template(self.claim)


@dataclass(frozen=True)
class UndecidedKeys:
    """Reasons why some keys cannot be judged. ``table`` has one row per such key.

    ``explain`` returns the reason for one row, and ``explain_others`` the reason for further keys, by their number.
    """

    table: str
    explain: Callable[[Row], str]
    explain_others: Callable[[int], str]

    def __call__(self, engine: Engine) -> list[str]:
        rows = engine.rows(f"select * from {self.table} order by key nulls first limit {MOST_NAMED_KEYS}")
        more = int(engine.rows(f"select count(*) as keys from {self.table}")[0]["keys"]) - len(rows)
        return [*(self.explain(row) for row in rows), *([self.explain_others(more)] if more > 0 else [])]


@dataclass(frozen=True)
class PreparedTables:
    """A family's ``prepare`` that creates tables. ``doubts`` then returns reasons not to pass, such as undecided keys.

    ``require`` is called first. It raises ``EngineUnavailable`` if the engine cannot judge this history exactly.
    """

    tables: tuple[View, ...]
    doubts: Callable[[Engine], list[str]] | None = None
    require: Callable[[Engine], None] | None = None

    def __call__(self, engine: Engine) -> list[str]:
        if self.require is not None:
            self.require(engine)
        create_views(engine, self.tables)
        return [] if self.doubts is None else self.doubts(engine)


@dataclass(frozen=True)
class PreparedByIteration:
    """A family's ``prepare`` that computes tables by iteration to a fixpoint.

    It is skipped if the answers for all keys are already known.
    """

    make: Callable[[Engine], None]
    """Computes the tables."""
    undecided_keys: UndecidedKeys
    """Returns reasons not to pass: the keys that the iteration did not decide."""

    def __call__(self, engine: Engine) -> list[str]:
        self.make(engine)
        return self.undecided_keys(engine)


@dataclass(frozen=True)
class Family:
    """Checks that share views.

    ``applies`` is SQL for one number, in a column of any name. It is 0 if the history has no data for the family.
    """

    name: str
    checks: tuple[Check, ...]
    applies: str
    views: tuple[View, ...] = ()
    prepare: Callable[[Engine], list[str]] | None = None
    """Runs before the checks, if the family applies, and returns reasons not to pass.

    It may also create tables that only this family needs, and compute fixpoints, which no view expresses.
    """
    prepares_early: bool = False
    """Whether ``prepare`` can run while the run goes on (``early_checks``). :class:`PreparedTables` always can."""
    about_servers: bool = False
    """The family judges servers, not operations of clients. A run that no other family can judge is unknown."""
    kinds: tuple[str, ...] = ()
    """Kinds of effects of which the family needs at least one. Without them, ``applies`` is not queried."""
    by_key: bool = False
    """The result for a key depends only on the key's own effects and on tables without effects. Exceptions are views
    declared ``reads_other_keys``, and queries of the table ``ops``, which may read all keys. Evidence is ordered by
    key. So keys may be judged separately (``partitioned_by_key``).
    """

    @property
    def shared_views(self) -> tuple[View, ...]:
        """The relations that several checks of the family read."""
        return (*self.views, *(self.prepare.tables if isinstance(self.prepare, PreparedTables) else ()))

    @property
    def anomalies(self) -> tuple[str, ...]:
        """The names of all anomalies that the family's checks can find."""
        return tuple(check.anomaly for check in self.checks)


def family_of(
    *checks: Check,
    applies: str,
    prepare: Callable[[Engine], list[str]] | None = None,
    about_servers: bool = False,
    kinds: tuple[str, ...] = (),
) -> Family:
    """Returns a family with the name of its first check.

    ``applies``: SQL after ``from``. The family applies if this relation has rows.
    """
    query = f"select count(*) as examined from {applies}"
    return Family(checks[0].anomaly, checks, query, prepare=prepare, about_servers=about_servers, kinds=kinds)


def create_views(engine: Engine, views: tuple[View, ...]) -> None:
    """Creates the views, in order."""
    for view in views:
        if view.keep:
            engine.table(view.name, view.sql, high_cardinality=view.high_cardinality)
        else:
            engine.view(view.name, view.sql)


@dataclass
class Answer:
    """Result of one check for a history, or for some of its keys. A value is None until it is known."""

    examined: int | None = None
    instances: int | None = None
    evidence_rows: Sequence[Row] | None = None
    """The first rows of the check's evidence."""
    exposure: ExposureCount | None = None


@dataclass(frozen=True)
class CheckCount:
    """Numbers of a check's examined rows, of its instances, and of its exposed claims."""

    examined: int
    instances: int
    exposure: ExposureCount


NOTHING_COUNTED: Final = CheckCount(0, 0, ExposureCount(0, 0))


def run_check(engine: Engine, check: Check, known: Answer | None = None, *, tried: bool = False) -> CheckCount:
    """Counts the rows that the check examined, its instances and its exposed claims. Its views must exist.

    - A single query counts all, because Spark plans a second query more slowly than it counts.
    - A table of violations without a column ``key`` is an error, even if it has no rows.
    - ``known``: results from an earlier judgement of all keys, which are not counted again.
    - ``tried``: the check is built in, so its SQL is known to be valid. Then a table that is known to be empty is not
      queried. The SQL of a user's check always runs, because its errors must be reported.
    """
    known = Answer() if known is None else known
    examined, instances, exposure = known.examined, known.instances, known.exposure
    if instances is None and tried and engine.is_surely_empty(check.found):
        instances = 0
    columns = []
    if examined is None:
        columns.append(f"({check.examined}) as examined")
    if instances is None:
        columns.append(f"(select count(*) from (select key from {check.found}) as found) as instances")
    row: Row = {}
    if exposure is None and check.exposure is not None:
        (row,) = engine.rows(f"select {', '.join([*columns, 'e.*'])} from ({check.exposure.totals}) e")
        exposure = read_count(row)
    elif columns:
        (row,) = engine.rows(f"select {', '.join(columns)}")
    examined, instances = int(row.get("examined", examined)), int(row.get("instances", instances))
    return CheckCount(examined, instances, exposure or ExposureCount(examined, examined))


def read_findings(
    engine: Engine,
    check: Check,
    worker_nodes: Mapping[str, str] = MappingProxyType({}),
    first: Sequence[Row] | None = None,
) -> list[Finding]:
    """Returns the first instances in words. The judge adds leader, epoch and faults.

    ``worker_nodes``: as in :func:`read_involved`. ``first``: the rows of the check's evidence, if already known.
    """
    rows = read_evidence(engine, check) if first is None else first
    return to_findings(check, rows, read_involved(engine, find_named_operations(rows), worker_nodes))


def read_evidence(engine: Engine, check: Check) -> list[Row]:
    """Creates the views of the evidence, and returns the rows for the first instances."""
    create_views(engine, check.evidence_views)
    return engine.rows(check.evidence)


def to_findings(check: Check, rows: Sequence[Row], operations: Mapping[int, InvolvedOperation]) -> list[Finding]:
    """Returns findings for the rows of evidence. ``operations`` must have all operations that the rows name."""
    return [_to_finding(check, row, InvolvedOperations(operations)) for row in rows]


def read_involved(
    engine: Engine, ops: set[int], worker_nodes: Mapping[str, str] = MappingProxyType({})
) -> dict[int, InvolvedOperation]:
    """Returns process, times and node of some operations, by index. ``worker_nodes``: by worker, its clients' node."""
    if not ops:
        return {}
    workers = _read_workers(engine, ops) if worker_nodes else {}
    rows = engine.rows(
        "select op, min(process) as process, min(call) as call, max(ret) as ret from effects "
        f"where op in ({', '.join(str(op) for op in sorted(ops))}) group by op"
    )
    return {
        row["op"]: InvolvedOperation(
            row["process"], row["call"], row["ret"], worker_nodes.get(workers.get(row["op"], ""))
        )
        for row in rows
    }


def _read_workers(engine: Engine, ops: set[int]) -> dict[int, str]:
    wanted = ", ".join(str(op) for op in sorted(ops))
    rows = engine.rows(f'select "index" as op, worker from ops where "index" in ({wanted})')
    return {row["op"]: row["worker"] for row in rows}


def find_named_operations(rows: Sequence[Row]) -> set[int]:
    """Returns the operations that the rows name, by index."""
    return {value for row in rows for name, value in row.items() if name.endswith("_op") and value is not None}


def _to_finding(check: Check, row: Row, involved: InvolvedOperations) -> Finding:
    claim = parse_template(check.claim)
    columns = check.operations or [name for name in claim.find_columns() if name.endswith("_op")]
    named = tuple(dict.fromkeys(op for name in columns for op in _list_operations(row[name])))
    known = [involved.operations[op] for op in named if op in involved.operations]
    time = row[check.time] if check.time else None
    spans = [involved.span(row[name]) if name.endswith("_op") else (row[name],) for name in check.moments]
    moments = [moment for moment in (time, *itertools.chain.from_iterable(spans)) if moment is not None]
    return Finding(
        anomaly=check.anomaly,
        key=row["key"],
        claim=shorten_times(claim.render(row, involved)),
        operations=named[:MOST_OPERATIONS],
        omitted=max(0, len(named) - MOST_OPERATIONS) + int(parse_template(check.more).render(row, involved) or 0),
        time=time if not known else (known[0].call if known[0].ret is None else known[0].ret),
        since=min(moments, default=None),
        until=max(moments, default=None),
        about=tuple(subject for one in check.about for subject in _list_subjects(one, row, involved) if subject),
        first_time=row.get("earliest"),
        first_operation=row.get("earliest_op"),
        cycle=bool(check.cycle and row[check.cycle]),
        reasons=_read_reasons(row[check.reasons]) if check.reasons else (),
        branches=_read_branches(row[check.branches]) if check.branches else (),
    )


def _read_reasons(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(map(shorten_times, msgspec.json.decode(text, type=list[str])))


def _read_branches(text: str | None) -> tuple[CycleBranch, ...]:
    branches = () if text is None else msgspec.json.decode(text, type=tuple[CycleBranch, ...])
    return tuple(
        msgspec.structs.replace(branch, reasons=tuple(map(shorten_times, branch.reasons))) for branch in branches
    )


def _list_operations(value: int | str | None) -> list[int]:
    if isinstance(value, str):
        return [int(op) for op in value.split(",")]
    return [] if value is None else [value]


def _list_subjects(about: str | OffsetRange | EachOperation, row: Row, involved: InvolvedOperations) -> Sequence[str]:
    if isinstance(about, OffsetRange):
        return _list_offsets(row["key"], row[about.first], row[about.last])
    if isinstance(about, EachOperation):
        return [about.subject.format(op) for op in _list_operations(row[about.column])]
    template = parse_template(about)
    return [template.render(row, involved)] if template.applies(row) else []


def _list_offsets(key: str, first: int | None, last: int | None) -> tuple[str, ...]:
    """Returns the subjects of a finding about these offsets.

    If there are several offsets, the first subject names the exact range, because a long list of offsets is cut.
    """
    if first is None or last is None:
        return ()
    if first == last:
        return (f"offset {first} of {key}",)
    each = (f"offset {offset} of {key}" for offset in range(first, min(last + 1, first + MOST_OPERATIONS)))
    return (f"offsets {first} to {last} of {key}", *each)
