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

``KINDS`` has the kinds of effects by family of objects; ``docs/reference/history.md`` describes each. A history may
hold other kinds, for checks that a user adds. ``MEANINGS`` has the meaning of each column, which the documentation
shows.
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

REPORTED = ("events", "replicas", "looks")
"""The other data sets. Their digest only shows that the files are those that the run has written."""

CLOSED = "closed.json"
"""The file that is written last: ``{"digest": ..., "reported": ..., "rows": {name: rows}}``.

``digest`` is that of ``DIGESTED``, ``reported`` that of ``REPORTED``. Without the file the run was cut short.
"""


UNRECORDED: Final = "unrecorded"
"""The effects of an operation are unknown because the client's ``effects`` raised."""

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "log": (
        "append", "observe-begin", "observe", "observe-end", "seek", "reset", "end", "start", "look-up", "drained",
        "reported", "unreported", "out-of-range", "waited",
        "tried",
    ),
    "admin": (
        "topic-create", "topic-delete", "partitions-add", "setting", "move", "topic-seen", "setting-seen",
        "replicas-seen",
    ),
    "register": ("register-write", "register-read", "register-cas"),
    "counter": ("counter-add", "counter-read"),
    "max-register": ("max-write", "max-read"),
    "set": ("set-add", "set-remove", "set-read"),
    "bank": ("bank-open", "bank-withdraw", "bank-deposit", "bank-read"),
    "unique-ids": ("id-generate",),
    "monotonic": ("monotonic-add", "monotonic-read"),
    "queue": ("queue-enqueue", "queue-dequeue", "queue-drained"),
    "transactions": ("txn-append", "txn-write", "txn-read"),
    "groups": (
        "acquire", "release", "lost", "claim", "share", "idle",
        "commit", "fetched", "advance", "resume", "keep", "kept", "part",
    ),
    "any": (UNRECORDED,),
    "leases": ("acquire", "renew", "release", "lost", "guarded"),
}  # fmt: skip


MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "ops": {
        "index": "the operation's number",
        "process": "the logical client; a new one after each unknown outcome",
        "worker": "the slot of concurrency that the client ran in",
        "f": "the verb",
        "key": "the object",
        "argument": "JSON",
        "result": "JSON",
        "call": "when the operation began",
        "ret": "when it ended; null for `info`: it may take effect at any time from `call` on, or never",
        "outcome": "`ok`, `fail` or `info`",
        "error": "a short stable name; details follow a colon",
        "phase": "`main`, `sentinel` or `drain`",
        "scheduled": "when an open loop meant to call the operation; null in a closed loop",
    },
    "effects": {
        "op": "the operation's `index`",
        "sub": "the rank among the operation's effects; in a transaction the order of its parts",
        "request": "one number for all rows of one message set",
        "process": "the operation's process",
        "key": "the object; the second life of topic `orders` is `orders#2`",
        "kind": "the object's type and the action, such as `set-read`",
        "position": "an offset in a log",
        "value": "the value written or seen: of a message, an object, a setting, a commit, or a count of partitions",
        "expected": "the value that a compare-and-set expected",
        "leader_epoch": "the leader epoch of the node that answered",
        "generation": "the group's generation; -1: the client is no member",
        "token": "the lease's fencing token",
        "owner": "who holds something: a member, a consumer, a lease's holder",
        "group": "the group's name",
        "assignment": "the number of a hold: new after each assignment, seek or reset",
        "node": "the node that answered",
        "version": "the number that the register's system gives each change",
        "list_index": "the place of an element in the list that a transaction read",
        "message_key": "the key of a message",
        "tombstone": "the message has no body and deletes its key",
        "timestamp": "a message's create time, sent, shown or looked for, in milliseconds of the wall clock",
        "size": "an upper bound of the message's bytes on disk",
        "name": "the setting that an administrator's operation is about; a unique id that is text",
        "replicas": "the nodes of a partition by number: `1,2,3`",
        "incarnation": "which life of `node` answered, as in its event log",
        "source": "who reported a message's outcome to the client: a callback, or an account",
        "client": "which of the worker's clients tried: `regular`, `newcomer` or `large-request`",
        "retention_ms": "how long an offset is to be kept",
        "max_wait_ms": "how long a fetch might wait for a record",
        "waited_ms": "how long the fetch waited",
        "empty": "the fetch was answered without a record",
        "call": "when the operation began",
        "ret": "when the operation ended",
        "outcome": "the effect's own outcome",
        "error": "the effect's own error",
        "phase": "the operation's phase",
    },
    "faults": {
        "id": "the number of the step in the schedule",
        "fault": "the fault's name",
        "targets": "a JSON list of nodes",
        "phase": "`intended`, `injected`, `healed`, `recovered` or `failed`",
        "time": "when the phase was reached",
        "detail": "JSON: evidence, the trigger, and of an injected fault `began`, when its injection began",
        "took_effect": "of a healed fault: evidence proves that it took effect",
        "stage": "of a failed fault: the stage at which it failed",
        "not_before": "of an intended fault: the earliest time at which it may begin",
        "on_clients": "a client node is among the targets",
        "ends_process": "the targets' main processes end",
        "pauses_process": "the targets' main processes stand still",
        "gradual": "processes end or pause some time after the injection",
        "cuts_links": "packets of the targets are dropped or rejected",
        "loses_unsynced": "data that was not fsynced may be lost",
        "damages_files": "the targets' files are changed",
        "wrong_clock": "the targets' wall clocks are wrong",
        "moves_replicas": "replicas move to other servers",
    },
    "events": {
        "time": "the node's own clock, shifted to the run's; for display only",
        "node": "the node that wrote the line",
        "incarnation": "which life of the node's process",
        "seq": "the line's number in that life; events are ordered by it",
        "event": "the event's name",
        "key": "a partition, a topic or a group; null: the event is about the node",
        "epoch": "a leader epoch",
        "controller_epoch": "a controller epoch",
        "zxid": "a ZooKeeper transaction id",
        "position": "an offset; depends on the event",
        "value": "a number; depends on the event",
        "owner": "a member; depends on the event",
        "detail": "JSON: everything else",
        "high_watermark": "the node's high watermark of `key` at that moment",
        "log_start": "the node's log start of `key`",
        "log_end": "the node's log end of `key`",
        "version": "the version of the partition's state",
        "isr": "the in-sync replicas in that version",
        "elr": "the eligible leader replicas in that version",
        "replicas": "of a move: the replicas after it",
        "gone": "of a move: the replicas that it removes",
        "min_insync": "the `min.insync.replicas` that an election used",
        "unclean": "the election allowed an unclean leader",
        "replica": "of a transition: the number of the replica's node; null: the partition itself",
        "from_state": "the state before a transition; null: the object existed before this controller",
        "to_state": "the state after a transition",
        "osr": "the assigned replicas that are not in `isr`",
    },
    "replicas": {
        "node": "the node whose disk was read",
        "key": "the partition, by its name in the cluster",
        "position": "the record's offset",
        "value": "the record's value",
        "crc": "the record's checksum",
        "epoch": "the record's leader epoch",
        "below_hw": "the record lies below the high watermark that counts for this replica",
        "in_isr": "the node is in the in-sync set",
        "epoch_start": "where the record's epoch begins, by the node's own history",
        "high_watermark": "in one row for each replica, which stands for its log end: the checkpointed high watermark",
        "log_start": "in the same row: the checkpointed log start; null if the log may have gaps",
    },
    "looks": {
        "look": "the look's number, from 1",
        "time": "when the look began, by the harness's clock",
        "ended": "when the look ended",
        "what": "the type of the row",
        "key": "the topic or partition, by its name in the cluster",
        "node": "the node on which it was seen",
        "broker": "a broker's number",
        "zxid": "the transaction that created what was seen",
        "settings": "a fingerprint of a topic's settings",
        "epoch": "the leader epoch",
        "leader": "the leader's number; -1: none",
        "replicas": "the assigned replicas, `1,2,3`",
        "members": "the in-sync replicas",
        "removing": "the replicas that a move removes",
        "high_watermark": "of a replica; -1: its log is damaged",
        "log_end": "of a replica; -1: its log is damaged",
        "position": "an offset that was acknowledged",
        "acknowledgements": "how many acknowledgements were inspected",
        "base_offset": "a segment's first offset",
        "end_offset": "the offset after a segment's last one",
        "timestamp": "a segment's greatest timestamp",
        "size": "a segment's bytes",
        "flushed": "the replica's log is on the disk below this offset",
        "flush_ms": "the `flush.ms` in force",
        "unsynced": "how many bytes of its segments a power loss could take",
        "retention_ms": "the topic's `retention.ms`; -1: no limit",
        "retention_bytes": "the topic's `retention.bytes`; -1: no limit",
        "retention_check_ms": "how often the node looks for segments to delete",
        "wall_ms": "the time of day in milliseconds",
        "unsettled": "how many things have not come to their end, by the system's own account",
        "invariant": "the name of an invariant",
        "claim": "a sentence that says what broke the invariant",
        "assertions": "how often the invariant was checked",
    },
}
"""Table to column to a clause in Markdown."""
