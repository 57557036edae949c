"""Rejects histories that cannot have happened, before any check reads them.

A check relies on the format's promises. For example, no operation returns before its call, a process has one open
operation at a time, and no timestamp occurs twice. Files that break a promise would be judged wrongly. So each rule is
SQL that finds the first row to break it. The row is then located in its file. The error names the file, the row (rows
count from 1) and the reason.

Whether the operations make sense is *not* validated, because the checks do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay.checkers.check import Table, View, create_views
from assay.checkers.engine import INFINITY, Engine, Row
from assay.checkers.engine.base import quote, quote_texts
from assay.checkers.judging.history_integrity import Progress, require_all_rows
from assay.harness.core.history import HistoryError
from assay.harness.core.history.data_sets import DATA_SETS, NODE_LISTS

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Outcome, Phase

FAULT_PHASES: Final = ("intended", "injected", "healed", "recovered", "failed")
_ALLOWED_VALUES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "ops": {"outcome": tuple(Outcome), "phase": tuple(Phase)},
    "effects": {"outcome": tuple(Outcome), "phase": tuple(Phase)},
    "faults": {"phase": FAULT_PHASES},
}
"""The values allowed in each enumerated column, by data set and column."""


class _AppliesTo(Enum):
    """The histories to which a rule applies: closed (complete) ones, open ones (cut short, or still written), or
    all."""

    CLOSED = auto()
    OPEN = auto()
    ALWAYS = auto()


@dataclass(frozen=True)
class ValidationRule:
    """A rule as SQL that returns at most one row: the first row to break it.

    ``names``: columns that identify the row. ``reason``: returns the text of the error.
    """

    data: str
    sql: str
    names: tuple[str, ...]
    reason: Callable[[Row], str]
    last: bool = False
    """Whether the error must name the last of several matching rows."""
    when: _AppliesTo = _AppliesTo.ALWAYS
    views: tuple[View, ...] = ()
    """Relations that ``sql`` reads in addition to the history."""


def validate(
    engine: Engine, reader: HistoryReader, *, complete: bool = True, progress: Progress = lambda done, total: None
) -> None:
    """Raises ``HistoryError`` for the first rule that is broken. Needs the history's views in ``engine``.

    ``complete``: the history was closed, or has all operations.
    """
    require_all_rows(reader)
    for number, rule in enumerate(RULES):
        progress(number, len(RULES))
        if rule.when is (_AppliesTo.OPEN if complete else _AppliesTo.CLOSED):
            continue
        create_views(engine, rule.views)
        for row in engine.rows(rule.sql):
            path, row_number = _locate(reader, rule, row)
            raise HistoryError(f"{path}: row {row_number}: {rule.reason(row)}")


def _locate(reader: HistoryReader, rule: ValidationRule, row: Row) -> tuple[Path, int]:
    """Returns the file of the row, and its number there."""
    found: tuple[Path, int] | None = None
    for path, number in _find_matches(reader, rule, row):
        found = (path, number)
        if not rule.last:
            break
    if found is None:
        raise HistoryError(f"{reader.folder / rule.data}: row unknown: {rule.reason(row)}")
    return found


def _find_matches(reader: HistoryReader, rule: ValidationRule, row: Row) -> Iterator[tuple[Path, int]]:
    for path in reader.paths(rule.data):
        before = 1
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=list(rule.names)):
                mask = _find_equal(batch, {name: row[name] for name in rule.names})
                for offset in pc.indices_nonzero(mask).to_pylist():
                    yield path, before + int(offset)
                before += batch.num_rows


def _find_equal(batch: pa.RecordBatch, wanted: Mapping[str, Any]) -> Any:
    """Returns a mask of the rows with these values."""
    mask = pa.array([True] * batch.num_rows)
    for name, value in wanted.items():
        column = batch.column(batch.schema.get_field_index(name))
        same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        mask = pc.and_(mask, same)
    return mask


def _row_rule(
    data: str, names: tuple[str, ...], more: Mapping[str, str], explain: Callable[[Row], str]
) -> ValidationRule:
    """Returns the rule for errors visible in one row of a data set: nulls, values that are not allowed, and ``more``.

    ``more``: SQL conditions of further errors by name. ``explain``: returns the text of such an error.
    """
    required = [field.name for field in DATA_SETS[data] if not field.nullable]
    words = _ALLOWED_VALUES.get(data, {})
    # The column `broken` names the case: `null COLUMN`, `word COLUMN` (a value that is not allowed), or one of `more`.
    cases = {f"null {column}": f"{quote(column)} is null" for column in required}
    cases |= {f"word {column}": f"{column} not in ({quote_texts(known)})" for column, known in words.items()}
    cases |= more
    whens = " ".join(f"when {condition} then '{case}'" for case, condition in cases.items())
    explained = NODE_LISTS if data == "events" else ("call", "ret") if data in ("ops", "effects") else ()
    columns = ", ".join(quote(name) for name in dict.fromkeys((*names, *words, *explained)))

    def reason(row: Row) -> str:
        kind, _, column = str(row["broken"]).partition(" ")
        if kind == "null":
            return f"{column} has no value, and every row of {data} must have one"
        if kind == "word":
            return f"{column} is {row[column]!r}, which is none of {', '.join(words[column])}"
        return explain(row)

    order = ", ".join(f"{quote(name)} nulls first" for name in names)
    return ValidationRule(
        data=data,
        sql=f"select * from (select {columns}, case {whens} end as broken from {data}) as looked_at "
        f"where broken is not null order by {order} limit 1",
        names=names,
        reason=reason,
    )


def _explain_operation(row: Row) -> str:
    match row["broken"]:
        case "no ret":
            return f"operation {row['index']} ended {row['outcome']}, but has no ret; only info has none"
        case "ret":
            return (
                f"operation {row['index']} ended info, but has the ret {row['ret']} ns; info means that it is not "
                "known whether or when it took effect"
            )
        case _:
            return f"operation {row['index']} returned at {row['ret']} ns, not after its call at {row['call']} ns"


def _explain_process(row: Row) -> str:
    former = f"its operation {row['former']}, called at {row['former_call']} ns"
    called = f"operation {row['index']} at {row['call']} ns"
    if row["call"] <= row["former_call"]:
        return f"time goes backwards: process {row['process']} called {called}, not after {former}"
    until = "never returned" if row["former_ret"] is None else f"returned only at {row['former_ret']} ns"
    return f"process {row['process']} has two open calls: {called}, while {former}, {until}"


def _explain_mismatch(row: Row) -> str:
    if row["known"] is None:
        return f"this is an effect of operation {row['op']}, which is not in ops"
    for column in ("process", "call", "ret", "phase"):
        if row[column] != row[f"op_{column}"]:
            return (
                f"{column} is {row[column]}, but that of operation {row['op']} is {row[f'op_{column}']} "
                "(an effect must have the process, call, ret and phase of its operation)"
            )
    raise AssertionError(f"the rule found an effect that equals its operation: {dict(row)}")


def _select_mismatch(join: str, unknown: str) -> str:
    """Returns SQL: the first effect that differs from its operation. ``unknown``: SQL condition that also selects an
    effect of a missing operation."""
    return f"""
        select e.op, e.sub, o."index" as known, e.process, o.process as op_process,
            e.call, o.call as op_call, e.ret, o.ret as op_ret, e.phase, o.phase as op_phase
        from effects e join doubtful_operations d on e.op = d.op {join} ops o on e.op = o."index"
        where d.other = 1 and ({unknown} e.process <> o.process or e.call <> o.call or e.phase <> o.phase
            or e.ret is distinct from o.ret)
        order by e.op nulls first, e.sub nulls first limit 1
        """


def _explain_node_list(row: Row) -> str:
    name = str(row["broken"]).removeprefix("list ")
    return f"{name} is {row[name]!r}, and must be numbers of nodes with commas between them, such as 1,2,3"


def _explain_fault(row: Row) -> str:
    if row["former_time"] is None:
        return f"fault {row['id']} is {row['phase']}, but was never {row['former']}"
    return (
        f"fault {row['id']} was {row['phase']} at {row['time']} ns, before it was {row['former']} at "
        f"{row['former_time']} ns"
    )


def _select_fault_steps() -> str:
    """Returns SQL: each step of a fault with the one before it. A failed fault may be healed without having been
    injected."""
    steps = " union all ".join(
        f"select id, fault_failed, '{phase}' as phase, {phase}_at as time, '{former}' as former, "
        f"{former}_at as former_time from fault_moments where {phase}_at is not null"
        for former, phase in (("intended", "injected"), ("injected", "healed"), ("healed", "recovered"))
    )
    times = ", ".join(
        f"min(case when phase = '{phase}' then \"time\" end) as {phase}_at"
        for phase in ("intended", "injected", "healed", "recovered")
    )
    return (
        f"with fault_moments as (select id, max(case when phase = 'failed' then 1 else 0 end) as fault_failed, {times} "
        f'from faults group by id) select id, phase, "time", former, former_time from ({steps}) as steps '
        "where former_time > \"time\" or (former_time is null and phase = 'healed' and fault_failed = 0) "
        'order by id nulls first, "time" nulls first limit 1'
    )


_PHASE: Final = "case {}.phase when 'main' then 0 when 'sentinel' then 1 else 2 end"
"""SQL: the phase as a number, because engines compare numbers faster than texts."""

DOUBTFUL_SLOTS: Final = Table(
    "doubtful_slots",
    """
    select slot from (
        select "index" >> 5 as slot, count(*) as many, bit_or(cast(1 as bigint) << ("index" & 31)) as present
        from ops group by "index" >> 5) as slots
    where bit_count(present) <> many
    """,
)
"""Ranges of 32 indexes that may have duplicates: one bit per index turns millions of indexes into a few rows."""

DOUBTFUL_MOMENTS: Final = Table(
    "doubtful_moments",
    """
    select moment from (
        select call as moment from ops union all select ret from ops where ret is not null) as moments
    group by moment having count(*) > 1
    """,
)
"""The timestamps that occur twice. Usually there are none, so only the timestamps are grouped."""

DOUBTFUL_OPERATIONS: Final = Table(
    "doubtful_operations",
    f"""
    select op, max(twice) as twice, max(other) as other from (
        select op, 1 as twice, 0 as other from (
            select op, count(*) as many, min(sub) as low, max(sub) as high,
                bit_or(case when sub between 0 and 61 then cast(1 as bigint) << sub end) as present
            from effects group by op) as counted
        where many > 1 and (low < 0 or high > 61 or bit_count(present) <> many)
        union all
        select e.op, 0, 1 from effects e left join ops o on e.op = o."index"
        where o."index" is null or e.process <> o.process or e.call <> o.call or e.ret is distinct from o.ret
            or {_PHASE.format("e")} <> {_PHASE.format("o")}) as operations
    group by op
    """,
)
"""Operations with an effect that may occur ``twice``, or that differs from its operation (``other``).

