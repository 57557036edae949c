"""Optional abilities of nodes that faults need, with the message for a server that lacks one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from assay.cluster.node import (
    Cluster,
    Node,
    SupportsClockShift,
    SupportsDataRestore,
    SupportsDiskErrors,
    SupportsDiskFull,
    SupportsFreezing,
    SupportsImageChange,
    SupportsMemoryLimit,
    SupportsPacketShaping,
    SupportsPowerLoss,
    SupportsSlowDisk,
)
from assay.cluster.second_copy import SupportsSecondCopy

SIM_REMEDY: Final = ": use --cluster=sim"


@dataclass(frozen=True)
class Ability:
    """An ability that every server must have.

    - ``protocol``: the protocol of nodes with the ability. Its method ``..._unavailable``, if there is one, returns why
      a node still lacks the ability.
    - ``lacking``: the message for a node without the protocol; ``{kind}`` is the cluster's kind.
    - ``refused``: the message before the reason of ``..._unavailable``; ``{node}`` is the node's name.
    """

    protocol: type
    lacking: str
    refused: str = ""

    async def explain_lack(self, cluster: Cluster, nodes: Sequence[Node]) -> str | None:
        """Returns why one of the nodes lacks it, or None."""
        methods = [name for name in vars(self.protocol) if name.endswith("_unavailable")]
        for node in nodes:
            if not isinstance(node, self.protocol):
                return self.lacking.format(kind=cluster.kind)
            for method in methods:
                answer = getattr(node, method)()
                reason = await answer if inspect.isawaitable(answer) else answer
                if reason is not None:
                    return self.format_refusal(node.name, reason)
        return None

    def format_refusal(self, node: str, reason: str) -> str:
        """Returns the message for a node that lacks the ability for this reason."""
        return f"{self.refused.format(node=node)}: {reason}"


def _make_part_ability(protocol: type, part: str, done: str) -> Ability:
    """Returns the ability to change a part of a node. ``done``: the change as a participle, for the messages."""
    return Ability(
        protocol,
        f"the {part} of a {{kind}} node cannot be {done}{SIM_REMEDY}",
        f"the {part} of {{node}} cannot be {done}",
    )


POWER_LOSS: Final = _make_part_ability(SupportsPowerLoss, "power", "cut")
DISK_FULL: Final = _make_part_ability(SupportsDiskFull, "disk", "filled")
SLOW_DISK: Final = _make_part_ability(SupportsSlowDisk, "disk", "made slow")
DISK_ERRORS: Final = _make_part_ability(SupportsDiskErrors, "disk", "made to fail")
CLOCK_SHIFT: Final = _make_part_ability(SupportsClockShift, "clock", "set")
DATA_RESTORE: Final = Ability(
    SupportsDataRestore, f"the data of a {{kind}} node cannot be removed and put back{SIM_REMEDY}"
)
FREEZING: Final = Ability(
    SupportsFreezing, "a {kind} node's machine cannot be frozen; use stop", "the machine of {node} cannot be frozen"
)
MEMORY_LIMIT: Final = Ability(
    SupportsMemoryLimit, f"a {{kind}} node cannot run out of memory{SIM_REMEDY}", "{node} cannot run out of memory"
)
PACKET_SHAPING: Final = Ability(
    SupportsPacketShaping,
    f"the packets of a {{kind}} node cannot be delayed{SIM_REMEDY}",
    "the packets of {node} cannot be queued",
)
IMAGE_CHANGE: Final = Ability(
    SupportsImageChange,
    "a {kind} node has no image that could be changed: use --cluster=docker and a Compose file",
    "the image of {node} cannot be changed",
)
SECOND_COPY: Final = Ability(
    SupportsSecondCopy,
    f"a {{kind}} node cannot run a second copy of its process{SIM_REMEDY}",
    "{node} cannot run a second copy of its process",
)
