"""What a check is: SQL views that leave one table of violations, and a function that puts each one into words.

The SQL finds *all* instances of one anomaly and keeps them in the table ``found``; ``evidence`` picks the first few and
joins the operations that contradict each other back to them. Numbers and names only: sentences are made in Python.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from assay.checkers.engine import Engine, Row
from assay.checkers.judging.verdict import MOST_OPERATIONS, Finding
from assay.checkers.times import readable, seconds

MOST_FINDINGS: Final = 20
"""Findings explained per anomaly; the rest is counted."""

MOST_DOUBTS: Final = 5
"""Keys named that cannot be judged; the rest is counted."""


@dataclass(frozen=True)
class View:
    """One named SQL text. ``keep``: more than one later text reads it, so it is materialised.

    ``fine``: a kept table that groups its rows, into nearly as many groups as there are rows. ``across``: of a family
    that judges by key: what it has of a key is not of that key's effects alone.
    """

    name: str
    sql: str
    keep: bool = False
    fine: bool = False
    across: bool = False


@dataclass(frozen=True)
class Table(View):
    """A view that is kept."""

    keep: bool = True


@dataclass(frozen=True)
class Involved:
    """What a sentence needs of an operation. ``ret`` None: it is not known when it ended, or whether."""

    process: int
    call: int
    ret: int | None
    through: str | None = None
    """The node through which its client reached the system, where that is known."""


@dataclass(frozen=True)
class Evidence:
    """Violations to explain, and the operations they name."""

    operations: Mapping[int, Involved]

    def who(self, op: int | None) -> str:
        """``process 12``, or ``process 12 through n1``."""
        if (known := self._known(op)) is None:
            return "an unknown process"
        return f"process {known.process}" + ("" if known.through is None else f" through {known.through}")

    def called(self, op: int | None) -> str:
        """``14.203 s``: when it began."""
        return seconds(known.call) if (known := self._known(op)) else "an unknown time"

    def returned(self, op: int | None) -> str:
        """``14.203 s``: when it ended."""
        known = self._known(op)
        return "no known time" if known is None or known.ret is None else seconds(known.ret)

    def span(self, op: int | None) -> tuple[int | None, int | None]:
        """When it began and ended."""
        return (None, None) if (known := self._known(op)) is None else (known.call, known.ret)

    def unmade(self, failed: int | None, noun: str, verb: str) -> str:
        """Why what was seen should not be there: its making ``failed``, else there was none."""
        if failed is None:
            return f"no one {verb} it"
        return f"its {noun} by {self.who(failed)} at {self.called(failed)} had definitely failed"

    def _known(self, op: int | None) -> Involved | None:
        return None if op is None else self.operations.get(op)


@dataclass(frozen=True)
class Explanation:
    """One violation in words. ``operations``: those that contradict each other first; ``more``: how many others."""

    claim: str
    operations: tuple[int | None, ...]
    more: int = 0
    time: int | None = None
    """The moment to look at, where no operation has it: that of an event, by its node's clock."""
    moments: tuple[int | None, ...] = ()
    """When cause and effect were seen, apart from ``time`` and the first two operations: a deadline, another event."""
    about: tuple[str, ...] = ()
    """The very records (:func:`offset_of`, :func:`value_of`), polls and answers that it is about."""


LONG: Final = 3.0
"""Seconds in all for which a tester stood still, from which what missed a deadline proves nothing."""


@dataclass(frozen=True)
class Check:
    """Finds every instance of one anomaly.

    ``examined`` is SQL for one number, whatever its column is called; 0: it had no data.
    """

    anomaly: str
    """Its name, in contracts, verdicts and reports: ``lost-write``."""
    meaning: str
    """What the name means, for readers who meet it for the first time: a clause without a capital and a full stop."""
    views: tuple[View, ...]
    """In order; the last is kept and holds one row per instance, with at least a column ``key``."""
    evidence: str
    """SQL for at most ``MOST_FINDINGS`` rows with ``key``; columns that end in ``_op`` name operations."""
    examined: str
    explain: Callable[[Row, Evidence], Explanation]
    """From one row of ``evidence`` to words."""
    evidence_views: tuple[View, ...] = ()
    """Further views that ``evidence`` reads; made only when something was found."""
    needs_close: bool = False
    """Proves nothing about a run that was not closed."""
    optional: bool = False
    """That it had no data is no reason for doubt: a workload need not do what it is about."""
    lacks: str = ""
    """Why it has no data, where a history need not speak of what it is about: ``no compare-and-set was done``. It is
    called not applicable then, unless the contract names what must have data (``Contract.needed``)."""
    kinds: tuple[str, ...] = ()
    """Effects of which it needs one at least. A history that has none of them is judged without its views, which would
    cost as much as if they had rows."""
    explained_by: tuple[str, ...] = ()
    """Anomalies that are the better name of the same cause, the best first, where a finding is about the same."""
    seen_again: bool = False
    """It is found once for each replica, partition, operation or later epoch: findings are one cause where the first
    thing that they are about is the same.
    """
    needs_end: bool = False
    """Proves nothing about a run that was interrupted, since it is about a deadline."""
    standstill: float | None = None
    """Seconds in all for which a tester stood still, from which what this found proves nothing, since it is about a
    time; None: ``LONG`` of one that needs an end, else that says nothing."""

    @property
    def found(self) -> str:
        """The name of the table of violations."""
        return self.views[-1].name


