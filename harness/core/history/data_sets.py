"""The six data sets of a history: what every checker reads.

Times are nanoseconds since the run began. Every file of ours says in its schema's metadata which ``FORMAT`` it has.
A file also says whether a run wrote it (``ORIGIN_KEY``). Columns are added or renamed, and
kinds, with a new format only; ``translation`` makes rows of today of older files, and columns that came later than a
file read as null.

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
"""The format that is written. Formats 4 to 6 lack columns that came later (``translation``)."""

FORMAT_KEY: Final = b"assay-history-format"
"""Of the schemas' metadata."""
ORIGIN_KEY: Final = b"assay-history-origin"
"""Of the schemas' metadata: whether a run wrote the file. Files of earlier versions say nothing."""
OF_RUN: Final = b"run"
OF_OTHER: Final = b"other"
"""The origin of a history that no run wrote: one that was generated, or that a program has made."""


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


def _data_set(columns: str) -> DataSet:
    """Of words such as ``name:type``; a question mark after the type: it may be null."""
    pairs = (word.split(":") for word in columns.split())
    return DataSet(Column(name, kind.removesuffix("?"), nullable=kind.endswith("?")) for name, kind in pairs)


OPS = _data_set(
    """
    index:int64 process:int32 worker:string f:string key:string? argument:string result:string? call:int64
    ret:int64? outcome:string error:string? phase:string scheduled:int64?
    """
)
"""``argument`` and ``result`` are JSON text; ``scheduled`` is when an open loop meant it to be called, else null."""

EFFECTS = _data_set(
    """
    op:int64 sub:int32 request:int64? process:int32 key:string kind:string position:int64? value:int64?
    expected:int64? leader_epoch:int64? generation:int64? token:int64? owner:string? group:string? assignment:int64?
    node:string? version:int64? list_index:int64? message_key:string? tombstone:bool? timestamp:int64? size:int64?
    name:string? replicas:string? incarnation:int64? source:string? client:string? retention_ms:int64?
    max_wait_ms:int64? waited_ms:int64? empty:bool? call:int64 ret:int64? outcome:string error:string? phase:string
    """
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

FAULTS = _data_set(
    """
    id:int64 fault:string targets:string phase:string time:int64 detail:string took_effect:bool? stage:string?
    not_before:int64? on_clients:bool? ends_process:bool? pauses_process:bool? gradual:bool? cuts_links:bool?
    loses_unsynced:bool? damages_files:bool? wrong_clock:bool? moves_replicas:bool?
    """
)
"""``phase`` is intended, injected, healed, recovered or failed; ``targets`` a JSON list, ``detail`` JSON.

- ``took_effect``, of phase ``healed``: was the fault proved to have taken effect?
- ``stage``, of phase ``failed``: where it failed; a heal that fails is tried again.
- ``not_before``, of phase ``intended``: when it may begin at the earliest.
- ``on_clients``: is a node that clients live on among the targets?
- The others say what the fault does to its targets, as it declares it (``assay.nemesis.faults.impact``). Null: not
known.
"""

EVENTS = _data_set(
    """
    time:int64 node:string incarnation:int64 seq:int64 event:string key:string? epoch:int64? controller_epoch:int64?
    zxid:int64? position:int64? value:int64? owner:string? detail:string high_watermark:int64? log_start:int64?
    log_end:int64? version:int64? isr:string? elr:string? replicas:string? gone:string? min_insync:int64?
    unclean:bool? replica:int64? from_state:string? to_state:string? osr:string?
    """
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

REPLICAS = _data_set(
    """
    node:string key:string position:int64 value:int64? crc:int64? epoch:int64? below_hw:bool in_isr:bool
    epoch_start:int64? high_watermark:int64? log_start:int64?
    """
)
"""``below_hw``: it counts, by the high watermark of its leader or of its own node; ``epoch_start``: where its epoch
begins, by the node's own history.

One row of each replica is no record, but stands at the log's end, with its ``log_start`` (null where offsets may be
missing, as in a compacted log) and the ``high_watermark`` that the node has checkpointed.
"""

LOOKS = _data_set(
    """
    look:int64 time:int64 ended:int64 what:string key:string? node:string? broker:int64? zxid:int64? settings:int64?
    epoch:int64? leader:int64? replicas:string? members:string? removing:string? high_watermark:int64?
    log_end:int64? position:int64? acknowledgements:int64? base_offset:int64? end_offset:int64? timestamp:int64?
    size:int64? flushed:int64? flush_ms:int64? unsynced:int64? retention_ms:int64? retention_bytes:int64?
    retention_check_ms:int64? wall_ms:int64? unsettled:int64? invariant:string? claim:string? assertions:int64?
    """
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
"""Data sets that a history from elsewhere may lack; they read as empty then."""

DIGESTED = ("ops", "effects", "faults")
"""The data sets of which two simulated runs of one seed must agree."""

CLOSED = "closed.json"
"""Written last, into the folder: ``{"digest": ..., "rows": {name: rows}}``. Without it the run was cut short."""