Usually there are none. Both passes over all effects need few columns, and the exact rules then read few effects.
"""

RULES: Final = (
    _row_rule(
        "ops",
        ("index", "call"),
        {
            "no ret": "outcome <> 'info' and ret is null",
            "ret": "outcome = 'info' and ret is not null",
            "backwards": "ret <= call",
        },
        _explain_operation,
    ),
    ValidationRule(
        data="ops",
        views=(DOUBTFUL_SLOTS,),
        sql="""
            select o."index" as "index", count(*) as many from ops o join doubtful_slots d on o."index" >> 5 = d.slot
            group by o."index" having count(*) > 1 order by o."index" nulls first limit 1
            """,
        names=("index",),
        reason=lambda row: f"operation {row['index']} occurs {row['many']} times; an index must identify one operation",
        last=True,
    ),
    ValidationRule(
        data="ops",
        views=(DOUBTFUL_MOMENTS,),
        sql="""
            select moment, min("index") as other, max("index") as "index" from (
                select o."index" as "index", d.moment from ops o join doubtful_moments d on o.call = d.moment
                union all select o."index", d.moment from ops o join doubtful_moments d on o.ret = d.moment) as moments
            group by moment having count(*) > 1 order by moment nulls first limit 1
            """,
        names=("index",),
        reason=lambda row: (
            f"operation {row['index']} has the stamp {row['moment']} ns, and so has operation {row['other']}; no two "
            "calls or returns may have the same stamp"
        ),
    ),
    ValidationRule(
        data="ops",
        sql="""
            select "index", process, call, former, former_call, former_ret from (
                select "index", process, call,
                    lag("index") over (partition by process order by "index" nulls first) as former,
                    lag(call) over (partition by process order by "index" nulls first) as former_call,
                    lag(ret) over (partition by process order by "index" nulls first) as former_ret
                from ops) as pairs
            where former is not null and (former_ret is null or former_ret > call or former_call >= call)
            order by "index" nulls first limit 1
            """,
        names=("index",),
        reason=_explain_process,
    ),
    _row_rule(
        "effects",
        ("op", "sub"),
        {"lowest": f"kind in ('max-write', 'max-read') and value <= {-INFINITY}"},
        lambda row: f"a max register holds a value that is not above {-INFINITY}, which stands for the initial value",
    ),
    ValidationRule(
        data="effects",
        views=(DOUBTFUL_OPERATIONS,),
        sql="""
            select e.op, e.sub, count(*) as many from effects e join doubtful_operations d on e.op = d.op
            where d.twice = 1
            group by e.op, e.sub having count(*) > 1 order by e.op nulls first, e.sub nulls first limit 1
            """,
        names=("op", "sub"),
        reason=lambda row: f"effect {row['sub']} of operation {row['op']} occurs {row['many']} times",
        last=True,
    ),
    ValidationRule(
        data="effects",
        sql=_select_mismatch("left join", 'o."index" is null or'),
        names=("op", "sub"),
        reason=_explain_mismatch,
        when=_AppliesTo.CLOSED,
    ),
    ValidationRule(
        data="effects",
        sql=_select_mismatch("join", ""),  # operations are written after their effects
        names=("op", "sub"),
        reason=_explain_mismatch,
        when=_AppliesTo.OPEN,
    ),
    _row_rule("faults", ("id", "time"), {}, lambda row: str(row["broken"])),
    ValidationRule(data="faults", sql=_select_fault_steps(), names=("id", "phase"), reason=_explain_fault),
    _row_rule(
        "events",
        ("node", "incarnation", "seq"),
        {f"list {name}": f"regexp_extract({name}, '^[-0-9,]*', 0) <> {name}" for name in NODE_LISTS},
        _explain_node_list,
    ),
    _row_rule("replicas", ("node", "key", "position"), {}, lambda row: str(row["broken"])),
)
"""The rules in order. For each table, errors visible in one row come first."""
