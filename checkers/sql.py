"""Idioms of the checks' SQL, by name, each written once in the way that both engines answer alike (``engine.base``).

Columns are given as SQL has them: ``order="call, op, sub"``. Where nulls stand is said here alone.
"""

from typing import Final

from assay.checkers.check import MOST_FINDINGS
from assay.checkers.engine import INFINITY

RETURNED: Final = f"case when e.outcome = 'ok' then coalesce(e.ret, {INFINITY}) else {INFINITY} end"
"""When the operation of an effect ``e`` had surely ended: never, where it is indeterminate."""


def order_by(columns: str) -> str:
    """``order by`` with the place of nulls, which the engines do not agree on unless it is said."""
    return "order by " + ", ".join(f"{column.strip()} nulls first" for column in columns.split(","))


def first_rows(table: str, order: str) -> str:
    """The rows of a table of violations that are explained, to join evidence to."""
    return f"(select * from {table} {order_by(order)} limit {MOST_FINDINGS})"


def greatest_before(value: str, *, by: str, order: str) -> str:
    """The running maximum of ``value`` over all rows strictly before this one: the heart of rule U.

    A frame of rows: equal places must have been folded into one row first.
    """
    return _window(f"max({value})", by, order, "1 preceding")


def sum_so_far(value: str, *, by: str, order: str) -> str:
    """The running sum of ``value`` up to and with this row."""
    return f"cast({_window(f'sum({value})', by, order, 'current row')} as bigint)"


def previous(value: str, *, by: str, order: str) -> str:
    """``value`` of the row before this one; null for the first."""
    return f"lag({value}) over (partition by {by} {order_by(order)})"


def row_number(*, by: str, order: str) -> str:
    """The number of this row, from 1."""
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


def _window(value: str, by: str, order: str, end: str) -> str:
    return f"{value} over (partition by {by} {order_by(order)} rows between unbounded preceding and {end})"
