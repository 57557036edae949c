"""Idioms of the checks' SQL, written so that all engines agree (``engine.base``).

Columns are given as SQL has them: ``order="call, op, sub"``. Only this module decides where nulls stand.

- A falling order of ``x`` is the rising order of ``-1 - x``, which cannot overflow.
- ``x >> 1`` is half of a whole number, because the engines disagree on the type of ``x / 2``.
"""

from typing import Final

from assay.checkers.engine import INFINITY
from assay.checkers.judging.verdict import MOST_FINDINGS

RETURNED: Final = f"case when e.outcome = 'ok' then coalesce(e.ret, {INFINITY}) else {INFINITY} end"
"""SQL: when the operation of an effect ``e`` had surely ended. It is infinite if the outcome is unknown."""

MAY_HAVE_BEGUN: Final = """
    max(case when phase = 'injected' then 1 else 0 end) = 1
    or max(case when phase = 'failed' and coalesce(stage, '') in ('trigger', 'target') then 1 else 0 end) = 0
"""
"""SQL for rows of ``faults`` grouped by id: excludes faults whose trigger never came or that found no target. Such a
fault excuses nothing.
"""
HAS_BEGUN: Final = "(phase <> 'intended' and (phase <> 'failed' or coalesce(stage, '') not in ('trigger', 'target')))"
"""Matches rows of ``faults`` that say that the fault began, whatever came of it."""
STRUCK: Final = "(phase = 'injected' or (phase = 'failed' and coalesce(stage, '') not in ('trigger', 'target')))"
"""Matches rows of ``faults`` that name the targets that the fault struck, or may have struck."""
INJECTED: Final = "(phase = 'injected' or (phase = 'failed' and coalesce(stage, '') in ('inject', 'hindered')))"
"""Matches rows of ``faults`` written when the injection had ended. A failed one may have done half of its work."""
TARGETS_ZOOKEEPER: Final = """regexp_extract(targets, '"zk[0-9]+"', 0) <> ''"""
"""Matches rows of ``faults`` with a node of ZooKeeper (``zk1``, ``zk2``, ...) among the targets, whatever the fault."""
EARLIEST_BEGIN: Final = "coalesce(min(not_before), min(time))"
"""SQL for rows of ``faults`` grouped by id: the earliest possible begin. ``min(time)`` alone is too early, because a
run writes all intentions as it begins.
"""

MAX_MS: Final = 2**42
"""Over a hundred years. Longer times, such as the setting "for ever", are cut to it, so that sums of times fit into 64
bits.
"""

ROWS_BEFORE: Final = "rows between unbounded preceding and 1 preceding"
"""The frame of all rows before this one."""
ROWS_SO_FAR: Final = "rows between unbounded preceding and current row"
"""The frame of all rows before this one, and this one."""
ALL_ROWS: Final = "rows between unbounded preceding and unbounded following"
"""The frame of all rows of the group."""


def order_by(columns: str) -> str:
    """Returns ``order by`` with the place of nulls, on which the engines otherwise disagree."""
    return "order by " + ", ".join(f"{column.strip()} nulls first" for column in columns.split(","))


def select_first(table: str, order: str, *, also: str = "") -> str:
    """Returns SQL: the rows of a table of violations that are explained. ``also`` adds columns: ``op as poll_op``."""
    columns = f"*, {also}" if also else "*"
    return f"select {columns} from {table} {order_by(order)} limit {MOST_FINDINGS}"


def first_rows_subquery(table: str, order: str) -> str:
    """Returns the SQL of ``select_first`` as a subquery, to join evidence to."""
    return f"({select_first(table, order)})"


def greatest_before(value: str, *, by: str, order: str) -> str:
    """Returns the running maximum of ``value`` over all rows strictly before this one.

    Over places in order, it is the heart of rule U: no operation may have a lower place than one that had returned
    before its call. The frame counts rows, so equal places must have been folded into one row first.
    """
    return _window(f"max({value})", by, order, ROWS_BEFORE)


def is_not_next(position: str, former: str) -> str:
    """Returns SQL for ``position <> former + 1``, without overflow for any number of 64 bits."""
    return f"case when {former} < {INFINITY} then {position} <> {former} + 1 else {former} = {INFINITY} end"


LARGE: Final = "decimal(38, 0)"
"""The type of a sum of values that may each fill 64 bits."""


