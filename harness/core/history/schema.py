"""The six data sets of a history: what every checker reads.

Times are nanoseconds since the run began. Every file says in its schema's metadata which ``FORMAT`` it has; files that
say nothing have format 1. Columns are added or renamed, and kinds, with a new format only; ``translation`` makes rows
of today of older files, and columns that came later than a file read as null.

- ``ops``: one row per operation; ``ret`` is null for ``info`` (any time from ``call`` on, or never).
- ``effects``: one row per elementary effect, denormalised so that checks need no join.
- ``faults``: what the nemesis meant, did, undid and saw.
- ``events``: the nodes' own event logs, each in order of (node, incarnation, seq).
- ``replicas``: what was on the disks after the run.
- ``looks``: what was seen of the system at rest, to see whether everything came to its end.
"""

from typing import Final

import pyarrow as pa

FORMAT: Final = 6
"""The format that is written. In 2 each kind of effect names its object; 3 has more columns; in 4 each column of
``effects`` and ``looks`` has one meaning."""

FORMAT_KEY: Final = b"assay-history-format"
"""Of the schemas' metadata."""


class HistoryError(Exception):
    """A history cannot be read or written; the message names the file, the reason and the remedy."""


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _optional(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=True)


def _schema(*fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={FORMAT_KEY: str(FORMAT).encode()})


OPS = _schema(
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
)
"""``argument`` and ``result`` are JSON text; ``scheduled`` is when an open loop meant it to be called, else null."""

EFFECTS = _schema(
    _required("op", pa.int64()),
    _required("sub", pa.int32()),
    _optional("request", pa.int64()),
    _required("process", pa.int32()),
    _required("key", pa.string()),
    _required("kind", pa.string()),
    _optional("position", pa.int64()),
    _optional("value", pa.int64()),
    _optional("expected", pa.int64()),
    _optional("leader_epoch", pa.int64()),
    _optional("generation", pa.int64()),
    _optional("token", pa.int64()),
    _optional("owner", pa.string()),
    _optional("group", pa.string()),
    _optional("assignment", pa.int64()),
    _optional("node", pa.string()),
    _optional("version", pa.int64()),
    _optional("list_index", pa.int64()),
    _optional("message_key", pa.string()),
    _optional("tombstone", pa.bool_()),
    _optional("timestamp", pa.int64()),
    _optional("size", pa.int64()),
    _optional("name", pa.string()),
    _optional("replicas", pa.string()),
    _optional("incarnation", pa.int64()),
    _optional("source", pa.string()),
    _optional("client", pa.string()),
    _optional("retention_ms", pa.int64()),
    _optional("max_wait_ms", pa.int64()),
    _optional("waited_ms", pa.int64()),
    _optional("empty", pa.bool_()),
    _required("call", pa.int64()),
    _optional("ret", pa.int64()),
    _required("outcome", pa.string()),
    _optional("error", pa.string()),
    _required("phase", pa.string()),
)
"""``call`` and ``ret`` are the operation's, ``outcome`` and ``error`` the effect's own.

``kind`` names the object: ``counter-add``, ``set-read``, ... Each family of checks says what it reads of which kind.
``position`` is an offset in a log; ``version`` the number that a register's system gives each change; ``list_index``
the place of an element in the list that a transaction read. ``owner`` is who holds something: a member, a consumer, a
lease's holder; ``message_key`` the key of a message, ``tombstone`` whether it is one. ``leader_epoch`` is that of the
node that answered, ``generation`` the group's, ``token`` the lease's. ``timestamp`` is a message's create time in
milliseconds of the wall clock, had or looked for; ``size`` an upper bound of a message's bytes on disk. Of an operation
of an administrator ``name`` is the setting that it is about, ``replicas`` the nodes' numbers: ``1,2,3``.
``incarnation``: which life of ``node`` answered. ``source``: who reported; ``client``: which of its
worker's clients tried. ``retention_ms``: for how long an offset is to be kept. ``max_wait_ms`` and ``waited_ms``: how
long a fetch might wait, and how long it did; ``empty``: it was answered without records.
"""

FAULTS = _schema(
    _required("id", pa.int64()),
    _required("fault", pa.string()),
    _required("targets", pa.string()),
    _required("phase", pa.string()),
    _required("time", pa.int64()),
    _required("detail", pa.string()),
    _optional("took_effect", pa.bool_()),
    _optional("stage", pa.string()),
    _optional("not_before", pa.int64()),
    _optional("on_clients", pa.bool_()),
    _optional("ends_process", pa.bool_()),
    _optional("pauses_process", pa.bool_()),
    _optional("gradual", pa.bool_()),
    _optional("cuts_links", pa.bool_()),
    _optional("loses_unsynced", pa.bool_()),
    _optional("damages_files", pa.bool_()),
    _optional("wrong_clock", pa.bool_()),
    _optional("moves_replicas", pa.bool_()),
)
"""``phase`` is intended, injected, healed, recovered or failed; ``targets`` a JSON list, ``detail`` JSON.

- ``took_effect``, of phase ``healed``: was the fault proved to have taken effect?
- ``stage``, of phase ``failed``: where it failed; a heal that fails is tried again.
- ``not_before``, of phase ``intended``: when it may begin at the earliest.
- ``on_clients``: is a node that clients live on among the targets?
- The others say what the fault does to its targets, as it declares it (``assay.nemesis.impact``). Null: not known.
"""

