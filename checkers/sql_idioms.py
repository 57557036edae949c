"""Idioms of the checks' SQL, written so that all engines agree (``engine.base``).

Columns are given as in SQL: ``order="call, op, sub"``. This module alone decides the order of nulls.

- For a falling order of ``x``, sort by ``-1 - x``, which cannot overflow.
- ``x >> 1`` is half of a whole number, because the engines disagree on the type of ``x / 2``.
"""

from typing import Final

from assay.checkers.engine import INFINITY
from assay.checkers.judging.verdict import MOST_FINDINGS

RETURNED: Final = f"case when e.outcome = 'ok' then coalesce(e.ret, {INFINITY}) else {INFINITY} end"
"""SQL: the time by which the operation of an effect ``e`` had surely ended. It is infinite for an unknown outcome."""

MAY_HAVE_BEGUN: Final = """
    max(case when phase = 'injected' then 1 else 0 end) = 1
    or max(case when phase = 'failed' and coalesce(stage, '') in ('trigger', 'target') then 1 else 0 end) = 0
"""
"""SQL for rows of ``faults`` grouped by id: excludes faults whose trigger never came, and faults without a target.

Such a fault excuses nothing.
"""
HAS_BEGUN: Final = "(phase <> 'intended' and (phase <> 'failed' or coalesce(stage, '') not in ('trigger', 'target')))"
"""Matches rows of ``faults`` that show that the fault's injection began."""
STRUCK: Final = "(phase = 'injected' or (phase = 'failed' and coalesce(stage, '') not in ('trigger', 'target')))"
"""Matches rows of ``faults`` that name the targets that the fault struck, or may have struck."""
INJECTED: Final = "(phase = 'injected' or (phase = 'failed' and coalesce(stage, '') in ('inject', 'hindered')))"
"""Matches rows of ``faults`` written at the end of an injection. A failed injection may have done half of its work."""
TARGETS_ZOOKEEPER: Final = """regexp_extract(targets, '"zk[0-9]+"', 0) <> ''"""
"""Matches rows of ``faults`` that have a node of ZooKeeper (``zk1``, ``zk2``, ...) among the targets."""
EARLIEST_BEGIN: Final = "coalesce(min(not_before), min(time))"
"""SQL for rows of ``faults`` grouped by id: the earliest time at which the fault may have begun.

``min(time)`` alone is too early, because a run records all intended faults when it begins.
"""

MAX_MS: Final = 2**42
"""Over a hundred years. Longer times, such as the setting "for ever", are cut to this limit, so that sums of times fit
into 64 bits.
"""

ROWS_BEFORE: Final = "rows between unbounded preceding and 1 preceding"
"""Window frame: all rows before the current row."""
ROWS_SO_FAR: Final = "rows between unbounded preceding and current row"
"""Window frame: all rows up to and including the current row."""
ALL_ROWS: Final = "rows between unbounded preceding and unbounded following"
"""Window frame: all rows of the partition."""


def order_by(columns: str) -> str:
    """Returns ``order by`` with ``nulls first``, because the engines have different defaults."""
    return "order by " + ", ".join(f"{column.strip()} nulls first" for column in columns.split(","))


def select_first(table: str, order: str, *, also: str = "") -> str:
    """Returns SQL: the first rows of a table of violations. ``also`` adds columns: ``op as poll_op``."""
    columns = f"*, {also}" if also else "*"
    return f"select {columns} from {table} {order_by(order)} limit {MOST_FINDINGS}"


def first_rows_subquery(table: str, order: str) -> str:
    """Returns the SQL of ``select_first`` as a subquery, for joins with evidence."""
    return f"({select_first(table, order)})"


def greatest_before(value: str, *, by: str, order: str) -> str:
    """Returns the running maximum of ``value`` over all rows strictly before the current row.

    Rule U uses it over places in order: no operation may have a lower place than an operation that returned before its
    call. The frame counts rows, so operations at equal places must first be grouped into one row.
    """
    return _window(f"max({value})", by, order, ROWS_BEFORE)


def is_not_next(position: str, former: str) -> str:
    """Returns SQL for ``position <> former + 1`` that cannot overflow 64 bits."""
    return f"case when {former} < {INFINITY} then {position} <> {former} + 1 else {former} = {INFINITY} end"


LARGE: Final = "decimal(38, 0)"
"""The type of a sum of values that may each fill 64 bits."""


def cast_large(value: str) -> str:
    """Returns SQL that casts a value of 64 bits. Sums of the result have the type ``LARGE``."""
    return f"cast({value} as decimal(19, 0))"


def sum_so_far(value: str, *, by: str, order: str, kind: str = "bigint") -> str:
    """Returns the running sum of ``value`` up to and including this row."""
    return f"cast({_window(f'sum({value})', by, order, ROWS_SO_FAR)} as {kind})"


def previous(value: str, *, by: str, order: str) -> str:
    """Returns ``value`` of the previous row; null for the first row."""
    return f"lag({value}) over (partition by {by} {order_by(order)})"


def milliseconds(setting: str) -> str:
    """Returns SQL for a time setting in milliseconds, which may be any number but not null, limited to ``MAX_MS``."""
    return f"least({setting}, {MAX_MS})"


def nanoseconds(timestamp: str) -> str:
    """Returns SQL that converts milliseconds to nanoseconds. The argument may be any number but not null."""
    return f"1000000 * greatest({milliseconds(timestamp)}, -{MAX_MS})"


def row_number(*, by: str, order: str) -> str:
    return f"row_number() over (partition by {by} {order_by(order)})"


