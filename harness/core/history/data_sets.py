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

from collections.abc import Mapping
from typing import Final, NamedTuple

FORMAT: Final = 7
"""The format that is written. In 2 each kind of effect names its object; 3 has more columns; in 4 each column of
``effects`` and ``looks`` has one meaning."""

FORMAT_KEY: Final = b"assay-history-format"
"""Of the schemas' metadata."""


class HistoryError(Exception):
    """A history cannot be read or written; the message names the file, the reason and the remedy."""


class Column(NamedTuple):
    """``type`` as Arrow calls it: int64, int32, string or bool."""

    name: str
    type: str
    nullable: bool


class DataSet(tuple[Column, ...]):
    """The columns of one, in order."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self]


def _required(name: str, kind: str) -> Column:
    return Column(name, kind, nullable=False)


def _optional(name: str, kind: str) -> Column:
    return Column(name, kind, nullable=True)


OPS = DataSet(
    (
        _required("index", "int64"),
        _required("process", "int32"),
        _required("worker", "string"),
        _required("f", "string"),
        _optional("key", "string"),
        _required("argument", "string"),
        _optional("result", "string"),
        _required("call", "int64"),
        _optional("ret", "int64"),
        _required("outcome", "string"),
        _optional("error", "string"),
        _required("phase", "string"),
        _optional("scheduled", "int64"),
    )
)
"""``argument`` and ``result`` are JSON text; ``scheduled`` is when an open loop meant it to be called, else null."""

EFFECTS = DataSet(
    (
        _required("op", "int64"),
        _required("sub", "int32"),
        _optional("request", "int64"),
        _required("process", "int32"),
        _required("key", "string"),
        _required("kind", "string"),
        _optional("position", "int64"),
        _optional("value", "int64"),
        _optional("expected", "int64"),
        _optional("leader_epoch", "int64"),
        _optional("generation", "int64"),
        _optional("token", "int64"),
        _optional("owner", "string"),
        _optional("group", "string"),
        _optional("assignment", "int64"),
        _optional("node", "string"),
        _optional("version", "int64"),
        _optional("list_index", "int64"),
        _optional("message_key", "string"),
        _optional("tombstone", "bool"),
        _optional("timestamp", "int64"),
        _optional("size", "int64"),
        _optional("name", "string"),
        _optional("replicas", "string"),
        _optional("incarnation", "int64"),
        _optional("source", "string"),
        _optional("client", "string"),
        _optional("retention_ms", "int64"),
        _optional("max_wait_ms", "int64"),
        _optional("waited_ms", "int64"),
        _optional("empty", "bool"),
        _required("call", "int64"),
        _optional("ret", "int64"),
        _required("outcome", "string"),
        _optional("error", "string"),
        _required("phase", "string"),
    )
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

FAULTS = DataSet(
    (
        _required("id", "int64"),
        _required("fault", "string"),
        _required("targets", "string"),
        _required("phase", "string"),
        _required("time", "int64"),
        _required("detail", "string"),
        _optional("took_effect", "bool"),
        _optional("stage", "string"),
        _optional("not_before", "int64"),
        _optional("on_clients", "bool"),
        _optional("ends_process", "bool"),
        _optional("pauses_process", "bool"),
        _optional("gradual", "bool"),
        _optional("cuts_links", "bool"),
        _optional("loses_unsynced", "bool"),
        _optional("damages_files", "bool"),
        _optional("wrong_clock", "bool"),
        _optional("moves_replicas", "bool"),
    )
)
"""``phase`` is intended, injected, healed, recovered or failed; ``targets`` a JSON list, ``detail`` JSON.

- ``took_effect``, of phase ``healed``: was the fault proved to have taken effect?
- ``stage``, of phase ``failed``: where it failed; a heal that fails is tried again.
- ``not_before``, of phase ``intended``: when it may begin at the earliest.
- ``on_clients``: is a node that clients live on among the targets?
- The others say what the fault does to its targets, as it declares it (``assay.nemesis.impact``). Null: not known.
"""

EVENTS = DataSet(
    (
        _required("time", "int64"),
        _required("node", "string"),
        _required("incarnation", "int64"),
        _required("seq", "int64"),
        _required("event", "string"),
        _optional("key", "string"),
        _optional("epoch", "int64"),
        _optional("controller_epoch", "int64"),
        _optional("zxid", "int64"),
        _optional("position", "int64"),
        _optional("value", "int64"),
        _optional("owner", "string"),
        _required("detail", "string"),
        _optional("high_watermark", "int64"),
        _optional("log_start", "int64"),
        _optional("log_end", "int64"),
        _optional("version", "int64"),
        _optional("isr", "string"),
        _optional("elr", "string"),
        _optional("replicas", "string"),
        _optional("gone", "string"),
        _optional("min_insync", "int64"),
        _optional("unclean", "bool"),
        _optional("replica", "int64"),
        _optional("from_state", "string"),
        _optional("to_state", "string"),
        _optional("osr", "string"),
    )
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

REPLICAS = DataSet(
    (
        _required("node", "string"),
        _required("key", "string"),
        _required("position", "int64"),
        _optional("value", "int64"),
        _optional("crc", "int64"),
        _optional("epoch", "int64"),
        _required("below_hw", "bool"),
        _required("in_isr", "bool"),
        _optional("epoch_start", "int64"),
        _optional("high_watermark", "int64"),
        _optional("log_start", "int64"),
    )
)
"""``below_hw``: it counts, by the high watermark of its leader or of its own node; ``epoch_start``: where its epoch
begins, by the node's own history.

One row of each replica is no record, but stands at the log's end, with its ``log_start`` (null where offsets may be
missing, as in a compacted log) and the ``high_watermark`` that the node has checkpointed.
"""

LOOKS = DataSet(
    (
        _required("look", "int64"),
        _required("time", "int64"),
        _required("ended", "int64"),
        _required("what", "string"),
        _optional("key", "string"),
        _optional("node", "string"),
        _optional("broker", "int64"),
        _optional("zxid", "int64"),
        _optional("settings", "int64"),
        _optional("epoch", "int64"),
        _optional("leader", "int64"),
        _optional("replicas", "string"),
        _optional("members", "string"),
        _optional("removing", "string"),
        _optional("high_watermark", "int64"),
        _optional("log_end", "int64"),
        _optional("position", "int64"),
        _optional("acknowledgements", "int64"),
        _optional("base_offset", "int64"),
        _optional("end_offset", "int64"),
        _optional("timestamp", "int64"),
        _optional("size", "int64"),
        _optional("flushed", "int64"),
        _optional("flush_ms", "int64"),
        _optional("unsynced", "int64"),
        _optional("retention_ms", "int64"),
        _optional("retention_bytes", "int64"),
        _optional("retention_check_ms", "int64"),
        _optional("wall_ms", "int64"),
        _optional("unsettled", "int64"),
        _optional("invariant", "string"),
        _optional("claim", "string"),
        _optional("assertions", "int64"),
    )
)
"""What was seen of the system once it was at rest, in look 1, 2, ..., each from ``time`` to ``ended``.

``what`` says what the row is about. Each look has one row ``look``, with the time of day ``wall_ms`` in milliseconds
and how much was ``unsettled`` by the system's own reckoning. ``epoch`` is the leader epoch, ``settings`` a fingerprint
of a topic's; ``replicas``, ``members`` and ``removing`` are numbers of nodes with commas between. ``invariant`` is the
name of one that was asserted while the run went on, so many times (``assertions``), or that was broken, as ``claim``
says.
"""

DATA_SETS: Final[Mapping[str, DataSet]] = {
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
