"""The five data sets of a history: what every checker reads.

Times are nanoseconds since the run began. Columns may be added; those listed in ``ADDED`` came after the format was
fixed and may be missing in files that others wrote.

- ``ops``: one row per operation; ``ret`` is null for ``info`` (any time from ``call`` on, or never).
- ``effects``: one row per elementary effect, denormalised so that checks need no join.
- ``faults``: what the nemesis meant, did, undid and saw.
- ``events``: the nodes' own event logs, each in order of (node, incarnation, seq).
- ``replicas``: what was on the disks after the run.
"""

from __future__ import annotations

import pyarrow as pa


class HistoryError(Exception):
    """A history cannot be read or written; the message names the file, the reason and the remedy."""


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _optional(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=True)


OPS = pa.schema(
    [
        _required("index", pa.int64()),
        _required("process", pa.int32()),
        _required("worker", pa.string()),
        _required("f", pa.string()),
        _optional("key", pa.string()),
        _required("argument", pa.string()),
        _optional("result", pa.string()),
        _required("call", pa.int64()),
        _optional("ret", pa.int64()),
        _required("outcome", pa.string()),
        _optional("error", pa.string()),
        _required("phase", pa.string()),
        _optional("scheduled", pa.int64()),
    ]
)
"""``argument`` and ``result`` are JSON text; ``scheduled`` is when an open loop meant it to be called, else null."""

EFFECTS = pa.schema(
    [
        _required("op", pa.int64()),
        _required("sub", pa.int32()),
        _optional("request", pa.int64()),
        _required("process", pa.int32()),
        _required("key", pa.string()),
        _required("kind", pa.string()),
        _optional("position", pa.int64()),
        _optional("value", pa.int64()),
        _optional("expected", pa.int64()),
        _optional("epoch", pa.int64()),
        _optional("owner", pa.string()),
        _optional("group", pa.string()),
        _optional("assignment", pa.int64()),
        _optional("node", pa.string()),
        _required("call", pa.int64()),
        _optional("ret", pa.int64()),
        _required("outcome", pa.string()),
        _optional("error", pa.string()),
        _required("phase", pa.string()),
    ]
)
"""``call`` and ``ret`` are the operation's, ``outcome`` and ``error`` the effect's own."""

FAULTS = pa.schema(
    [
        _required("id", pa.int64()),
        _required("fault", pa.string()),
        _required("targets", pa.string()),
        _required("phase", pa.string()),
        _required("time", pa.int64()),
        _required("detail", pa.string()),
        _optional("bit", pa.bool_()),
    ]
)
"""``phase`` is intended, injected, healed, recovered or failed; ``targets`` a JSON list, ``detail`` JSON.

``bit`` is set on the row of phase ``healed``: did the fault show its effect.
"""

EVENTS = pa.schema(
    [
        _required("time", pa.int64()),
        _required("node", pa.string()),
        _required("incarnation", pa.int64()),
        _required("seq", pa.int64()),
        _required("event", pa.string()),
        _optional("key", pa.string()),
        _optional("epoch", pa.int64()),
        _optional("controller_epoch", pa.int64()),
        _optional("zxid", pa.int64()),
        _optional("position", pa.int64()),
        _optional("value", pa.int64()),
        _optional("owner", pa.string()),
        _required("detail", pa.string()),
    ]
)
"""``time`` is the node's own, shifted: for display only. Order is (node, incarnation, seq)."""

REPLICAS = pa.schema(
    [
        _required("node", pa.string()),
        _required("key", pa.string()),
        _required("position", pa.int64()),
        _optional("value", pa.int64()),
        _optional("crc", pa.int64()),
        _optional("epoch", pa.int64()),
        _required("below_hw", pa.bool_()),
        _required("in_isr", pa.bool_()),
    ]
)
"""``below_hw``: below the node's own checkpointed high watermark."""

SCHEMAS: dict[str, pa.Schema] = {
    "ops": OPS,
    "effects": EFFECTS,
    "faults": FAULTS,
    "events": EVENTS,
    "replicas": REPLICAS,
}

ADDED: dict[str, tuple[str, ...]] = {"ops": ("scheduled",), "faults": ("bit",)}
"""Per data set, columns that a history from elsewhere may lack; they then read as null."""

DIGESTED = ("ops", "effects", "faults")
"""The data sets of which two simulated runs of one seed must agree."""

CLOSED = "closed.json"
"""Written last, into the folder: ``{"digest": ..., "rows": {name: rows}}``. Without it the run was cut short."""
