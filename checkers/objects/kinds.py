"""Which kind of object a key is, where effects of one kind are recorded of several: told, or proved, never guessed.

Counters, sets and queues all record ``add``; a ``read`` may be that of a counter, a set or a register; a ``write`` that
of a register or a max register. What a key's own kinds leave open, the contract's ``family`` decides for the whole
history. Keys of which neither tells are judged by no family, and the verdict says so. In order:

- ``add`` and ``observe`` without any trace of a log: a queue, as nothing else records both. A key of which there is
  only ``observe`` is a log, unless the contract says queue.
- ``remove``: a set. ``write`` or ``cas``: a register, unless the contract says max register.
- ``add``, with reads or not: what the contract says, counter, set or queue.
- only ``read``: what the contract says; without it a register, unless another key of the history is open.

Effects that name one object alone (``append``, ``commit``, ``acquire``...) take no part in this.
"""

from __future__ import annotations

from typing import Final

from assay.checkers.check import View
from assay.checkers.engine import Engine
from assay.checkers.engine.base import empty
from assay.harness.core.history import EFFECTS

MOST_TOLD: Final = 5

KINDS: Final = View(
    "effect_kinds",
    "select key, kind, count(*) as many from effects group by key, kind",
    keep=True,
)
"""One scan, so that families which a history has nothing of cost none."""

_LOG: Final = "'append', 'observe-begin', 'observe-end', 'end', 'start', 'seek', 'reset'"


def _has(name: str, *kinds: str) -> str:
    among = ", ".join(f"'{kind}'" for kind in kinds)
    return f"max(case when kind in ({among}) then 1 else 0 end) as {name}"


SHAPES: Final = View(
    "object_shapes",
    f"""
    select key, has_add, has_remove, has_read, has_write, has_cas, has_log,
        case when has_log = 0 then has_observe else 0 end as has_take
    from (
        select key, {_has("has_add", "add")}, {_has("has_remove", "remove")}, {_has("has_read", "read")},
            {_has("has_write", "write", "cas")}, {_has("has_cas", "cas")}, {_has("has_observe", "observe")},
            max(case when kind in ({_LOG}) then 1 else 0 end) as has_log
        from effect_kinds group by key) as kinds
    where has_add + has_remove + has_read + has_write + has_observe > 0
    """,
    keep=True,
)

KEYS: Final = View(
    "object_keys",
    """
    select key, case
        when has_add + has_remove + has_read + has_write = 0 and d.family = 'queue' and has_take = 1 then 'queue'
        when has_add + has_remove + has_read + has_write = 0 then 'log'
        when d.family = 'counter' and has_remove + has_write + has_take = 0 then 'counter'
        when d.family = 'set' and has_write + has_take = 0 then 'set'
        when d.family = 'queue' and has_remove + has_read + has_write = 0 then 'queue'
        when d.family = 'max-register' and has_add + has_remove + has_cas = 0 then 'max-register'
        when has_write = 1 and has_add + has_remove = 0 then 'register'
        when has_remove = 1 and has_write + has_take = 0 then 'set'
        when has_add = 1 and has_take = 1 and has_remove + has_read + has_write = 0 then 'queue'
        when has_add = 1 and has_remove + has_write + has_take = 0 then 'open'
        when has_add + has_remove = 0 and (d.family = 'register' or (d.family is null and o.keys = 0)) then 'register'
        when has_add + has_remove = 0 then 'open'
        else 'mixed' end as family
    from object_shapes cross join object_declared d cross join (
        select count(*) as keys from object_shapes
        where has_add + has_remove > 0 and has_write + has_take = 0) o
    """,
    keep=True,
)
"""``family`` open: nobody said which; mixed: its effects are those of no single object."""


def sort_keys(engine: Engine, family: str | None) -> None:
    """Makes ``object_keys`` (key, family) and ``log_effects``: the effects less those of queues; none without a log."""
    told = "cast(null as string)" if family is None else f"'{family}'"
    engine.view("object_declared", f"select {told} as family")
    engine.table(SHAPES.name, SHAPES.sql)
    engine.table(KEYS.name, KEYS.sql)
    engine.view("log_effects", _log_effects(engine))


def _log_effects(engine: Engine) -> str:
    """The log's views look at them some dozen times, also where there is nothing to see."""
    rows = engine.rows(f"select count(*) as total from effect_kinds where kind in ({_LOG}, 'observe', 'drained')")
    if rows[0]["total"] == 0:
        return empty(EFFECTS)
    if engine.rows("select count(*) as total from object_keys where family = 'queue'")[0]["total"] == 0:
        return "select * from effects"
    return (
        "select e.* from effects e left join object_keys q on e.key = q.key and q.family = 'queue' where q.key is null"
    )


def doubts(engine: Engine, family: str | None) -> list[str]:
    """Why some keys are judged by no family, in words; empty if all are."""
    told = []
    for state, reason in (
        (
            "open",
            "effects of kinds that several families record (counter, set, queue, register); say which one this history "
            "is of, with --family or the contract's family",
        ),
        ("mixed", "effects that no single object has, such as add beside write"),
    ):
        rows = engine.rows(
            f"select key from object_keys where family = '{state}' order by key nulls first limit {MOST_TOLD}"
        )
        if not rows:
            continue
        total = int(engine.rows(f"select count(*) as keys from object_keys where family = '{state}'")[0]["keys"])
        more = f" and {total - len(rows)} other keys have" if total > len(rows) else " has" if total == 1 else " have"
        told.append(f"{', '.join(str(row['key']) for row in rows)}{more} {reason}")
    if family is not None and not any(
        row["family"] == family for row in engine.rows("select family from object_keys group by family")
    ):
        told.append(f"the contract says that this is a history of family {family}, but no key of it can be one")
    return told