@dataclass(frozen=True)
class Doubts:
    """Why some keys cannot be judged: one reason for each of the first rows of ``table``, and one for all others."""

    table: str
    say: Callable[[Row], str]
    rest: Callable[[int], str]

    def __call__(self, engine: Engine) -> list[str]:
        rows = engine.rows(f"select * from {self.table} order by key nulls first limit {MOST_DOUBTS}")
        more = int(engine.rows(f"select count(*) as keys from {self.table}")[0]["keys"]) - len(rows)
        return [*(self.say(row) for row in rows), *([self.rest(more)] if more > 0 else [])]


@dataclass(frozen=True)
class Prepared:
    """As a family's ``prepare``: makes tables. ``doubts``: why the verdict cannot be pass, once they are there."""

    tables: tuple[View, ...]
    doubts: Callable[[Engine], list[str]] | None = None

    def __call__(self, engine: Engine) -> list[str]:
        build(engine, self.tables)
        return [] if self.doubts is None else self.doubts(engine)


@dataclass(frozen=True)
class Rounds:
    """The same for tables that are made in as many rounds as it takes. What is known of all keys need no round."""

    make: Callable[[Engine], None]
    doubts: Doubts

    def __call__(self, engine: Engine) -> list[str]:
        self.make(engine)
        return self.doubts(engine)


@dataclass(frozen=True)
class Family:
    """Checks that share views.

    ``applies`` is SQL for one number, whatever its column is called; 0: the history has none of it.
    """

    name: str
    checks: tuple[Check, ...]
    applies: str
    views: tuple[View, ...] = ()
    prepare: Callable[[Engine], list[str]] | None = None
    """Runs once it is known that the family applies. For fixpoints, which no view expresses, and for tables that are
    not needed otherwise. Returns reasons why the verdict cannot be pass."""
    prepares_early: bool = False
    """What ``prepare`` reads is there while the run goes on (``early``). Of a :class:`Prepared` that is plain."""
    beside: bool = False
    """It is about servers, and nothing that clients did: a run that no other family can judge is unknown."""
    kinds: tuple[str, ...] = ()
    """Effects of which it needs one at least, so that a history without them need not be asked whether it applies."""
    by_key: bool = False
    """What it says of a key is read off that key's effects, besides what is no effect: but for relations that are said
    to go ``across``, and operations. Its evidence is in the order of keys. Some keys may be judged apart from others
    then (``by_key``)."""

    @property
    def anomalies(self) -> tuple[str, ...]:
        """The names of all that its checks can find."""
        return tuple(check.anomaly for check in self.checks)


def family_of(
    *checks: Check,
    applies: str,
    prepare: Callable[[Engine], list[str]] | None = None,
    beside: bool = False,
    kinds: tuple[str, ...] = (),
) -> Family:
    """A family with its first check's name, so that a history that has nothing for it owes no data.

    ``applies``: the rows that it needs some of, as they stand behind ``from``.
    """
    asked = f"select count(*) as examined from {applies}"
    return Family(checks[0].anomaly, checks, asked, prepare=prepare, beside=beside, kinds=kinds)


def build(engine: Engine, views: tuple[View, ...]) -> None:
    """Makes the views, in order."""
    for view in views:
        if view.keep:
            engine.table(view.name, view.sql, fine=view.fine)
        else:
            engine.view(view.name, view.sql)


@dataclass
class Answer:
    """What one check says of a history, or of some of its keys. None: that is not known yet."""

    examined: int | None = None
    instances: int | None = None
    first: Sequence[Row] | None = None
    """The first rows of its evidence."""


