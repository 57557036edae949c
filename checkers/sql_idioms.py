"""Idioms of the checks' SQL, by name, each written once in the way that all engines answer alike (``engine.base``).

Columns are given as SQL has them: ``order="call, op, sub"``. Where nulls stand is said here alone.
"""

from typing import Final

from assay.checkers.check import MOST_FINDINGS
from assay.checkers.engine import INFINITY

RETURNED: Final = f"case when e.outcome = 'ok' then coalesce(e.ret, {INFINITY}) else {INFINITY} end"
"""When the operation of an effect ``e`` had surely ended: never, where it is indeterminate."""


MAY_HAVE_BEGUN: Final = """
    max(case when phase = 'injected' then 1 else 0 end) = 1
    or max(case when phase = 'failed' and coalesce(stage, '') in ('trigger', 'target') then 1 else 0 end) = 0
"""
"""Of rows of ``faults`` by id: not one that waited for its trigger in vain, or found no target. That excuses no one."""
BEGUN: Final = "(phase <> 'intended' and (phase <> 'failed' or coalesce(stage, '') not in ('trigger', 'target')))"
"""Of a row of ``faults``: it says that the fault began, whatever came of that."""
INJECTED: Final = "(phase = 'injected' or (phase = 'failed' and coalesce(stage, '') in ('inject', 'hindered')))"
"""Of a row of ``faults``: its injection had come to an end, also one that failed: it may have done half of its work."""
OF_ZOOKEEPER: Final = """(targets like '%"zk_"%' or targets like '%"zk__"%')"""
"""Of the same: a node of ZooKeeper is among the targets, ``zk1``, ``zk2``, ..., whatever the fault is called."""
MAY_BEGIN: Final = "coalesce(min(not_before), min(time))"
"""Of the same: when it may begin at the earliest. All that is meant to happen is written down as a run begins."""

MOST_MS: Final = 2**42
"""Over a hundred years. Longer times, such as the setting "for ever", are cut to it, so that no sum of times leaves 64
bits."""

BEFORE: Final = "rows between unbounded preceding and 1 preceding"
"""The frame of all rows before this one."""
SO_FAR: Final = "rows between unbounded preceding and current row"
"""Of those and this one."""
WHOLE: Final = "rows between unbounded preceding and unbounded following"
"""Of all rows of the group."""


def order_by(columns: str) -> str:
    """``order by`` with the place of nulls, which the engines do not agree on unless it is said."""
    return "order by " + ", ".join(f"{column.strip()} nulls first" for column in columns.split(","))


def first_of(table: str, order: str, *, also: str = "") -> str:
    """The rows of a table of violations that are explained. ``also``: columns that are needed by another name, too."""
    columns = f"*, {also}" if also else "*"
    return f"select {columns} from {table} {order_by(order)} limit {MOST_FINDINGS}"


def first_rows(table: str, order: str) -> str:
    """The same, to join evidence to."""
    return f"({first_of(table, order)})"


def greatest_before(value: str, *, by: str, order: str) -> str:
    """The running maximum of ``value`` over all rows strictly before this one: the heart of rule U.

    A frame of rows: equal places must have been folded into one row first.
    """
    return _window(f"max({value})", by, order, BEFORE)


def not_next(position: str, former: str) -> str:
    """Is the first another number than the one after the second? Both may be any of 64 bits."""
    return f"case when {former} < {INFINITY} then {position} <> {former} + 1 else {former} = {INFINITY} end"


LARGE: Final = "decimal(38, 0)"
"""The type of a sum of values that may each fill 64 bits."""


def large(value: str) -> str:
    """A value of 64 bits whose sums are ``LARGE``."""
    return f"cast({value} as decimal(19, 0))"


def sum_so_far(value: str, *, by: str, order: str, kind: str = "bigint") -> str:
    """The running sum of ``value`` up to and with this row."""
    return f"cast({_window(f'sum({value})', by, order, SO_FAR)} as {kind})"


def previous(value: str, *, by: str, order: str) -> str:
    """``value`` of the row before this one; null for the first."""
    return f"lag({value}) over (partition by {by} {order_by(order)})"


def milliseconds(setting: str) -> str:
    """A setting of time, which may be any number, but null."""
    return f"least({setting}, {MOST_MS})"


