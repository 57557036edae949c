"""The six data sets of a history, which every checker reads, and their columns.

- ``ops``: one row per operation. ``ret`` is null for ``info`` (it may take effect any time from ``call`` on, or never).
- ``effects``: one row per elementary effect, denormalised so that checks need no join.
- ``faults``: faults as planned, injected and healed, with their proofs.
- ``events``: the event logs of the nodes, each in order of (node, incarnation, seq).
- ``replicas``: the records on the nodes' disks after the run.
- ``looks``: snapshots of the system at rest, which show whether all pending work has finished.

Times are nanoseconds since the run began. Every file names its ``FORMAT`` in the metadata of its schema, and says there
whether a run wrote it (``ORIGIN_KEY``). A file that another program wrote may name none. Columns and kinds are added or
renamed only with a new format. ``translation`` converts the rows of older files.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

FORMAT: Final = 7
"""The format that is written. Formats 4 to 6 lack columns that came later (``translation``)."""

FORMAT_KEY: Final = b"assay-history-format"
"""The key in the metadata of a schema."""
ORIGIN_KEY: Final = b"assay-history-origin"
"""The key in the metadata that says whether a run wrote the file. Files of earlier versions lack it."""
OF_RUN: Final = b"run"
OF_OTHER: Final = b"other"
"""The origin of a history that no run wrote: a generated one, or one that another program wrote."""


class HistoryError(Exception):
    """A history cannot be read or written. The message names the file, the reason and the remedy."""


class Column(NamedTuple):
    """A column; ``type`` is a type name of Arrow: int64, int32, string or bool."""

    name: str
    type: str
    nullable: bool


class DataSet(tuple[Column, ...]):
    """The columns of one data set, in order."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self]


def _parse_columns(columns: str) -> DataSet:
    """Parses words of the form ``name:type``; a question mark after the type makes the column nullable."""
    pairs = (word.split(":") for word in columns.split())
    return DataSet(Column(name, kind.removesuffix("?"), nullable=kind.endswith("?")) for name, kind in pairs)


OPS = _parse_columns(
    """
    index:int64 process:int32 worker:string f:string key:string? argument:string result:string? call:int64
    ret:int64? outcome:string error:string? phase:string scheduled:int64?
    """
)
"""``argument`` and ``result`` are JSON text. ``scheduled`` is the time that an open loop planned, else null."""

EFFECTS = _parse_columns(
    """
    op:int64 sub:int32 request:int64? process:int32 key:string kind:string position:int64? value:int64?
    expected:int64? leader_epoch:int64? generation:int64? token:int64? owner:string? group:string? assignment:int64?
    node:string? version:int64? list_index:int64? message_key:string? tombstone:bool? timestamp:int64? size:int64?
    name:string? replicas:string? incarnation:int64? source:string? client:string? retention_ms:int64?
    max_wait_ms:int64? waited_ms:int64? empty:bool? call:int64 ret:int64? outcome:string error:string? phase:string
    """
)
"""``call`` and ``ret`` belong to the operation, ``outcome`` and ``error`` to the effect itself.

- ``kind`` names the object: ``counter-add``, ``set-read``, ... Each family of checks documents the columns that it
  reads of each kind.
- ``position``: an offset in a log. ``version``: the number that a register's system gives each change.
- ``list_index``: the place of an element in the list that a transaction read.
- ``owner``: the holder of something: a member, a consumer, a lease's holder.
- ``message_key``: the key of a message. ``tombstone``: whether the message is one.
- ``leader_epoch``: of the node that answered. ``generation``: of the group. ``token``: of the lease.
- ``timestamp``: a message's create time, recorded or searched for, in milliseconds of the wall clock.
- ``size``: an upper bound of a message's bytes on disk.
- ``name`` and ``replicas`` of an administrative operation: the setting, and node numbers such as ``1,2,3``.
- ``incarnation``: the incarnation of ``node`` that answered.
- ``source``: who reported. ``client``: which of its worker's clients tried.
- ``retention_ms``: how long an offset must be kept.
- ``max_wait_ms`` and ``waited_ms``: how long a fetch may wait, and how long it did. ``empty``: it returned no records.
"""