def ask(engine: Engine, check: Check, known: Answer | None = None, *, tried: bool = False) -> tuple[int, int]:
    """How many rows the check examined and how many instances it found, once its views are built.

    One query, since planning a second one costs Spark more than counting. A table of violations without a column
    ``key`` is an error here, not only once it has a row, unless the check was ``tried``: then what cannot have rows is
    not even planned.
    """
    examined, instances = (None, None) if known is None else (known.examined, known.instances)
    if instances is None and tried and engine.lacks(check.found):
        instances = 0
    asked = {}
    if examined is None:
        asked["examined"] = f"({check.examined}) as examined"
    if instances is None:
        asked["instances"] = f"(select count(*) from (select key from {check.found}) as found) as instances"
    if asked:
        (row,) = engine.rows(f"select {', '.join(asked.values())}")
        examined, instances = row.get("examined", examined), row.get("instances", instances)
    assert examined is not None
    assert instances is not None
    return int(examined), int(instances)


def findings(
    engine: Engine, check: Check, through: Mapping[str, str] = MappingProxyType({}), first: Sequence[Row] | None = None
) -> list[Finding]:
    """The first instances in words; the judge adds leader, epoch and faults. ``through``: as of :func:`involved`.

    ``first``: the rows of the check's evidence, where they are known already.
    """
    rows = evidence(engine, check) if first is None else first
    return in_words(check, rows, involved(engine, named(rows), through))


def evidence(engine: Engine, check: Check) -> list[Row]:
    """The first instances, with what there is to say of each."""
    build(engine, check.evidence_views)
    return engine.rows(check.evidence)


def in_words(check: Check, rows: Sequence[Row], operations: Mapping[int, Involved]) -> list[Finding]:
    """``operations``: all that the rows name."""
    known = Evidence(operations)
    return [_finding(check.anomaly, row, check.explain(row, known), known) for row in rows]


def involved(engine: Engine, ops: set[int], through: Mapping[str, str] = MappingProxyType({})) -> dict[int, Involved]:
    """Process and times of some operations, by index. ``through``: by worker, the node at which its clients are."""
    if not ops:
        return {}
    workers = _workers(engine, ops) if through else {}
    rows = engine.rows(
        "select op, min(process) as process, min(call) as call, max(ret) as ret from effects "
        f"where op in ({', '.join(str(op) for op in sorted(ops))}) group by op"
    )
    return {
        row["op"]: Involved(row["process"], row["call"], row["ret"], through.get(workers.get(row["op"], "")))
        for row in rows
    }


def _workers(engine: Engine, ops: set[int]) -> dict[int, str]:
    wanted = ", ".join(str(op) for op in sorted(ops))
    rows = engine.rows(f'select "index" as op, worker from ops where "index" in ({wanted})')
    return {row["op"]: row["worker"] for row in rows}


def offset_of(key: str, offset: int | None) -> str:
    """What a finding is about: whatever is at one offset."""
    return f"offset {offset} of {key}"


def offsets_of(key: str, first: int, last: int) -> tuple[str, ...]:
    """What a finding is about: all of these offsets. Where they are several the first entry names them exactly, and of
    those one by one a long list is cut.
    """
    if first == last:
        return (offset_of(key, first),)
    each = (offset_of(key, offset) for offset in range(first, min(last + 1, first + MOST_OPERATIONS)))
    return (f"offsets {first} to {last} of {key}", *each)


def value_of(key: str, value: int | None) -> str:
    """What a finding is about: a value that was sent to ``key``, or read there."""
    return f"value {value} of {key}"


def epoch_of(key: str, epoch: int | None) -> str:
    """What a finding is about: one leader epoch of a partition."""
    return f"leader epoch {epoch} of {key}"


def capital(text: str) -> str:
    """A sentence that may begin with a word of the history: only its first letter is raised."""
    return text[0].upper() + text[1:]


def named(rows: Sequence[Row]) -> set[int]:
    """The operations, by index."""
    return {value for row in rows for name, value in row.items() if name.endswith("_op") and value is not None}


def _finding(anomaly: str, row: Row, explained: Explanation, evidence: Evidence) -> Finding:
    named = tuple(dict.fromkeys(op for op in explained.operations if op is not None))
    known = [evidence.operations[op] for op in named if op in evidence.operations]
    moments = [moment for moment in (explained.time, *explained.moments) if moment is not None]
    return Finding(
        anomaly=anomaly,
        key=row["key"],
        claim=readable(explained.claim),
        operations=named[:MOST_OPERATIONS],
        omitted=max(0, len(named) - MOST_OPERATIONS) + explained.more,
        time=explained.time if not known else (known[0].call if known[0].ret is None else known[0].ret),
        since=min(moments, default=None),
        until=max(moments, default=None),
        about=explained.about,
    )
