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

``KINDS`` has the kinds of effects by family of objects, and ``KIND_MEANINGS`` their meanings. A history may hold other
kinds, for checks that a user adds.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

FORMAT: Final = 7
"""The format that is written. Formats 4 to 6 lack columns that came later (``translation``)."""

FORMAT_KEY: Final = b"assay-history-format"
"""The key in the metadata of a schema."""
ORIGIN_KEY: Final = b"assay-history-origin"
"""The key in the metadata that says whether a run wrote the file. Files of earlier versions lack it."""
ORIGIN_RUN: Final = b"run"
ORIGIN_OTHER: Final = b"other"
"""The origin of a history that no run wrote: a generated one, or one that another program wrote."""


class HistoryError(Exception):
    """A history cannot be read or written. The message names the file, the reason and the remedy."""


class LostRowsError(HistoryError):
    """Rows could not be converted for a file. All other rows so far are kept. The message names the lost rows."""


class Column(NamedTuple):
    """A column. ``type`` is a type name of Arrow; ``meaning`` is a clause in Markdown."""

    name: str
    type: str
    nullable: bool
    meaning: str


class DataSet(tuple[Column, ...]):
    """The columns of one data set, in order."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self]


def _define(columns: Mapping[str, str]) -> DataSet:
    """Parses keys of the form ``name:type``; a question mark after the type makes the column nullable."""
    return DataSet(
        Column(name, kind.removesuffix("?"), kind.endswith("?"), meaning)
        for key, meaning in columns.items()
        for name, _, kind in [key.partition(":")]
    )


OPS: Final = _define({
    "index:int64": "the operation's number",
    "process:int32": "the logical client; a new one after each unknown outcome",
    "worker:string": "the slot of concurrency that the client ran in",
    "f:string": "the verb",
    "key:string?": "the object",
    "argument:string": "JSON",
    "result:string?": "JSON",
    "call:int64": "when the operation began",
    "ret:int64?": "when it ended; null for `info`: it may take effect at any time from `call` on, or never",
    "outcome:string": "`ok`, `fail` or `info`",
    "error:string?": "a short stable name; details follow a colon",
    "phase:string": "`main`, `sentinel` or `drain`",
    "scheduled:int64?": "when an open loop meant to call the operation; null in a closed loop",
})  # fmt: skip

EFFECTS: Final = _define({
    "op:int64": "the operation's `index`",
    "sub:int32": "the number of the effect in its operation, from 0; in a transaction the order of its parts",
    "request:int64?": "one number for all rows of one message set",
    "process:int32": "the operation's process",
    "key:string": "the object; a topic that was created again has another key: `orders`, then `orders#2`",
    "kind:string": "the object's type and the action, such as `set-read`",
    "position:int64?": "an offset in a log",
    "value:int64?": "the value written or seen: of a message, an object, a setting, a commit, or a count of partitions",
    "expected:int64?": "the value that a compare-and-set expected",
    "leader_epoch:int64?": "the leader epoch of the node that answered",
    "generation:int64?": "the group's generation; -1: the client is no member",
    "token:int64?": "the lease's fencing token",
    "owner:string?": "who holds something: a member, a consumer, a lease's holder",
    "group:string?": "the group's name",
    "assignment:int64?": "the number of a hold: new after each assignment, seek or reset",
    "node:string?": "the node that answered",
    "version:int64?": "the number that the register's system gives each change",
    "list_index:int64?": "the place of an element in the list that a transaction read",
    "message_key:string?": "the key of a message",
    "tombstone:bool?": "the message has no body and deletes its key",
    "timestamp:int64?": "a message's create time, sent, shown or looked for, in milliseconds of the wall clock",
    "size:int64?": "an upper bound of the message's bytes on disk",
    "name:string?": "the setting that an administrator's operation is about; a unique id that is text",
    "replicas:string?": "the nodes of a partition by number: `1,2,3`",
    "incarnation:int64?": "the incarnation of `node` that answered, as in its event log",
    "source:string?": "who reported a message's outcome to the client: a callback, or `account` (a flush or close)",
    "client:string?": "which of the worker's clients tried: `regular`, `newcomer` or `large-request`",
    "retention_ms:int64?": "how long an offset is to be kept",
    "max_wait_ms:int64?": "how long a fetch might wait for a record",
    "waited_ms:int64?": "how long the fetch waited",
    "empty:bool?": "the fetch was answered without a record",
    "call:int64": "when the operation began",
    "ret:int64?": "when the operation ended",
    "outcome:string": "the effect's own outcome",
    "error:string?": "the effect's own error",
    "phase:string": "the operation's phase",
})  # fmt: skip
"""Each family of checks documents the columns that it reads of each kind."""

FAULTS: Final = _define({
    "id:int64": "the number of the step in the schedule",
    "fault:string": "the fault's name",
    "targets:string": "a JSON list of nodes",
    "phase:string": "`intended`, `injected`, `healed`, `recovered` or `failed`",
    "time:int64": "when the phase was reached",
    "detail:string": "JSON: evidence, the trigger, and of an injected fault `began`, when its injection began",
    "took_effect:bool?": "of a healed fault: evidence proves that it took effect",
    "stage:string?": "of a failed fault: the stage at which it failed",
    "not_before:int64?": "of an intended fault: the earliest time at which it may begin",
    "on_clients:bool?": "a client node is among the targets",
    "ends_process:bool?": "the targets' main processes end",
    "pauses_process:bool?": "the targets' main processes stand still",
    "gradual:bool?": "processes end or pause some time after the injection",
    "cuts_links:bool?": "packets of the targets are dropped or rejected",
    "loses_unsynced:bool?": "data that was not fsynced may be lost",
    "damages_files:bool?": "the targets' files are changed",
    "wrong_clock:bool?": "the targets' wall clocks are wrong",
    "moves_replicas:bool?": "replicas move to other servers",
})  # fmt: skip
"""A heal that fails is retried. The columns from ``ends_process`` on state the declared impact on the targets
(``assay.nemesis.faults.fault``); null means unknown.
"""

EVENTS: Final = _define({
    "time:int64": "the node's own clock, shifted to the run's; for display only",
    "node:string": "the node that wrote the line",
    "incarnation:int64": "the incarnation of the node's process",
    "seq:int64": "the line's number in that incarnation; events are ordered by it",
    "event:string": "the event's name",
    "key:string?": "a partition, a topic or a group; null: the event is about the node",
    "epoch:int64?": "a leader epoch",
    "controller_epoch:int64?": "a controller epoch",
    "zxid:int64?": "a ZooKeeper transaction id",
    "position:int64?": "an offset; depends on the event",
    "value:int64?": "a number; depends on the event",
    "owner:string?": "a member; depends on the event",
    "detail:string": "JSON: everything else",
    "high_watermark:int64?": "the node's high watermark of `key` at that moment",
    "log_start:int64?": "the node's log start of `key`",
    "log_end:int64?": "the node's log end of `key`",
    "version:int64?": "the version of the partition's state",
    "isr:string?": "the in-sync replicas in that version",
    "elr:string?": "the eligible leader replicas in that version",
    "replicas:string?": "of a move: the replicas after it",
    "gone:string?": "of a move: the replicas that it removes",
    "min_insync:int64?": "the `min.insync.replicas` that an election used",
    "unclean:bool?": "the election allowed an unclean leader",
    "replica:int64?": "of a transition: the number of the replica's node; null: the partition itself",
    "from_state:string?": "the state before a transition; null: the object existed before this controller",
    "to_state:string?": "the state after a transition",
    "osr:string?": "the assigned replicas that are not in `isr`",
})  # fmt: skip
"""Events are ordered by (node, incarnation, seq), because ``time`` is only for display. Lists of nodes are numbers with
commas between.
"""

NODE_LISTS: Final = ("isr", "elr", "replicas", "gone", "osr")
"""Columns of ``events`` that are lists of node numbers in event logs."""

REPLICAS: Final = _define({
    "node:string": "the node whose disk was read",
    "key:string": "the partition, by its name in the cluster",
    "position:int64": "the record's offset",
    "value:int64?": "the record's value",
    "crc:int64?": "the record's checksum",
    "epoch:int64?": "the record's leader epoch",
    "below_hw:bool": "the record lies below the leader's high watermark, or below the node's own if the node is not in "
    "the in-sync set",
    "in_isr:bool": "the node is in the in-sync set",
    "epoch_start:int64?": "the first offset of the record's epoch, by the node's own leader epoch history",
    "high_watermark:int64?": "in one row for each replica, which stands for its log end: the checkpointed high "
    "watermark",
    "log_start:int64?": "in the same row: the checkpointed log start; null if the log may have gaps",
})  # fmt: skip
"""Each record on disk has one row. Each replica has one more row, at its log end, which is no record: it has the
``high_watermark`` that the node has checkpointed, and ``log_start``.
"""

LOOKS: Final = _define({
    "look:int64": "the look's number, from 1",
    "time:int64": "when the look began, by the harness's clock",
    "ended:int64": "when the look ended",
    "what:string": "the type of the row",
    "key:string?": "the topic or partition, by its name in the cluster",
    "node:string?": "the node on which it was seen",
    "broker:int64?": "a broker's number",
    "zxid:int64?": "the transaction that created what was seen",
    "settings:int64?": "a fingerprint of a topic's settings",
    "epoch:int64?": "the leader epoch",
    "leader:int64?": "the leader's number; -1: none",
    "replicas:string?": "the assigned replicas, `1,2,3`",
    "members:string?": "the in-sync replicas",
    "removing:string?": "the replicas that a move removes",
    "high_watermark:int64?": "of a replica; -1: its log is damaged",
    "log_end:int64?": "of a replica; -1: its log is damaged",
    "position:int64?": "an offset that was acknowledged",
    "acknowledgements:int64?": "how many acknowledgements were inspected",
    "base_offset:int64?": "a segment's first offset",
    "end_offset:int64?": "the offset after a segment's last one",
    "timestamp:int64?": "a segment's greatest timestamp",
    "size:int64?": "a segment's bytes",
    "flushed:int64?": "the part of the replica's log below this offset is on the disk",
    "flush_ms:int64?": "the effective `flush.ms`",
    "unsynced:int64?": "how many bytes of its segments a power loss could take",
    "retention_ms:int64?": "the topic's `retention.ms`; -1: no limit",
    "retention_bytes:int64?": "the topic's `retention.bytes`; -1: no limit",
    "retention_check_ms:int64?": "how often the node looks for segments to delete",
    "wall_ms:int64?": "the time of day in milliseconds, by the slowest clock of a node",
    "unsettled:int64?": "the system's own count of unfinished work",
    "invariant:string?": "the name of an invariant",
    "claim:string?": "a sentence that says what broke the invariant",
    "assertions:int64?": "how often the invariant was checked",
})  # fmt: skip
"""Snapshots of the system at rest: look 1, 2, ..., each taken from ``time`` to ``ended``.