def total_of(value: str) -> str:
    """Returns a sum as a whole number; 0 if there are no rows."""
    return f"cast(coalesce(sum({value}), 0) as bigint)"


def select_late_calls(places: str, place: str) -> str:
    """Returns SQL: the late calls by rule U (:func:`greatest_before`). A late call followed a return at a higher place.

    ``places`` has one row per place, with ``key``, the columns of ``place``, ``last_call`` and ``first_ret``. The
    result has one row per late call: ``before`` (its time), ``overtaken`` (the number of higher places with an earlier
    return) and ``first_ret`` (the earliest of these returns).
    """
    return f"""
        select key, before, min(first_ret) as first_ret, count(*) as overtaken from (
            select key, {place}, first_ret, {greatest_before("last_call", by="key", order=place)} as before
            from {places}) as ordered
        where before > first_ret group by key, before
        """


EARLIEST: Final = "earliest, earliest_op"
"""Columns of :func:`select_nearest_pairs`: the time of the first contradiction, and the operation that showed it."""


def select_nearest_pairs(statements: str, by: str, *, carry: str = "", known_first: bool = False) -> str:
    """Returns SQL: for each group of ``statements``, the two contradicting statements that are nearest in time.

    ``statements`` is SQL for rows with the columns of ``by``, ``side``, ``moment`` (a known time), ``op`` and the
    columns of ``carry``, which the result repeats. Two statements contradict each other if their sides differ.

    - Ties go to the earliest pair, then to the pair with the lowest operation index.
    - ``known_first``: side 0 states a fact that holds from its moment on, and side 1 denies it. Pairs with side 0 first
      are preferred, even if they are farther apart.
    - The result has ``by``, and ``moment``, ``op``, ``side`` and ``carry`` of the later statement. Columns with the
      prefix ``former_`` belong to the earlier statement.
    - ``contradicted_at`` is the moment of the earlier statement of the first pair. ``earliest`` and ``earliest_op`` are
      moment and operation of the later statement of the first pair.
    """
    names = ["op", "side", "moment", *(name.strip() for name in carry.split(",") if name.strip())]
    order = "moment, back, op, side"  # with `known_first`, `back` puts side 1 before side 0 at equal moments
    former = ", ".join(f"{previous(name, by=by, order=order)} as former_{name}" for name in names)
    both = ", ".join((*names, *(f"former_{name}" for name in names)))
    falls = "case when former_side < side then 0 else 1 end" if known_first else "0"  # 0: the preferred pairs

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
                    from (select *, {"0 - side" if known_first else "0"} as back
                        from ({statements}) as stated) as placed
                    ) as neighbours
                where former_side <> side) as pairs) as ranked
        where rank = 1
        """


def select_last_before(found: str, rows: str, place: tuple[str, str]) -> str:
    """Returns SQL: for each row of :func:`select_late_calls`, the late call and the last earlier return at a higher
    place.

    ``rows`` has ``key``, ``op``, ``call``, ``ret`` and the two columns of ``place``. In the result, these two columns
    are the place of the operation that had returned. Columns with the prefix ``late_`` belong to the late call.
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
r"""SQL for ``\z``, the end of the text in a regular expression.

``chr(92)`` avoids a backslash in a literal, which engines read in different ways. ``$`` is not used, because in some
engines it also matches before a last line break.
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
    """Returns SQL for the number of the incarnation: 2 for ``orders#2``, and 1 for ``orders``."""
    number = f"regexp_extract({topic}, concat('#([0-9]+)', {_END}), 1)"
    return f"cast(coalesce(nullif({number}, ''), '1') as bigint)"


def strip_end(text: str, pattern: str) -> str:
    """Returns SQL for the text without a match of the pattern at its end."""
    return f"regexp_replace({text}, concat('{pattern}', {_END}), '')"


def _replace_first(text: str, pattern: str, by: str) -> str:
    """Returns SQL that replaces the first match. ``regexp_replace`` replaces one match or all, depending on the engine.

    The pattern must match every copy of the matched text, because ``instr`` finds the first copy.
    """
    match = f"regexp_extract({text}, '{pattern}', 0)"
    place = f"instr({text}, {match})"
    rest = f"substr({text}, {place} + length({match}))"
    return f"case when {match} <> '' then concat(substr({text}, 1, {place} - 1), '{by}', {rest}) else {text} end"


def list_contains(brokers: str, broker: str) -> str:
    """Returns SQL: whether a comma-separated list has this number."""
    return f"concat(',', {brokers}, ',') like concat('%,', cast({broker} as string), ',%')"


def count_in_list(brokers: str) -> str:
    """Returns SQL: the number of entries of a comma-separated list."""
    return f"case when {brokers} = '' then 0 else length({brokers}) - length(replace({brokers}, ',', '')) + 1 end"


def list_covers(brokers: str, others: str) -> str:
    """Returns SQL: whether the first list has every number of the second list.

    The first list becomes a regular expression. A text that is no list of numbers counts as an empty list, because its
    expression could match anything or run for ever. The expression does not end with an anchor, because repeated
    numbers would then cause exponential backtracking.
    """
    numbers = f"case when regexp_extract({brokers}, '^[-0-9,]*', 0) = {brokers} then {brokers} else '' end"
    apart = f"concat(',', replace({others}, ',', ',,'), ',')"
    pattern = f"concat('^(,(', replace({numbers}, ',', '|'), '),)*')"
    return f"regexp_extract({apart}, {pattern}, 0) = {apart}"


def _window(value: str, by: str, order: str, frame: str) -> str:
    return f"{value} over (partition by {by} {order_by(order)} {frame})"
