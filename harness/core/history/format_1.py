"""Histories of format 1, as format 3 would have them. Nothing else in the project knows what those were like.

In format 1 a kind of effect did not say what object it is of: counters, sets and queues all recorded ``add``; a
``read`` was that of a counter, a set, a register or a max register; a ``write`` that of a register or a max register.
Some columns had several meanings. Files that do not say which format they have are taken for format 1; if they have
columns of today, these are read as they are.

What is translated is data: ``COLUMNS`` (which columns a data set had), ``KINDS`` (a family's kinds, then and now) and
``MEANINGS`` (columns of format 3, as SQL over the stored rows), of which ``views`` makes SQL texts. A data set without
meanings has not changed.

Where kinds leave open which family of objects a key belongs to, it is proved or stated, never guessed. In order:

- ``add`` and ``observe`` without any trace of a log: a queue, as nothing else records both. A key that has only
  ``observe`` is a log, unless ``family`` says queue.
- ``remove``: a set. ``write`` or ``cas``: a register, unless ``family`` says max register.
- ``add``, with reads or not: what ``family`` says, counter, set or queue.
- only ``read``: what ``family`` says; without it a register, unless another key of the history is open.

The effects of other keys keep their kinds, which no check knows; ``object_keys`` says which they are, and why.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from assay.harness.core.history.sql import Text, listed, select

COLUMNS: Final[Mapping[str, str]] = {
    "ops": "index process worker f key argument result call ret outcome error phase scheduled",
    "effects": "op sub request process key kind position value expected epoch owner group assignment node call ret "
    "outcome error phase",
    "faults": "id fault targets phase time detail bit",
    "events": "time node incarnation seq event key epoch controller_epoch zxid position value owner detail",
    "replicas": "node key position value crc epoch below_hw in_isr",
}
"""Each data set's columns, in order. They have the types of format 3, unless ``FORMER`` says which."""

FORMER: Final[Mapping[str, pa.DataType]] = {"bit": pa.bool_()}
"""The types of columns that format 3 had no more."""

LACKING: Final[Mapping[str, tuple[str, ...]]] = {"ops": ("scheduled",), "effects": ("epoch",), "faults": ("bit",)}
"""Columns that came or went while files without a format may have been written; where they lack, they read as null."""

KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "counter": {"add": "counter-add", "read": "counter-read"},
    "max-register": {"write": "max-write", "read": "max-read"},
    "set": {"add": "set-add", "remove": "set-remove", "read": "set-read"},
    "queue": {"add": "queue-enqueue", "observe": "queue-dequeue", "drained": "queue-drained"},
    "register": {"write": "register-write", "read": "register-read", "cas": "register-cas"},
}
"""A family's kinds of effects in format 1, and what they are called today."""

IMPACTS: Final[Mapping[str, frozenset[str]]] = {
    "ends_process": frozenset(
        {"corrupt", "garbage-tail", "hold", "kill", "kill-consumer", "power-loss", "restart", "restart-rolling",
         "truncate-tail", "zookeeper-kill"}
    ),
    "pauses_process": frozenset({"freeze", "hold", "stop", "stop-consumer", "zookeeper-pause"}),
    "gradual": frozenset({"hold", "restart-rolling"}),
    "cuts_links": frozenset(
        {"consumer-from-coordinator", "consumer-from-zookeeper", "cut-consumer", "zookeeper-expire"}
    ),
    "loses_unsynced": frozenset({"power-loss"}),
    "damages_files": frozenset({"corrupt", "garbage-tail", "truncate-tail"}),
    "wrong_clock": frozenset({"clock"}),
}  # fmt: skip
"""What the faults of format 1 did to their targets, by name. Those called ``partition...`` cut links."""

_KNOWN: Final = frozenset({"move-replicas"}).union(*IMPACTS.values())


def _impact(column: str) -> str:
    """Null for a fault that came from elsewhere."""
    cuts = "true" if column == "cuts_links" else "false"
    return (
        f"coalesce(e.{column}, case when e.fault like 'partition%' then {cuts} "
        f"when e.fault in ({listed(sorted(_KNOWN))}) then e.fault in ({listed(sorted(IMPACTS[column]))}) end)"
    )


_VERSIONED: Final = "('write', 'read', 'cas')"

MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "effects": {
        "kind": "coalesce(n.kind, e.kind)",
        "position": f"case when e.kind in {_VERSIONED} or e.kind = 'txn-read' then null else e.position end",
        "version": f"coalesce(e.version, case when e.kind in {_VERSIONED} then e.position end)",
        "list_index": "coalesce(e.list_index, case when e.kind = 'txn-read' then e.position end)",
        "owner": "case when e.kind = 'append' then null else e.owner end",
        "message_key": "coalesce(e.message_key, case when e.kind = 'append' then e.owner end)",
    },
    "faults": {
        "took_effect": "coalesce(e.took_effect, e.bit)",
        "stage": "coalesce(e.stage, case when e.phase = 'failed' then replace(nullif("
        """regexp_extract(e.detail, '"stage": ?"([a-z]+)"', 1), ''), 'bite', 'effect') end)""",
        "not_before": "coalesce(e.not_before, case when e.phase = 'intended' then e.time + 1000000000 * coalesce("
        """cast(nullif(regexp_extract(e.detail, '"at": ?([0-9]+)', 1), '') as bigint), 0) end)""",
        "on_clients": "coalesce(e.on_clients, e.targets like '%client%')",
        **{column: _impact(column) for column in IMPACTS},
    },
}
"""Columns of format 3 that mean something else than they did, or that there were not: SQL over the stored rows ``e``
(with today's columns, too, null where a file lacks them) and, of effects, the name of their kind today ``n``."""


def views(name: str, source: str, target: str, columns: Sequence[str], family: str | None) -> tuple[Text, ...]:
    """What makes ``target`` out of the rows of ``source``, with these columns: the data set ``name`` of format 3.

    ``family``: what the history's objects are, where kinds leave it open.
    """
    rows = select(columns, MEANINGS[name], source)
    if name != "effects":
        return (Text(target, rows),)
    named = f"{rows} left join kinds_today n on e.key = n.key and e.kind = n.former"
    return (*_kinds(source, family), Text(target, named))


_LOG: Final = "'append', 'observe-begin', 'observe-end', 'end', 'start', 'seek', 'reset'"


def _has(name: str, *kinds: str) -> str:
    return f"max(case when kind in ({listed(kinds)}) then 1 else 0 end) as {name}"


def _kinds(source: str, family: str | None) -> tuple[Text, ...]:
    """``object_keys`` (key, family) and ``kinds_today`` (key, former, kind).

    Family ``open``: nothing says which; ``mixed``: the key's effects are those of no single object.
    """
    said = "cast(null as string)" if family is None else f"'{family}'"
    names = " union all ".join(
        f"select '{name}' as family, '{old}' as former, '{new}' as kind"
        for name, kinds in KINDS.items()
        for old, new in kinds.items()
    )
    return (
        Text("stored_kinds", f"select key, kind from {source} group by key, kind", keep=True),
        Text(
            "object_shapes",
            f"""
            select key, has_add, has_remove, has_read, has_write, has_cas, has_log,
                case when has_log = 0 then has_observe else 0 end as has_take
            from (
                select key, {_has("has_add", "add")}, {_has("has_remove", "remove")}, {_has("has_read", "read")},
                    {_has("has_write", "write", "cas")}, {_has("has_cas", "cas")}, {_has("has_observe", "observe")},
                    max(case when kind in ({_LOG}) then 1 else 0 end) as has_log
                from stored_kinds group by key) as kinds
            where has_add + has_remove + has_read + has_write + has_observe > 0
            """,
            keep=True,
        ),
        Text(
            "object_keys",
            f"""
            select key, case
                when has_add + has_remove + has_read + has_write = 0 and d.family = 'queue' and has_take = 1
                    then 'queue'
                when has_add + has_remove + has_read + has_write = 0 then 'log'
                when d.family = 'counter' and has_remove + has_write + has_take = 0 then 'counter'
                when d.family = 'set' and has_write + has_take = 0 then 'set'
                when d.family = 'queue' and has_remove + has_read + has_write = 0 then 'queue'
                when d.family = 'max-register' and has_add + has_remove + has_cas = 0 then 'max-register'
                when has_write = 1 and has_add + has_remove = 0 then 'register'
                when has_remove = 1 and has_write + has_take = 0 then 'set'
                when has_add = 1 and has_take = 1 and has_remove + has_read + has_write = 0 then 'queue'
                when has_add = 1 and has_remove + has_write + has_take = 0 then 'open'
                when has_add + has_remove = 0 and (d.family = 'register' or (d.family is null and o.keys = 0))
                    then 'register'
                when has_add + has_remove = 0 then 'open'
                else 'mixed' end as family
            from object_shapes cross join (select {said} as family) d cross join (
                select count(*) as keys from object_shapes
                where has_add + has_remove > 0 and has_write + has_take = 0) o
            """,
            keep=True,
        ),
        Text(
            "kinds_today",
            f"""
            select s.key as key, s.kind as former, n.kind as kind
            from stored_kinds s join object_keys o on s.key = o.key
                join ({names}) n on n.family = o.family and n.former = s.kind
            """,
            keep=True,
        ),
    )