``what`` is the subject of the row. Each look has one row ``look`` with ``wall_ms`` and ``unsettled``. Lists of nodes
are numbers with commas between.
"""

LOOK_MEANINGS: Final[Mapping[str, str]] = {
    "look": "the look is complete: `wall_ms`, `unsettled`",
    "broker, answer": "`node` is registered, with `broker` and `zxid`; `node` answered questions, registered or not",
    "topic": "`zxid`, `settings`, and the limits `retention_ms`, `retention_bytes`, `retention_check_ms`",
    "partition": "`zxid` of its topic, `replicas`; its state: `epoch`, `leader`, `members`",
    "move": "a move that is under way: `replicas`, `removing`",
    "deletion, settings, known": (
        "a topic that is to be deleted; one that has settings of its own in ZooKeeper; one that `node` knows"
    ),
    "routed": "a partition in the metadata that `node` answers: `leader`, `replicas`, `members`",
    "role": "a replica as its broker reports it: `epoch`, `high_watermark`, `log_end`, and the `settings` in force",
    "flushed": (
        "a replica as its broker reports it, if it is not damaged: records below `flushed` of `log_end` are on the "
        "disk, with `flush_ms` in force; `unsynced`: the number of bytes of its segments that a power loss could "
        "take, if the node's disk can tell"
    ),
    "folder": "a replica's folder on a disk, made for the topic of this `zxid`",
    "segment": (
        "of topics with short retention: `base_offset`, `end_offset`, `timestamp`, `size`; the last segment of a log "
        "has neither end nor time"
    ),
    "process, ended": "look 0: the server process of `node` was alive, or dead, once every fault was healed",
    "crashed": "look 0, in the simulation: the server process of `node` ended at `time` by an exception",
    "asserted": "look 0, in the simulation: `assertions` says how often `invariant` was verified during the run",
    "broken": (
        "look 0, in the simulation: `invariant` did not hold at `time`, which ended the run: `claim`, with `node` and"
        " perhaps `key`, `epoch`, `position`"
    ),
    "inspected": "look 0, in the simulation: `acknowledgements` says at how many of them the disks were read",
    "lacking, undurable": (
        "look 0, in the simulation: when offset `position` of `key` was acknowledged, the in-sync member `node` had "
        "no record from `log_end` on, or none that would survive a power loss"
    ),
}
"""Meanings of ``what`` in ``looks``, in Markdown; subjects with one meaning are named together."""

DATA_SETS: Final[Mapping[str, DataSet]] = {
    "ops": OPS,
    "effects": EFFECTS,
    "faults": FAULTS,
    "events": EVENTS,
    "replicas": REPLICAS,
    "looks": LOOKS,
}

MAY_BE_MISSING: Final = ("looks",)
"""Data sets that a history from elsewhere may lack; they read as empty then."""

DIGESTED = ("ops", "effects", "faults")
"""The data sets that must be equal in two simulated runs of one seed."""

REPORTED_DATA_SETS = ("events", "replicas", "looks")
"""The other data sets. Their digest only shows that the files have not changed since the run."""

CLOSED = "closed.json"
"""The file that is written last: ``{"digest": ..., "reported": ..., "rows": {name: rows}}``.