def nanoseconds(timestamp: str) -> str:
    """A time in milliseconds, which may be any number, but null, in nanoseconds."""
    return f"1000000 * greatest({milliseconds(timestamp)}, -{MOST_MS})"


def row_number(*, by: str, order: str) -> str:
    return f"row_number() over (partition by {by} {order_by(order)})"


def total_of(value: str) -> str:
    """A sum as a whole number, 0 over no rows."""
    return f"cast(coalesce(sum({value}), 0) as bigint)"


def late_calls(places: str, place: str) -> str:
    """Rule U over folded ``places`` (``key``, the columns of ``place``, ``last_call``, ``first_ret``).

    One row per late call ``before``: it came after an operation at a higher place had returned. ``overtaken``: how many
    places it came too late for; ``first_ret``: the earliest return among them.
    """
    return f"""
        select key, before, min(first_ret) as first_ret, count(*) as overtaken from (
            select key, {place}, first_ret, {greatest_before("last_call", by="key", order=place)} as before
            from {places}) as ordered
        where before > first_ret group by key, before
        """


def nearest_pairs(statements: str, by: str, *, carry: str = "", rising: bool = False) -> str:
    """Of each group of ``statements``, the two that contradict each other and are nearest in time.

    ``statements`` is SQL for rows with the columns of ``by``, ``side``, ``moment`` (a known time), ``op`` and those of
    ``carry``; two contradict each other if their sides differ. The nearest two are neighbours in time. Equally near are
    the earliest ones, then those of the least operations. ``rising``: side 0 says what was so from its moment on, side
    1 denies it, and pairs in this order come first, however far apart. Gives ``by``, ``moment``, ``op``, ``side`` and
    ``carry`` of the later one, and of the other as ``former_moment`` and so on; and ``onset``, since when there were
    such pairs.
    """
    names = ["op", "side", "moment", *(name.strip() for name in carry.split(",") if name.strip())]
    order = "moment, back, op, side"
    former = ", ".join(f"{previous(name, by=by, order=order)} as former_{name}" for name in names)
    both = ", ".join((*names, *(f"former_{name}" for name in names)))
    falls = "case when former_side < side then 0 else 1 end" if rising else "0"
    return f"""
        select {by}, {both}, onset from (
            select {by}, {both}, min(former_moment) over (partition by {by}, falls {order_by("moment, op")}
                    {WHOLE}) as onset,
                {row_number(by=by, order="falls, gap, moment, op, former_op, side, former_side")} as turn
            from (
                select {by}, {both}, moment - former_moment as gap, {falls} as falls from (
                    select {by}, {", ".join(names)}, {former}
                    from (select *, {"0 - side" if rising else "0"} as back from ({statements}) as stated) as placed
                    ) as neighbours
                where former_side <> side) as pairs) as ranked
        where turn = 1
        """


def last_before(found: str, rows: str, place: tuple[str, str]) -> str:
    """Evidence for rows of :func:`late_calls`: the late call, and the last return before it at a higher place.

    ``rows`` has ``key``, ``op``, ``call``, ``ret`` and the two columns of ``place``, which are those of the
    return's operation; ``late_...`` are those of the call's.
    """
    value, turn = place
    return f"""
        select key, before, overtaken, first_op, {value}, {turn}, late_op, late_{value}, late_{turn} from (
            select f.key, f.before, f.overtaken, a.op as first_op, a.{value} as {value},
                a.{turn} as {turn}, b.op as late_op, b.{value} as late_{value}, b.{turn} as late_{turn},
                {row_number(by="f.key, f.before", order="a.back, a.op, b.op")} as number
            from {found} f join {rows} b on b.key = f.key and b.call = f.before
                join (select key, op, ret, 0 - ret as back, {value}, {turn} from {rows}) a
                    on a.key = f.key and a.ret < f.before
                    and (b.{value} < a.{value} or (b.{value} = a.{value} and b.{turn} < a.{turn}))) as pairs
        where number = 1 {order_by("key, before")}
        """


def _window(value: str, by: str, order: str, frame: str) -> str:
    return f"{value} over (partition by {by} {order_by(order)} {frame})"
