"""Inspects the brokers' logs at the instant at which a client learns that its send was acknowledged.

For testers, in the simulation, where disks and ZooKeeper's tree can be read while no time passes. An acknowledgement
with acks=all means that every in-sync member has the record; with ``flush.messages=1``, that each has it durably. A
reading client notices a violation only if all members with the record are lost. This inspection shows it at once.

A member of the in-sync set in ZooKeeper counts under two conditions: the registration under which it was admitted still
exists, and the live process made that registration. A restarted broker may have lost unsynced records, so it counts
only after it has rejoined the set.

The inspection is valid at any instant after the leader sent the acknowledgement:

- A replica that joins the set later has caught up with the high watermark.
- A later leader was a member.
- No member truncates below the high watermark.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from assay.system_under_test.cluster_snapshot import SnapshotRow
from assay.system_under_test.log.files import LOG_SUFFIX
from assay.system_under_test.records.message import ENTRY_HEADER
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import PartitionState, TopicSettings

FLUSH_MESSAGES: Final = "flush.messages"


@dataclass
class _WalkedFile:
    """How far a log file was read: ``size`` bytes of this ``version``, and the offset after their last entry."""

    version: object
    size: int
    end: int


@dataclass
class AcknowledgementInspection:
    """A cluster's disks and its tree in ZooKeeper.

    - ``brokers``: the simulated nodes, by broker id
    - ``data``: the path of the brokers' log directory
    - ``epoch``: the wall clock, in seconds, at time 0 of the event loop
    - ``flushes``: whether brokers have ``flush.messages=1`` by default
    """

    brokers: Mapping[int, Any]
    tree: Any
    data: str
    epoch: float
    flushes: bool
    inspected: int = 0
    """Number of acknowledgements inspected."""
    _walked: dict[tuple[int, str, bool], _WalkedFile] = field(default_factory=dict)
    _references: dict[tuple[int, str], object] = field(default_factory=dict)
    """References that keep the ``version`` of each walked file (an object id) from being reused."""

    def acknowledged(self, key: str, position: int) -> Sequence[Mapping[str, Any]]:
        """Returns a row for each member that violates the acknowledgement of the record at ``position``.

        ``key``: ``topic-partition``, or ``topic#incarnation-partition``. The rows:

        - ``lacking``: the member does not have the record; ``log_end`` is the member's log end
        - ``undurable``: the member has the record, but a power loss may take it; ``log_end`` is the durable log end
        """
        topic, _, index = key.rpartition("-")
        topic = topic.partition("#")[0]
        try:
            state, _ = self.read(PartitionState, paths.partition_state(topic, int(index)))
            durably = self.is_flushed(topic)
            if self.tree.exists(paths.delete_topic(topic)) is not None:
                return ()
        except (NoNodeError, ValueError):
            return ()
        self.inspected += 1
        found = []
        for member in self.list_counted_members(state):
            node = self.brokers[member]
            promised_end = self.read_log_end(node, f"{topic}-{index}", durably=durably)
            if promised_end > position:
                continue  # a durable record is also present
            end = self.read_log_end(node, f"{topic}-{index}", durably=False)
            if end <= position:
                found.append(SnapshotRow("lacking", key, node.name, position=position, log_end=end))
            else:
                found.append(SnapshotRow("undurable", key, node.name, position=position, log_end=promised_end))
        return [vars(one) for one in found]

    def looked_at(self) -> Sequence[Mapping[str, Any]]:
        """Returns one row, ``inspected``: the number of ``acknowledgements``."""
        return (vars(SnapshotRow("inspected", acknowledgements=self.inspected)),)

    def read(self, kind: Any, path: str) -> tuple[Any, Any]:
        """Returns the znode's value and its stat."""
        data, stat = self.tree.get(path)
        return znodes.decode(kind, path, data), stat

    def is_flushed(self, topic: str) -> bool:
        """Returns whether the topic has flushed every message since its creation.

        False if its settings were changed: brokers learn of a change one after the other, and earlier records were
        flushed under the former settings.
        """
        if not self.flushes:
            return False
        try:
            settings, stat = self.read(TopicSettings, paths.topic_config(topic))
        except NoNodeError:
            return True
        return bool(stat.version == 0 and settings.config.get(FLUSH_MESSAGES, "1") == "1")

    def list_counted_members(self, state: PartitionState) -> Iterable[int]:
        """Yields the in-sync members that count by the rule of this module.

        ``isr_epochs`` has the czxid of the registration under which each member was admitted.
        """
        for member in state.isr:
            registered = self.tree.exists(paths.broker(member))
            since = self.brokers[member].alive_since  # the start of its process, in seconds of the event loop
            if registered is None or since is None:
                continue
            if registered.czxid == state.isr_epochs.get(str(member)) and registered.ctime > (self.epoch + since) * 1000:
                yield member

    def read_log_end(self, node: Any, partition: str, *, durably: bool) -> int:
        """Returns the log end offset, or with ``durably`` the end of the durable records; -1 if there is no log.

        Only the last file is read, from where the last call ended: all other files are complete, and become durable
        before the last file's name does. An empty file is skipped, because a failed roll may have left it, and the file
        before was continued. If the empty file is the only one, retention has removed everything below.
        """
        end = -1
        folder = f"{self.data}/{partition}"
        for name in sorted((name for name in node.disk.names(folder) if name.endswith(LOG_SUFFIX)), reverse=True):
            path, base = f"{folder}/{name}", int(name.removesuffix(LOG_SUFFIX))
            state = node.disk.state(path)
            limit = state.durable if durably else state.size
            if not limit:
                end = base
                continue
            walked = self._walked.get((node.index, path, durably))
            if walked is None or walked.version != state.version or walked.size > limit:
                walked = self._walked[node.index, path, durably] = _WalkedFile(state.version, 0, base)
                self._references[node.index, path] = state.inode
            _walk(walked, node.disk.tail(path, walked.size)[: limit - walked.size])
            return walked.end
        return end


def _walk(walked: _WalkedFile, data: bytes) -> None:
    """Advances ``walked`` over the complete entries at the beginning of ``data``."""
    position = 0
    while position + ENTRY_HEADER.size <= len(data):
        offset, size = ENTRY_HEADER.unpack_from(data, position)
        if size <= 0 or position + ENTRY_HEADER.size + size > len(data):
            break
        position += ENTRY_HEADER.size + size
        walked.end = offset + 1
    walked.size += position