``digest`` covers the data sets in ``DIGESTED``, and ``reported`` those in ``REPORTED_DATA_SETS``. If the file is
missing, the run was cut short.
"""

WORKER_NODES: Final = "through.json"
"""The file that names the node through which each worker's clients reached the system, if known. No check reads it."""

UNRECORDED: Final = "unrecorded"
"""The effects of an operation are unknown because the client's ``effects`` raised."""

KIND_MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "log": {
        "append": (
            "a value was sent: `position`, `value`, `request`, `node`, `leader_epoch`, `message_key`, `tombstone`, "
            "`timestamp`, `size`"
        ),
        "observe-begin, observe, observe-end": (
            "a poll: the offset fetched; each record's `position`, `value`, `message_key` and `timestamp`; the next "
            "offset. All with `assignment`"
        ),
        "seek, reset": "`position`: the offset at which reading continues",
        "end, start": (
            "`position`: the log's end offset, its start offset; both with `leader_epoch`, `node` and `incarnation` "
            "if known"
        ),
        "look-up": (
            "`timestamp`: the requested time; `position`: the answer, the first offset whose timestamp is at or after"
            " that time; null if there is none"
        ),
        "drained": "`position`: the end offset at which the drain stopped: the sentinel's offset plus one",
        "waited": (
            "a fetch at `position`, the log's end. `max_wait_ms`: the requested wait; `waited_ms`: the time until the"
            " answer; `empty`: whether it had no record"
        ),
        "out-of-range": "a fetch at `position` got the answer that the offset is out of range",
        "reported, unreported": (
            "the producer reported the fate of `value` to `source`: `outcome`, `position`; or it should have reported"
            " and did not"
        ),
        "tried": (
            "a client sent a request that must succeed, to a log (`topic-partition`) or a register; `client`: which "
            "of its worker's clients, `regular`, `newcomer` or `large-request`"
        ),
    },
    "admin": {
        "topic-create, topic-delete, partitions-add": "`key` is the topic; `value`: the requested number of partitions",
        "setting": "`key` is the topic; `name`, and the number `value`: `retention.ms` is 60000",
        "move": "`key` is the partition; `replicas`",
        "topic-seen, setting-seen, replicas-seen": (
            "what a later look found: `value` partitions, null if there is no such topic; `name` and `value`; "
            "`replicas`. A `setting-seen` without `name` says that the look shows all settings that the topic has of "
            "its own: any other is at its default"
        ),
    },
    "register": {
        "register-write, register-read": "`value`; `version` if the system has one",
        "register-cas": "`expected`, `value`; `version`",
    },
    "counter": {
        "counter-add, counter-read": "`value`: the count before the add; the count",
    },
    "max-register": {
        "max-write, max-read": "`value`",
    },
    "set": {
        "set-add, set-remove": "`value`: the element",
        "set-read": "one row for each element; one with a null `value` if there is none",
    },
    "bank": {
        "bank-open": (
            "`owner`: an account, `value`: its first balance. If only the total is known, `value` is null, and one "
            "more row without `owner` has the total"
        ),
        "bank-withdraw, bank-deposit": "one of each for a transfer: `owner`, and the amount `value`",
        "bank-read": (
            "one row for each account: `owner`, and its balance `value`; one with neither of them if there is none"
        ),
    },
    "unique-ids": {
        "id-generate": "the id that a client got: the number `value`, or the text `name`",
    },
    "monotonic": {
        "monotonic-add": "`value`: the result of the addition; null if it is not known",
        "monotonic-read": "one row for each value that the read shows; null if the counter does not exist",
    },
    "queue": {
        "queue-enqueue, queue-dequeue": "`value`; an ok dequeue without one found the queue empty",
        "queue-drained": (
            "a drain found the end of the queue. With outcome info, its end and the elements that it took are unknown"
        ),
    },
    "transactions": {
        "txn-append, txn-write": "`value`; `sub` is the order in the transaction",
        "txn-read": "`value` of a register; or one row for each element of a list, with `list_index`",
    },
    "groups": {
        "acquire, release, lost": (
            "a member got, gave up, or lost the partition `key`: `group`, `owner`, `generation`, `assignment`; "
            "`position`: where a hold ended, if that is known"
        ),
        "claim, share": (
            "for groups whose members assign partitions by themselves. `claim`: the member `owner` takes the "
            "partition `key`, by its view of the group; `share`: by the same view, the partition belongs to the "
            "member `owner`. `version`: the latest change of members in the view; `value`: the number of the claim. "
            "Both numbers are of one sequence (in ZooKeeper: zxids), so they can be compared. All rows of one claim "
            "have equal `version` and equal `value`"
        ),
        "idle": "a member has nothing to report; `key` is the group",
        "commit, fetched": (
            "`key` names group and partition: `value`, a unique number, and `position`; for a commit by a member, "
            "also its `generation` and the `assignment` under which it read"
        ),
        "advance, resume": (
            "for offsets that only move forward. `advance`: a commit of `position`; `resume`: a new owner begins at "
            "`position`. `key` and `group` as for `commit`"
        ),
        "keep, kept": (
            "for offsets that expire. `keep`: a commit with its unique number `value` and its `retention_ms`, and of "
            "a member also `generation` and `owner`; `kept`: a look found the commit with the number `value`, or none"
            " (null). `key` and `group` as for `commit`"
        ),
        "part": "a client has left the group `key`, if it was a member",
    },
    "any": {
        UNRECORDED: (
            "the operation's effects are unknown, because the client's `effects` raised. The verdict can only be "
            "unknown"
        ),
    },
    "leases": {
        "acquire, renew, release, lost": "without `group`, with `token`",
        "guarded": (
            "an operation with the lease's token was accepted (ok) or rejected (fail), or its outcome is unknown (info)"
        ),
    },
}
"""The kinds of effects by family of objects, and the columns that they use, in Markdown. Kinds with one meaning are
named together."""

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    family: tuple(kind for names in meanings for kind in names.split(", "))
    for family, meanings in KIND_MEANINGS.items()
}
