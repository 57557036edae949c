"""What brokers have at the instant at which a client learns that its send was acknowledged: seen from outside, at once.

For testers, in the simulation, where disks and ZooKeeper's tree can be read while no time passes. An acknowledgement
with acks=all means that every member of the in-sync set has the record; with ``flush.messages=1``, that each has it
durably. A client that reads finds out that this was not so only if just those members are lost. Here it shows at once.

Which members count: those of the set that ZooKeeper has, each under the registration by which it was admitted, if that
is in force and was made by the process that is alive: a broker that was started again may have lost what it had in
memory, and counts when it has caught up. That is safe at any instant after the acknowledgement, and not only at the
leader's: who joins the set later has caught up with the high watermark; who leads later was a member; and no member
cuts below the high watermark.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from assay.system_under_test.cluster_snapshot import LOG_SUFFIX, Seen
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import PartitionState, TopicSettings

ENTRY_HEADER: Final = struct.Struct(">qi")
"""Offset and size of an entry of a log file."""
FLUSH_MESSAGES: Final = "flush.messages"


@dataclass
class _Ends:
    """Of one log file: where the entries end that were walked so far, and the offset after the last."""

    life: object
    size: int
    end: int


@dataclass
class Inspection:
    """Of one cluster's disks and its tree in ZooKeeper. ``epoch``: the wall clock, in seconds, when the loop's was 0;
    ``flushes``: brokers have ``flush.messages=1`` by default.
    """

    brokers: Mapping[int, Any]
    tree: Any
    data: str
    epoch: float
    flushes: bool
    looks: int = 0
    _seen: dict[tuple[int, str, bool], _Ends] = field(default_factory=dict)
    _held: dict[tuple[int, str], object] = field(default_factory=dict)

    def acknowledged(self, key: str, position: int) -> Sequence[Mapping[str, Any]]:
        """``lacking`` for a member whose log ends at or below ``position``, ``undurable`` for one that has it, where a
        loss of power may take it: ``log_end`` is where it ends, or ends for sure. ``key`` is the history's.
        """
        topic, _, index = key.rpartition("-")
        topic = topic.partition("#")[0]
        try:
            state, _ = self.read(PartitionState, paths.state(topic, int(index)))
            durably = self.flushed(topic)
            if self.tree.exists(paths.delete_topic(topic)) is not None:
                return ()
        except (NoNodeError, ValueError):
            return ()
        self.looks += 1
        found = []
        for member in self.members(state):
            node = self.brokers[member]
            sure = self.end(node, f"{topic}-{index}", durably=durably)
            if sure > position:
                continue  # what is durable is seen, too
            end = self.end(node, f"{topic}-{index}", durably=False)
            if end <= position:
                found.append(Seen("lacking", key, node.name, position=position, log_end=end))
            else:
                found.append(Seen("undurable", key, node.name, position=position, log_end=sure))
        return [vars(one) for one in found]

    def looked_at(self) -> Sequence[Mapping[str, Any]]:
        """One row, ``inspected``: how many ``acknowledgements``."""
        return (vars(Seen("inspected", acknowledgements=self.looks)),)

    def read(self, kind: Any, path: str) -> tuple[Any, Any]:
        """What the znode says, and its stat."""
        data, stat = self.tree.get(path)
        return znodes.decode(kind, path, data), stat

    def flushed(self, topic: str) -> bool:
        """Has the topic flushed every message since it was made? Not known once its settings were changed: brokers
        learn of a change one after the other, and what was taken before then is flushed as it was.
        """
        if not self.flushes:
            return False
        try:
            settings, stat = self.read(TopicSettings, paths.topic_config(topic))
        except NoNodeError:
            return True
        return bool(stat.version == 0 and settings.config.get(FLUSH_MESSAGES, "1") == "1")

    def members(self, state: PartitionState) -> Iterable[int]:
        for member in state.isr:
            registered = self.tree.exists(paths.broker(member))
            since = self.brokers[member].alive_since
            if registered is None or since is None:
                continue
            if registered.czxid == state.isr_epochs.get(str(member)) and registered.ctime > (self.epoch + since) * 1000:
                yield member

    def end(self, node: Any, partition: str, *, durably: bool) -> int:
        """The log end offset of what is seen, or of what is durable; -1 where there is no log.

        Only the last file is walked, and of it what was added since: sealed ones do not change, and are durable
        before the next one's name is. One that has nothing yet says nothing: a roll that failed may have left it, and
        the file before it went on. Below one that is alone, retention has taken all.
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
            known = self._seen.get((node.index, path, durably))
            if known is None or known.life != state.life or known.size > limit:
                known = self._seen[node.index, path, durably] = _Ends(state.life, 0, base)
                self._held[node.index, path] = state.held
            _walk(known, node.disk.tail(path, known.size)[: limit - known.size])
            return known.end
        return end


def _walk(known: _Ends, data: bytes) -> None:
    """Goes over the whole entries of what follows."""
    position = 0
    while position + ENTRY_HEADER.size <= len(data):
        offset, size = ENTRY_HEADER.unpack_from(data, position)
        if size <= 0 or position + ENTRY_HEADER.size + size > len(data):
            break
        position += ENTRY_HEADER.size + size
        known.end = offset + 1
    known.size += position