FAULTS = _parse_columns(
    """
    id:int64 fault:string targets:string phase:string time:int64 detail:string took_effect:bool? stage:string?
    not_before:int64? on_clients:bool? ends_process:bool? pauses_process:bool? gradual:bool? cuts_links:bool?
    loses_unsynced:bool? damages_files:bool? wrong_clock:bool? moves_replicas:bool?
    """
)
"""``phase`` is intended, injected, healed, recovered or failed. ``targets`` is a JSON list, ``detail`` JSON.

- ``took_effect``, in phase ``healed``: whether the fault is proved to have taken effect.
- ``stage``, in phase ``failed``: the step that failed. A heal that fails is retried.
- ``not_before``, in phase ``intended``: the earliest time at which it may begin.
- ``on_clients``: whether a client node is among the targets.
- The others state the declared impact on the targets (``assay.nemesis.faults.impact``). Null means unknown.
"""

EVENTS = _parse_columns(
    """
    time:int64 node:string incarnation:int64 seq:int64 event:string key:string? epoch:int64? controller_epoch:int64?
    zxid:int64? position:int64? value:int64? owner:string? detail:string high_watermark:int64? log_start:int64?
    log_end:int64? version:int64? isr:string? elr:string? replicas:string? gone:string? min_insync:int64?
    unclean:bool? replica:int64? from_state:string? to_state:string? osr:string?
    """
)
"""``time`` is the node's own, shifted: for display only. The order is (node, incarnation, seq).

Lists of nodes are numbers with commas between.

- ``high_watermark``, ``log_start``, ``log_end``: the node's own values for ``key`` at that moment.
- ``version``: of the state of ``key`` that has the in-sync set ``isr``. ``elr``: its eligible leader replicas.
- ``osr``: the replicas assigned to ``key`` that are not in ``isr``.
- ``replicas`` and ``gone``: the final replicas of a move, and those that it removes.
- ``min_insync`` and ``unclean``: the settings that an election used.
- ``from_state`` and ``to_state``: a transition of the controller's state machine for ``key``, or for its replica on the
  node number ``replica``. A null ``from_state`` marks the state in which it was found.
"""

NODE_LISTS: Final = ("isr", "elr", "replicas", "gone", "osr")
"""Columns of ``events`` that are lists of node numbers in event logs."""

REPLICAS = _parse_columns(
    """
    node:string key:string position:int64 value:int64? crc:int64? epoch:int64? below_hw:bool in_isr:bool
    epoch_start:int64? high_watermark:int64? log_start:int64?
    """
)
"""Each record on disk has one row.

- ``below_hw``: the record is committed, by the high watermark of the leader or of the node itself.
- ``epoch_start``: the first offset of its epoch, by the node's own leader epoch history.

Each replica has one more row, at its log end, which is no record. It has the ``high_watermark`` that the node has
checkpointed, and ``log_start``, null if offsets may be missing (as in a compacted log).
"""

LOOKS = _parse_columns(
    """
    look:int64 time:int64 ended:int64 what:string key:string? node:string? broker:int64? zxid:int64? settings:int64?
    epoch:int64? leader:int64? replicas:string? members:string? removing:string? high_watermark:int64?
    log_end:int64? position:int64? acknowledgements:int64? base_offset:int64? end_offset:int64? timestamp:int64?
    size:int64? flushed:int64? flush_ms:int64? unsynced:int64? retention_ms:int64? retention_bytes:int64?
    retention_check_ms:int64? wall_ms:int64? unsettled:int64? invariant:string? claim:string? assertions:int64?
    """
)
"""Snapshots of the system at rest: look 1, 2, ..., each taken from ``time`` to ``ended``.

- ``what``: the subject of the row. Each look has one row ``look`` with the wall-clock time ``wall_ms`` in milliseconds,
  and ``unsettled``, the system's own count of unfinished work.
- ``epoch``: the leader epoch. ``settings``: a fingerprint of a topic's settings.
- ``replicas``, ``members``, ``removing``: node numbers with commas between.
- ``invariant``: the name of an invariant that was asserted ``assertions`` times during the run, or that was broken, as
  ``claim`` states.
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
"""The data sets that two simulated runs of one seed must have in common."""

CLOSED = "closed.json"
"""The file that is written last: ``{"digest": ..., "rows": {name: rows}}``. Without it the run was cut short."""
