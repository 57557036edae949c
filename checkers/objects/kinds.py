"""Counts of the kinds of effects in a history, which tell which families apply.

A kind names its object: ``counter-add``, ``set-read``, ``queue-dequeue``. A key with effects whose kind does not name
an object, such as ``add``, is reported.
"""

from collections.abc import Callable
from typing import Final

from assay.checkers.check import Check, Family, PreparedTables, Table, UndecidedKeys, View
from assay.checkers.engine import Engine
from assay.checkers.engine.base import quote_texts, select_nothing
from assay.harness.core.history.data_sets import EFFECTS, KINDS

MOST_NAMED: Final = 5
"""Maximum number of keys or kinds that a reason names."""

KIND_COUNTS: Final = Table("effect_kinds", "select key, kind, count(*) as many from effects group by key, kind")
"""Counts by key and kind. This single scan of all effects tells which families apply."""

NAMELESS: Final = ("add", "remove", "read", "write", "cas")
"""Kinds that do not name their object."""

# The kinds of a log.
_LOG: Final = ("append", "observe", "observe-begin", "observe-end", "end", "start", "seek", "reset", "drained")


def list_kinds(engine: Engine) -> set[str]:
    """Returns the kinds of effects that a history has."""
    return {row["kind"] for row in engine.rows("select kind from effect_kinds group by kind")}


def declare_family(
    name: str,
    checks: tuple[Check, ...],
    views: tuple[View, ...],
    doubts: Callable[[Engine], list[str]] | None = None,
    require: Callable[[Engine], None] | None = None,
) -> Family:
    """Declares a family of objects. ``name``: its name in ``KINDS``, the table of all kinds of effects by family.

    The views are created only for a history with such objects. ``doubts`` is then called, and returns reasons not to
    pass. ``require`` is as in ``PreparedTables``.
    """
    kinds = quote_texts(KINDS[name])
    keys = f"select key from effect_kinds where kind in ({kinds}) group by key"
    return Family(
        name=name,
        checks=checks,
        applies=f"select count(*) as examined from ({keys}) as k",
        prepare=PreparedTables(views, doubts, require),
        by_key=doubts is None or isinstance(doubts, UndecidedKeys),  # another function may read all keys
    )


def define_log_effects(engine: Engine) -> None:
    """Defines the view ``log_effects``, which the views of the log read. It is empty for a history without logs."""
    rows = engine.rows(f"select count(*) as total from effect_kinds where kind in ({quote_texts(_LOG)})")
    engine.view("log_effects", select_nothing(EFFECTS) if rows[0]["total"] == 0 else "select * from effects")


def describe_nameless_kinds(engine: Engine) -> list[str]:
    """Returns at most one reason: no family judges keys with effects whose kind does not name an object."""
    keys = f"select key from effect_kinds where kind in ({quote_texts(NAMELESS)}) group by key"
    rows = engine.rows(f"{keys} order by key nulls first limit {MOST_NAMED}")
    if not rows:
        return []
    total = int(engine.rows(f"select count(*) as keys from ({keys}) as nameless")[0]["keys"])
    more = f" and {total - len(rows)} other keys have" if total > len(rows) else " has" if total == 1 else " have"
    return [
        f"{', '.join(str(row['key']) for row in rows)}{more} effects of a kind that does not name its object (add, "
        "remove, read, write or cas); no check reads them: record counter-add, set-read, register-write and so on"
    ]
