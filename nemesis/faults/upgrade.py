"""Upgrade: the process is asked to end, its container gets the new image, and the process is started at the heal.

The system names the new image of each role (:class:`assay.cluster.containers.SupportsUpgrade`). The container keeps its
volumes, names and address, and a file outside of a volume is gone, as with ``docker compose up``. A node stays upgraded
until the end of the run. So with one target per step, the nodes are upgraded one after the other, and old and new ones
work together meanwhile. A node that has the new image already is only restarted.

Proof: that of a restart, and the container had the new image afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.cluster.containers import SupportsUpgrade
from assay.cluster.node import Cluster, Node, NodeError, SupportsImageChange
from assay.cluster.system import System
from assay.nemesis.faults.abilities import IMAGE_CHANGE
from assay.nemesis.faults.fault import Impact, Injection
from assay.nemesis.faults.process import evidence_of
from assay.nemesis.faults.restart import Restart
from assay.nemesis.schedule.target import TargetKind, servers


class Upgrade(Restart):
    """A restart with a new image."""

    name = "upgrade"
    description = "the process is ended cleanly, and started again at the heal with a new image that the system names"
    impact = Impact(ends_process=True)
    capabilities: Sequence[type] = (SupportsUpgrade,)
    kinds = (TargetKind.ONE, TargetKind.LEADER, TargetKind.FOLLOWER)

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        """Returns None if at least one server can be upgraded: the system may name images for some roles only."""
        lacks = [await IMAGE_CHANGE.explain_lack(cluster, [node]) for node in servers(cluster, system)]
        if lacks and all(lacks):
            return lacks[0]
        return await super().probe(cluster, system)

    async def strike(self, injection: Injection, node: Node) -> None:
        if (reason := await IMAGE_CHANGE.explain_lack(injection.context.cluster, [node])) is not None:
            raise NodeError(f"{reason}; let the fault strike another role (--nemesis-target=one:ROLE)")
        await super().strike(injection, node)
        changed = await cast(SupportsImageChange, node).change_image()
        evidence_of(injection, node)["image"] = {"wanted": changed.wanted, "found": changed.found}

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        if (missing := super().find_missing_proof(seen)) is not None:
            return missing
        image = seen.get("image")
        if image is None:
            return "its image was not changed"
        return None if image["wanted"] == image["found"] else f"its container has the image {image['found']}"
