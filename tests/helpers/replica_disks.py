"""Replicas on simulated disks, made by hand, for what is read off disks at an instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace

from kazoo.exceptions import NoNodeError

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, format_lines
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.records.message import Message, encode
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import PartitionState, TopicAssignment
from assay.system_under_test.zookeeper.znodes import encode as encode_znode

DATA = "/data"


@dataclass
class Node:
    """As much of a simulated node as is looked at."""

    index: int
    disk: SimDisk = field(default_factory=lambda: SimDisk(Random(0)))
    running: bool = True
    damaged: bool = False
    losses: int = 0
    alive_since: float | None = 0.0

    @property
    def name(self) -> str:
        return f"n{self.index}"


def entries(records: Mapping[int, str]) -> bytes:
    """Returns the bytes of a log file. ``records`` maps offsets to values."""
    return b"".join(encode(Message(at, 1, 0, 5, None, value.encode())) for at, value in records.items())


def log(node: Node, key: str, data: bytes, epochs: Sequence[tuple[int, int]] = ((0, 0),), base: int = 0) -> None:
    """Puts a log of one file there. ``epochs``: (epoch, offset at which it begins)."""
    node.disk.write(f"{DATA}/{key}/{base:020}.log", data)
    node.disk.write(f"{DATA}/{key}/{EPOCHS}", format_lines(f"{epoch} {start}" for epoch, start in epochs))


def mark(node: Node, topic: str, offset: int) -> None:
    """Notes a high watermark of the topic's first partition."""
    node.disk.write(f"{DATA}/{HIGH_WATERMARKS}", format_lines([f"{topic} 0 {offset}"]))


class Tree:
    """As much of ZooKeeper's tree as is looked at: each znode with its stat."""

    def __init__(self) -> None:
        self.znodes: dict[str, tuple[bytes, SimpleNamespace]] = {}

    def put(self, path: str, value: object, czxid: int = 1, ctime: float = 1_000.0) -> None:
        data = value if isinstance(value, bytes) else encode_znode(value)
        self.znodes[path] = data, SimpleNamespace(czxid=czxid, ctime=ctime, version=0)

    def get(self, path: str) -> tuple[bytes, SimpleNamespace]:
        if path not in self.znodes:
            raise NoNodeError(path)
        return self.znodes[path]

    def exists(self, path: str) -> SimpleNamespace | None:
        return self.znodes[path][1] if path in self.znodes else None


def cluster(
    topic: str, czxid: int, *, members: Sequence[int] = (1, 2, 3), flushes: bool = False
) -> AcknowledgementInspection:
    """Three brokers, registered with 10 times their number, and a topic of one partition with this in-sync set."""
    tree = Tree()
    tree.put(paths.topic(topic), TopicAssignment({"0": [1, 2, 3]}), czxid)
    admitted = {str(member): 10 * member for member in members}
    tree.put(paths.partition_state(topic, 0), PartitionState(1, members[0], 4, list(members), isr_epochs=admitted))
    for broker in (1, 2, 3):
        tree.put(paths.broker(broker), b"", 10 * broker)
    return AcknowledgementInspection({index: Node(index) for index in (1, 2, 3)}, tree, DATA, 0.0, flushes)
