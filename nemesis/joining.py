"""A server that was none joins the cluster, has replicas for a while, and leaves it again (``membership-add``)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from assay.cluster.membership import Standing
from assay.cluster.node import ProcessState
from assay.nemesis.members import Member
from assay.nemesis.process import status
from assay.nemesis.target import TargetError

MOST_KEYS: Final = 6
"""Of which it gets a replica, in the place of another server's, whose rank it takes over: the first leads."""


class Joining(Member):
    """``go``, and then ``leave_again``."""

    async def begin(self) -> None:
        """Raises ``TargetError`` for a server that is a member already, ``NodeError`` when no one says who is."""
        standing = await self.standing()
        if self.node.index in standing.members or (await self.node.process()).state is not ProcessState.DEAD:
            raise TargetError(f"{self.node.name} is a member already, or runs; only a spare node can join")
        self.evidence.update(members=self.names(standing.members), moved={})
        self.seen["before"] = await status(self.node)

    async def go(self) -> None:
        """It is a member, and has replicas. Raises ``NodeError``."""
        await self.join()
        standing = await self.standing()
        wanted = self._chosen(standing.replicas)
        standing = await self.until_none(
            lambda now: [key for key in wanted if self._is_missing(key, now)], self._order_here, "come to", standing
        )
        self.evidence["taken"] = [key for key in wanted if key in self.held(standing)]

    def _chosen(self, known: Collection[str]) -> list[str]:
        """One that clients use at least, where there is one."""
        keys, clients = sorted(known), self.system.keys()
        own = [key for key in clients if key in known]
        first = [self.rng.choice(own)] if own else []
        rest = [key for key in keys if key not in first]
        number = min(len(keys), self.rng.randint(1, MOST_KEYS)) - len(first)
        return first + self.rng.sample(rest, max(0, number))

    async def _order_here(self, key: str, before: Sequence[str], standing: Standing) -> None:
        place = self.rng.randrange(len(before))
        after = [self.node.name if at == place else name for at, name in enumerate(before)]
        if await self.order(key, after):
            self.evidence["moved"][key] = [list(before), after]

    def _is_missing(self, key: str, standing: Standing) -> bool:
        """Is it to come, or on its way? Not one that was deleted, or moved on by someone else."""
        if key in standing.moving:
            return True
        now = standing.replicas.get(key)
        if now is None or self.node.index in now:
            return False
        moved: dict[str, Any] = self.evidence["moved"]
        return key not in moved or self.names(now) == moved[key][0]

    async def leave_again(self) -> None:
        """What it has goes back to where it was, or elsewhere, and it is no member any more. Raises ``NodeError``."""
        await self.leave()
        self.evidence["back"] = sorted(self.evidence["moved"])

    async def order_away(self, key: str, before: Sequence[str], standing: Standing) -> None:
        was = self.evidence["moved"].get(key)
        if was is None or list(before) != was[1] or not await self.order(key, was[0]):
            await super().order_away(key, before, standing)