EVENTS = _schema(
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
    _optional("high_watermark", pa.int64()),
    _optional("log_start", pa.int64()),
    _optional("log_end", pa.int64()),
    _optional("version", pa.int64()),
    _optional("isr", pa.string()),
    _optional("elr", pa.string()),
    _optional("replicas", pa.string()),
    _optional("gone", pa.string()),
    _optional("min_insync", pa.int64()),
    _optional("unclean", pa.bool_()),
    _optional("replica", pa.int64()),
    _optional("from_state", pa.string()),
    _optional("to_state", pa.string()),
    _optional("osr", pa.string()),
)
"""``time`` is the node's own, shifted: for display only. Order is (node, incarnation, seq).

``high_watermark``, ``log_start`` and ``log_end`` are the node's own of ``key``, at that moment. ``version`` is that of
the state of ``key`` that has the in-sync set ``isr``, and ``elr``, who may lead without being in it. Of a move
``replicas`` are those that it ends with, ``gone`` those that it takes away. All are numbers of nodes, commas between.
``min_insync`` and ``unclean`` are what an election went by. Of a transition of the controller's state machines
``from_state`` and ``to_state`` are of ``key``, or of the replica of it on the node with the number ``replica``; no
``from_state``: it was there before. ``osr``: the replicas assigned to ``key`` that are not in ``isr``.
"""

NODE_LISTS: Final = ("isr", "elr", "replicas", "gone", "osr")
"""Columns of ``events`` that are lists of nodes' numbers in event logs."""

REPLICAS = _schema(
    _required("node", pa.string()),
    _required("key", pa.string()),
    _required("position", pa.int64()),
    _optional("value", pa.int64()),
    _optional("crc", pa.int64()),
    _optional("epoch", pa.int64()),
    _required("below_hw", pa.bool_()),
    _required("in_isr", pa.bool_()),
    _optional("epoch_start", pa.int64()),
    _optional("high_watermark", pa.int64()),
    _optional("log_start", pa.int64()),
)
"""``below_hw``: it counts, by the high watermark of its leader or of its own node; ``epoch_start``: where its epoch
begins, by the node's own history.

One row of each replica is no record, but stands at the log's end, with its ``log_start`` (null where offsets may be
missing, as in a compacted log) and the ``high_watermark`` that the node has checkpointed.
"""

LOOKS = _schema(
    _required("look", pa.int64()),
    _required("time", pa.int64()),
    _required("ended", pa.int64()),
    _required("what", pa.string()),
    _optional("key", pa.string()),
    _optional("node", pa.string()),
    _optional("broker", pa.int64()),
    _optional("zxid", pa.int64()),
    _optional("settings", pa.int64()),
    _optional("epoch", pa.int64()),
    _optional("leader", pa.int64()),
    _optional("replicas", pa.string()),
    _optional("members", pa.string()),
    _optional("removing", pa.string()),
    _optional("high_watermark", pa.int64()),
    _optional("log_end", pa.int64()),
    _optional("position", pa.int64()),
    _optional("acknowledgements", pa.int64()),
    _optional("base_offset", pa.int64()),
    _optional("end_offset", pa.int64()),
    _optional("timestamp", pa.int64()),
    _optional("size", pa.int64()),
    _optional("flushed", pa.int64()),
    _optional("flush_ms", pa.int64()),
    _optional("unsynced", pa.int64()),
    _optional("retention_ms", pa.int64()),
    _optional("retention_bytes", pa.int64()),
    _optional("retention_check_ms", pa.int64()),
    _optional("wall_ms", pa.int64()),
    _optional("unsettled", pa.int64()),
)
"""What was seen of the system once it was at rest, in look 1, 2, ..., each from ``time`` to ``ended``.

``what`` says what the row is about. Each look has one row ``look``, with the time of day ``wall_ms`` in milliseconds
and how much was ``unsettled`` by the system's own reckoning. ``epoch`` is the leader epoch, ``settings`` a fingerprint
of a topic's; ``replicas``, ``members`` and ``removing`` are numbers of nodes with commas between.
"""

SCHEMAS: dict[str, pa.Schema] = {
    "ops": OPS,
    "effects": EFFECTS,
    "faults": FAULTS,
    "events": EVENTS,
    "replicas": REPLICAS,
    "looks": LOOKS,
}

LATER: Final = ("looks",)
"""Data sets that came with format 3; they read as empty where they are missing."""

DIGESTED = ("ops", "effects", "faults")
"""The data sets of which two simulated runs of one seed must agree."""

CLOSED = "closed.json"
"""Written last, into the folder: ``{"digest": ..., "rows": {name: rows}}``. Without it the run was cut short."""
