"""A server leaves the cluster for a while, and comes back with nothing (``membership``)."""

from __future__ import annotations

from typing import Any

from assay.cluster.membership import Standing
from assay.nemesis.fault import Injection
from assay.nemesis.members import Member
from assay.nemesis.process import status
from assay.nemesis.target import TargetError


class Leaving(Member):
    """``go``, and then ``come_back``."""

    @classmethod
    async def of_one_with_replicas(cls, injection: Injection) -> Leaving:
        """The target, or one that might as well be it. Raises ``NodeError``, or ``TargetError`` when none has any."""
        meant = injection.targets[0]
        standing = await cls(injection).standing()
        for node in (meant, *injection.others):
            injection.targets = (node,)
            leaving = cls(injection)
            held = leaving.held(standing)
            if held and node.index in standing.members:
                injection.evidence.update(held=sorted(held), moved={}, members=leaving.names(standing.members))
                injection.evidence[node.name] = {"before": await status(node)}
                return leaving
        injection.targets = (meant,)
        raise TargetError(f"{meant.name} has no replica that could be moved away")

    async def go(self, *, replaced: bool) -> None:
        """``replaced``: an empty server takes its place at once."""
        await self.leave()
        if replaced:
            await self.join()

    async def come_back(self) -> None:
        """The server is a member, and has the replicas that it had. Raises ``NodeError``."""
        await self.join()
        moved: dict[str, Any] = self.evidence["moved"]
        standing = await self.until_none(
            lambda now: [key for key in moved if self._is_missing(key, now)],
            lambda key, *_: self.order(key, moved[key][0]),
            "come back to",
        )
        self.evidence["back"] = [key for key in moved if key in self.held(standing)]

    def _is_missing(self, key: str, standing: Standing) -> bool:
        """Is it to come back, or on its way? Not one that was deleted, or moved by someone else."""
        if key in standing.moving:
            return True
        now = standing.replicas.get(key)
        return now is not None and self.names(now) == self.evidence["moved"][key][1]