def cast_large(value: str) -> str:
    """Returns a value of 64 bits, cast so that its sums are ``LARGE``."""
    return f"cast({value} as decimal(19, 0))"


def sum_so_far(value: str, *, by: str, order: str, kind: str = "bigint") -> str:
    """Returns the running sum of ``value`` up to and including this row."""
    return f"cast({_window(f'sum({value})', by, order, ROWS_SO_FAR)} as {kind})"


def previous(value: str, *, by: str, order: str) -> str:
    """Returns ``value`` of the row before this one; null for the first."""
    return f"lag({value}) over (partition by {by} {order_by(order)})"


def milliseconds(setting: str) -> str:
    """Returns a time setting, which may be any number but not null, limited to ``MAX_MS``."""
    return f"least({setting}, {MAX_MS})"


def nanoseconds(timestamp: str) -> str:
    """Returns a time in milliseconds, which may be any number but not null, in nanoseconds."""
    return f"1000000 * greatest({milliseconds(timestamp)}, -{MAX_MS})"


def row_number(*, by: str, order: str) -> str:
    return f"row_number() over (partition by {by} {order_by(order)})"


def total_of(value: str) -> str:
    """Returns a sum as a whole number, 0 over no rows."""
    return f"cast(coalesce(sum({value}), 0) as bigint)"


def select_late_calls(places: str, place: str) -> str:
    """Returns SQL: rule U over folded ``places`` (``key``, the columns of ``place``, ``last_call``, ``first_ret``).

    There is one row per late call, whose time is ``before``: it came after operations at higher places had returned.
    ``overtaken`` is the number of these places, ``first_ret`` the earliest of these returns.
    """
    return f"""
        select key, before, min(first_ret) as first_ret, count(*) as overtaken from (
            select key, {place}, first_ret, {greatest_before("last_call", by="key", order=place)} as before
            from {places}) as ordered
        where before > first_ret group by key, before
        """


EARLIEST: Final = "earliest, earliest_op"
"""Columns of :func:`select_nearest_pairs`. Evidence that has them says when a contradiction occurred first."""


def select_nearest_pairs(statements: str, by: str, *, carry: str = "", rising: bool = False) -> str:
    """Returns SQL: for each group of ``statements``, the two that contradict each other and are nearest in time.

    ``statements`` is SQL for rows with the columns of ``by``, ``side``, ``moment`` (a known time), ``op`` and the
    columns of ``carry``, which the result repeats. Two statements contradict each other if their sides differ.

    - The nearest two are neighbours in time. Ties go to the earliest ones, then to the least operations.
    - ``rising``: side 0 states a fact that holds from its moment on, side 1 denies it. Pairs with side 0 first are
      preferred, however far apart.
    - The result has ``by``, ``moment``, ``op``, ``side`` and ``carry`` of the later statement, and of the other one as
      ``former_moment`` and so on. ``contradicted_at`` is the time since which there were such pairs.
    - ``earliest`` and ``earliest_op`` are moment and operation of the later statement of the first pair.
    """
    names = ["op", "side", "moment", *(name.strip() for name in carry.split(",") if name.strip())]
    order = "moment, back, op, side"
    former = ", ".join(f"{previous(name, by=by, order=order)} as former_{name}" for name in names)
    both = ", ".join((*names, *(f"former_{name}" for name in names)))
    falls = "case when former_side < side then 0 else 1 end" if rising else "0"

    def first_of(column: str) -> str:
        return _window(f"first_value({column})", f"{by}, falls", "moment, former_moment, op, former_op", ALL_ROWS)

    return f"""
        select {by}, {both}, contradicted_at, {EARLIEST} from (
            select {by}, {both}, min(former_moment) over (partition by {by}, falls {order_by("moment, op")}
                    {ALL_ROWS}) as contradicted_at,
                {first_of("moment")} as earliest, {first_of("op")} as earliest_op,
                {row_number(by=by, order="falls, gap, moment, op, former_op, side, former_side")} as rank
            from (
                select {by}, {both}, moment - former_moment as gap, {falls} as falls from (
                    select {by}, {", ".join(names)}, {former}
                    from (select *, {"0 - side" if rising else "0"} as back from ({statements}) as stated) as placed
                    ) as neighbours
                where former_side <> side) as pairs) as ranked
        where rank = 1
        """


