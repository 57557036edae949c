"""Which kinds of effects a history has, of which objects, and why some of its keys are judged by no family.

A kind names its object: ``counter-add``, ``set-read``, ``queue-dequeue``. Keys with kinds that do not are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from assay.checkers.check import Check, Family, PreparedTables, Table, UndecidedKeys, View
from assay.checkers.engine import Engine
from assay.checkers.engine.base import select_nothing
from assay.harness.core.history.data_sets import EFFECTS
from assay.harness.core.history.data_sets import KINDS as OF_FORMAT

if TYPE_CHECKING:
    pass

MOST_NAMED: Final = 5

KINDS: Final = Table("effect_kinds", "select key, kind, count(*) as many from effects group by key, kind")
"""A single scan, so that families that do not apply cost none."""

_NAMELESS: Final = ("add", "remove", "read", "write", "cas")
"""Kinds that do not name their object."""

_LOG: Final = "'append', 'observe', 'observe-begin', 'observe-end', 'end', 'start', 'seek', 'reset', 'drained'"


def present(engine: Engine) -> set[str]:
    """The kinds of effects that a history has."""
    return {row["kind"] for row in engine.rows("select kind from effect_kinds group by kind")}


def among(kinds: tuple[str, ...]) -> str:
    """SQL of a list of kinds."""
    return ", ".join(f"'{kind}'" for kind in kinds)


def applies(family: str) -> str:
    """SQL of the number of keys that are objects of this family."""
    kinds = among(OF_FORMAT[family])
    return f"select count(*) as examined from (select key from effect_kinds where kind in ({kinds}) group by key) as k"


def family(
    name: str,
    checks: tuple[Check, ...],
    views: tuple[View, ...],
    doubts: Callable[[Engine], list[str]] | None = None,
) -> Family:
    """A family of objects; its views are made when a history is known to have some. ``doubts``: once they are there."""

    by_key = doubts is None or isinstance(doubts, UndecidedKeys)  # anything else may look at all keys
    return Family(name=name, checks=checks, applies=applies(name), prepare=PreparedTables(views, doubts), by_key=by_key)


def log_effects(engine: Engine) -> None:
    """Makes ``log_effects``. The log's views look at them some dozen times, also where there is nothing to see."""
    rows = engine.rows(f"select count(*) as total from effect_kinds where kind in ({_LOG})")
    engine.view("log_effects", select_nothing(EFFECTS) if rows[0]["total"] == 0 else "select * from effects")


def doubts(engine: Engine) -> list[str]:
    """Returns why some keys are judged by no family, in words; empty if all are."""
    return _named(
        engine,
        f"select key from effect_kinds where kind in ({among(_NAMELESS)}) group by key",
        "effects of a kind that does not name its object (add, remove, read, write or cas); no check reads them: "
        "record counter-add, set-read, register-write and so on",
    )


def _named(engine: Engine, keys: str, reason: str) -> list[str]:
    rows = engine.rows(f"select key from ({keys}) as doubtful order by key nulls first limit {MOST_NAMED}")
    if not rows:
        return []
    total = int(engine.rows(f"select count(*) as keys from ({keys}) as doubtful")[0]["keys"])
    more = f" and {total - len(rows)} other keys have" if total > len(rows) else " has" if total == 1 else " have"
    return [f"{', '.join(str(row['key']) for row in rows)}{more} {reason}"]
