"""The roles of replicas, read from the brokers' event logs, for invariants that compare replicas."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.system_under_test.invariants.invariant import EventLine

UNKNOWN = -1


@dataclass
class ObservedRole:
    """The role of one replica since the last start of its broker."""

    topic_zxid: int | None
    epoch: int = UNKNOWN
    """The latest leader epoch that the replica has accepted."""
    leads: bool = False
    is_prefix: bool = False
    """Whether the log is a prefix of the leader's in this epoch.

    It is if the replica leads, or has reconciled: it has removed the records that the leader's log does not have.
    """
    damaged: bool = False
    term_start: int = 0
    """A leader's log end when its term began."""
    committed_isr: frozenset[int] = frozenset()
    """The in-sync set that a leader knows to be in ZooKeeper."""
    proposed_isr: frozenset[int] = frozenset()
    """A later in-sync set that the leader may have written to ZooKeeper; empty if there is none."""
    high_watermark: int = 0
    """The replica's highest known high watermark. A truncation lowers it to the log end."""


class ObservedRoles:
    """The roles of all brokers' replicas. Gets each node's lines in their order. ``nodes``: the brokers, by name."""

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        self._nodes = nodes
        self._roles: defaultdict[str, dict[str, ObservedRole]] = defaultdict(dict)
        """By key and node."""
        self._incarnations: dict[str, int] = {}
        self._started_at: dict[str, float | None] = {}
        """By node: the start time of the process that wrote its last line."""
        self.unclean: set[str] = set()
        """Partitions for which a replica that lacked committed records may have been elected."""

    def find(self, node: str, key: str) -> ObservedRole | None:
        """Returns a replica's role; None if no event since the node's last start names the replica."""
        return None if self._has_restarted(node) else self._roles[key].get(node)

    def find_all(self, key: str) -> Iterator[tuple[str, ObservedRole]]:
        """Yields the node and the role of each replica of the partition, in the order of the nodes' names."""
        yield from ((node, role) for node, role in sorted(self._roles[key].items()) if not self._has_restarted(node))

    def _has_restarted(self, node: str) -> bool:
        """Returns whether the node's process is new and has written no line yet, so it has not recovered its logs."""
        started_at = self._nodes[node].alive_since
        return started_at is not None and started_at != self._started_at.get(node)

    def apply(self, node: str, line: EventLine) -> None:
        """Updates the roles by a new line."""
        self._started_at[node] = self._nodes[node].alive_since
        if self._incarnations.setdefault(node, line.incarnation) != line.incarnation:
            self._incarnations[node] = line.incarnation
            for roles in self._roles.values():
                roles.pop(node, None)
        if line.key is None:
            return
        if line.event == "partition-state-written" and line.unclean:
            self.unclean.add(line.key)
        if line.event == "recovered":
            self._roles[line.key][node] = ObservedRole(
                line.topic_zxid, damaged=bool((line.detail or {}).get("damaged"))
            )
        role = self._roles[line.key].get(node)
        if role is not None:
            self._update(role, line)

    def _update(self, role: ObservedRole, line: EventLine) -> None:
        members = frozenset(line.isr or ())
        match line.event:
            case "recovered":
                role.high_watermark = line.high_watermark or 0
            case "became-leader":
                role.epoch, role.leads, role.is_prefix = _to_epoch(line), True, True
                role.term_start = line.position or 0
                role.committed_isr, role.proposed_isr = members, frozenset()
                role.high_watermark = max(role.high_watermark, line.high_watermark or 0)
            case "became-follower":
                role.epoch, role.leads, role.is_prefix = _to_epoch(line), False, False
            case "reconciled":
                role.is_prefix, role.damaged = role.epoch == line.epoch, False
            case "isr-proposed":
                role.proposed_isr = members
            case "isr-change":
                role.committed_isr, role.proposed_isr = members, frozenset()
            case "high-watermark":
                role.high_watermark = max(role.high_watermark, line.high_watermark or 0)
            case "truncated":
                role.high_watermark = min(role.high_watermark, line.position or 0)
            case "log-damaged" | "replica-offline":
                role.damaged, role.leads, role.is_prefix = True, False, False


def _to_epoch(line: EventLine) -> int:
    return UNKNOWN if line.epoch is None else line.epoch