def select_last_before(found: str, rows: str, place: tuple[str, str]) -> str:
    """Returns SQL: for rows of :func:`select_late_calls`, the late call and the last return before it at a higher
    place.

    ``rows`` has ``key``, ``op``, ``call``, ``ret`` and the two columns of ``place``. In the result, these two columns
    are the place of the operation that had returned; with the prefix ``late_``, that of the late call.
    """
    value, tie = place
    return f"""
        select key, before, overtaken, first_op, {value}, {tie}, late_op, late_{value}, late_{tie} from (
            select f.key, f.before, f.overtaken, a.op as first_op, a.{value} as {value},
                a.{tie} as {tie}, b.op as late_op, b.{value} as late_{value}, b.{tie} as late_{tie},
                {row_number(by="f.key, f.before", order="a.back, a.op, b.op")} as rank
            from {found} f join {rows} b on b.key = f.key and b.call = f.before
                join (select key, op, ret, 0 - ret as back, {value}, {tie} from {rows}) a
                    on a.key = f.key and a.ret < f.before
                    and (b.{value} < a.{value} or (b.{value} = a.{value} and b.{tie} < a.{tie}))) as pairs
        where rank = 1 {order_by("key, before")}
        """


_END: Final = "concat(chr(92), 'z')"
"""SQL for the end mark of a regular expression.

It is built because engines read a backslash in a literal differently. ``$`` is no end mark, because in some engines it
also matches before a last line break.
"""


def extract_topic(key: str) -> str:
    """Returns SQL that maps the column ``key`` with ``orders#2-0`` to ``orders#2``."""
    return strip_end(key, "-[0-9]+")


def strip_incarnation(key: str) -> str:
    """Returns SQL that maps ``orders#2`` to ``orders`` and ``orders#2-0`` to ``orders-0``: the name used in the
    cluster."""
    return _replace_first(key, "#[0-9]+", "")


def strip_partition_incarnation(key: str) -> str:
    """Returns SQL that maps ``orders#2-0`` to ``orders-0``, which is equal for all incarnations of a topic."""
    return _replace_first(key, "#[0-9]+-", "-")


def strip_topic_incarnation(topic: str) -> str:
    """Returns SQL that maps ``orders#2`` to ``orders``."""
    return strip_end(topic, "#[0-9]+")


def extract_incarnation(topic: str) -> str:
    """Returns SQL for the incarnation's number: 2 of ``orders#2``, 1 of ``orders``."""
    number = f"regexp_extract({topic}, concat('#([0-9]+)', {_END}), 1)"
    return f"cast(coalesce(nullif({number}, ''), '1') as bigint)"


def strip_end(text: str, pattern: str) -> str:
    """Returns SQL for the text without a match of the pattern at its end."""
    return f"regexp_replace({text}, concat('{pattern}', {_END}), '')"


def _replace_first(text: str, pattern: str, by: str) -> str:
    """Returns SQL that replaces the first match. ``regexp_replace`` replaces one or all, depending on the engine.

    The pattern must match each copy of a matched text, so that ``instr`` finds the first match.
    """
    match = f"regexp_extract({text}, '{pattern}', 0)"
    place = f"instr({text}, {match})"
    rest = f"substr({text}, {place} + length({match}))"
    return f"case when {match} <> '' then concat(substr({text}, 1, {place} - 1), '{by}', {rest}) else {text} end"


def list_contains(brokers: str, broker: str) -> str:
    """Returns SQL: is this number in a comma-separated list?"""
    return f"concat(',', {brokers}, ',') like concat('%,', cast({broker} as string), ',%')"


def count_in_list(brokers: str) -> str:
    """Returns SQL: how many numbers such a list has."""
    return f"case when {brokers} = '' then 0 else length({brokers}) - length(replace({brokers}, ',', '')) + 1 end"


def list_covers(brokers: str, others: str) -> str:
    """Returns SQL: is each number of the second list in the first?

    The first list becomes a regular expression. A text that is no list of numbers counts as an empty list, because it
    could match anything, or take for ever. The expression has no end mark, because numbers that occur twice would then
    take exponential time.
    """
    numbers = f"case when regexp_extract({brokers}, '^[-0-9,]*', 0) = {brokers} then {brokers} else '' end"
    apart = f"concat(',', replace({others}, ',', ',,'), ',')"
    pattern = f"concat('^(,(', replace({numbers}, ',', '|'), '),)*')"
    return f"regexp_extract({apart}, {pattern}, 0) = {apart}"


def _window(value: str, by: str, order: str, frame: str) -> str:
    return f"{value} over (partition by {by} {order_by(order)} {frame})"
