"""Steps of the faults ``membership``: a server's replicas are moved, and its process ends or starts.

All state is in the fault's evidence, so that another object can finish the work. A move waits until dead servers run
again. So the steps may take long, and run in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, cast

from assay.cluster.node import Node, NodeError, ProcessState, SupportsDataRestore
from assay.cluster.system import MembershipState
from assay.nemesis.faults.data_loss import read_lock_files
from assay.nemesis.faults.fault import NOT_READY_ERRORS, Injection
from assay.nemesis.faults.move import POLL_SECONDS, choose_placement
from assay.nemesis.faults.process import evidence_of, read_status
from assay.nemesis.faults.restart import wait_until_serving
from assay.nemesis.schedule.target import TargetError, list_possible_servers

ASK_SECONDS = 5.0
"""Maximum seconds until the system reports its membership, or accepts one order."""
MOVE_SECONDS = 20.0
"""Maximum seconds until all replicas of one server are moved away, back, or to it."""
MAX_KEYS: Final = 6
"""Maximum number of keys whose replicas a joining server gets.

In a key's list of replicas, the server takes the place of one of them. The first in the list leads.
"""

TRIES = 3
"""Maximum number of attempts to end a leaving server, in case it gets replicas meanwhile."""


class MovingMember:
    """A server that leaves or joins. Evidence:

    - ``members``: the members before the change
    - ``moved``: maps a key to its previous replicas and to those that were ordered
    - ``without`` and ``with``: the members as the system listed them
    - ``kept``: the keys that the server still had when it had ended
    - ``held``: the keys of a leaving server at first. ``taken``: those that a joining server got
    - ``back``: the keys whose replicas have returned
    """

    def __init__(self, injection: Injection) -> None:
        self.injection = injection
        self.evidence = injection.evidence
        (self.node,) = injection.targets
        self.system: Any = injection.context.system
        """The system; satisfies ``SupportsMove``, ``SupportsMembership`` and ``SupportsDataFolder``."""
        self._nodes: dict[int, Node] = {
            node.index: node for node in list_possible_servers(injection.context.cluster, self.system)
        }
        self.rng = random.Random(injection.seed)

    @property
    def seen(self) -> dict[str, Any]:
        """The evidence about this server alone."""
        return evidence_of(self.injection, self.node)

    async def join(self) -> None:
        """Starts the process and waits until it is a member. Raises ``NodeError``."""
        if (await self.node.process()).state is ProcessState.DEAD:
            await self.node.start()
        self.seen["after"] = await read_status(self.node)
        await wait_until_serving(self.system, self.node)
        index = self.node.index
        membership = await self.read_membership(
            lambda found: index in found.members, f"does not have {self.node.name} as a member"
        )
        self.evidence["with"] = self.names(membership.members)

    async def leave(self) -> None:
        """Moves its replicas away, ends its process, and removes its data. Raises ``NodeError``.

        After the process has ended, its replicas are read again. If there are new ones, the process is started again,
        and they are moved away as well.
        """
        index = self.node.index
        for _ in range(TRIES):
            await self._move_away()
            self.seen["asked"] = True
            if (await self.node.process()).state is not ProcessState.DEAD:
                await self.node.terminate()
            self.seen["ended"] = await read_status(self.node)
            membership = await self.read_membership(
                lambda found: index not in found.members, f"still has {self.node.name} as a member"
            )
            self.evidence["without"] = self.names(membership.members)
            self.evidence["kept"] = sorted(self.find_held_keys(membership))
            if not self.evidence["kept"]:
                break
            await self.node.start()
            await wait_until_serving(self.system, self.node)
        else:
            kept = ", ".join(self.evidence["kept"])
            raise NodeError(f"{self.node.name} got replicas again each time they had moved away: {kept}")
        folder, disk = self.system.data_folder(self.node), cast(SupportsDataRestore, self.node)
        locks = read_lock_files(self.system, self.node)
        self.seen["files"] = len(await disk.contents(folder, locks))
        await disk.remove_contents(folder, locks)
        self.seen["left"] = len(await disk.contents(folder, locks))

    async def _move_away(self) -> None:
        await self.order_until_none_left(
            lambda membership: sorted(self.find_held_keys(membership)), self.order_away, "leave"
        )

    async def order_until_none_left(
        self,
        left: Callable[[MembershipState], Collection[str]],
        order: Callable[[str, Sequence[str], MembershipState], Awaitable[object]],
        what: str,
        membership: MembershipState | None = None,
    ) -> MembershipState:
        """Orders moves again and again until ``left`` returns no key. Returns the membership at that time.

        ``order`` takes a key, the names of its servers, and the membership. Raises ``NodeError`` if it takes too long.
        ``what`` names the move in the error: ``leave``, ``come to``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + MOVE_SECONDS
        while True:
            now = membership or await self.read_membership()
            keys = left(now)
            if not keys:
                return now
            if loop.time() >= deadline:
                raise NodeError(
                    f"{', '.join(keys)} did not {what} {self.node.name} within {MOVE_SECONDS:g} s; a move waits "
                    "for dead servers"
                )
            for key in keys:
                if key in now.replicas:
                    await order(key, self.names(now.replicas[key]), now)
            await asyncio.sleep(POLL_SECONDS)
            membership = None

    async def order_away(self, key: str, before: Sequence[str], membership: MembershipState) -> None:
        """Orders that the server's replica of a key moves to another member, or is removed."""
        after = choose_placement(before, self.node.name, self.names(membership.members), self.rng)
        if await self.order_move(key, after):
            self.evidence["moved"][key] = [list(before), after]

    async def order_move(self, key: str, names: Collection[str]) -> bool:
        """Orders a key's replicas to the named servers. Returns whether the system accepted the order."""
        nodes = [node for name in names for node in self._nodes.values() if node.name == name]
        with contextlib.suppress(*NOT_READY_ERRORS):
            async with asyncio.timeout(ASK_SECONDS):
                return await self.system.move(self.injection.context.cluster, key, nodes) is None
        return False

    def find_held_keys(self, membership: MembershipState) -> set[str]:
        """Returns the keys with a replica that the server holds, gets or gives up."""
        everything: dict[str, Collection[int]] = {**membership.replicas, **membership.moving}
        return {key for key, indexes in everything.items() if self.node.index in indexes}

    def names(self, indexes: Collection[int]) -> list[str]:
        ordered = indexes if isinstance(indexes, Sequence) else sorted(indexes)
        return [self._nodes[index].name for index in ordered if index in self._nodes]

    async def read_membership(
        self, fits: Callable[[MembershipState], bool] = lambda found: True, trouble: str = "does not say who has what"
    ) -> MembershipState:
        """Reads the membership until ``fits`` accepts it. Raises ``NodeError``, with ``trouble``, at the deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                while True:
                    with contextlib.suppress(*NOT_READY_ERRORS):
                        found: MembershipState | None = await self.system.standing(self.injection.context.cluster)
                        if found is not None and fits(found):
                            return found
                    await asyncio.sleep(POLL_SECONDS)
        raise NodeError(f"{self.system.name} {trouble} within {ASK_SECONDS:g} s")


class JoiningMember(MovingMember):
    """A spare node joins the cluster and gets replicas (``run``), and leaves again (``leave_again``)."""

    _wanted: Collection[str] = ()
    """The keys whose replicas it gets. They stay the same if ``run`` is repeated."""

    async def begin(self) -> None:
        """Records the members before the change.

        Raises ``TargetError`` if the server is a member already, ``NodeError`` if the members are unknown.
        """
        membership = await self.read_membership()
        if self.node.index in membership.members or (await self.node.process()).state is not ProcessState.DEAD:
            raise TargetError(
                f"{self.node.name} is already a member or runs, but only a spare node can join: leave out the target"
            )
        self.evidence.update(members=self.names(membership.members), moved={})
        self.seen["before"] = await read_status(self.node)

    async def run(self) -> None:
        """Makes the server a member with replicas. Raises ``NodeError``."""
        await self.join()
        membership = await self.read_membership()
        self._wanted = wanted = self._wanted or self._choose_keys(membership.replicas)
        membership = await self.order_until_none_left(
            lambda now: [key for key in wanted if self._is_missing(key, now)], self._order_here, "come to", membership
        )
        self.evidence["taken"] = [key for key in wanted if key in self.find_held_keys(membership)]

    def _choose_keys(self, known: Collection[str]) -> list[str]:
        """Chooses the keys whose replicas the server gets. Includes a key that clients use, if there is one."""
        keys, clients = sorted(known), self.system.keys()
        own = [key for key in clients if key in known]
        first = [self.rng.choice(own)] if own else []
        rest = [key for key in keys if key not in first]
        number = min(len(keys), self.rng.randint(1, MAX_KEYS)) - len(first)
        return first + self.rng.sample(rest, max(0, number))

    async def _order_here(self, key: str, before: Sequence[str], membership: MembershipState) -> None:
        after = list(before)
        after[self.rng.randrange(len(before))] = self.node.name
        if await self.order_move(key, after):
            self.evidence["moved"][key] = [list(before), after]

    def _is_missing(self, key: str, membership: MembershipState) -> bool:
        """Returns whether the replica must still come. False for a key that clients have deleted or moved meanwhile."""
        if key in membership.moving:
            return True
        now = membership.replicas.get(key)
        if now is None or self.node.index in now:
            return False
        moved: dict[str, Any] = self.evidence["moved"]
        return key not in moved or self.names(now) == moved[key][0]

    async def leave_again(self) -> None:
        """Moves the server's replicas back or elsewhere, and removes it from the members. Raises ``NodeError``."""
        await self.leave()
        self.evidence["back"] = sorted(self.evidence["moved"])

    async def order_away(self, key: str, before: Sequence[str], membership: MembershipState) -> None:
        move = self.evidence["moved"].get(key)
        if move is None or list(before) != move[1] or not await self.order_move(key, move[0]):
            await super().order_away(key, before, membership)


class LeavingMember(MovingMember):
    """A server leaves the cluster (``run``), and comes back empty (``come_back``)."""

    @classmethod
    async def choose_with_replicas(cls, injection: Injection) -> LeavingMember:
        """Returns the target, or another possible server with replicas.

        Raises ``NodeError``, or ``TargetError`` if none has any.
        """
        target = injection.targets[0]
        membership = await cls(injection).read_membership()
        for node in (target, *injection.others):
            injection.targets = (node,)
            leaving = cls(injection)
            held = leaving.find_held_keys(membership)
            if held and node.index in membership.members:
                injection.evidence.update(held=sorted(held), moved={}, members=leaving.names(membership.members))
                injection.evidence[node.name] = {"before": await read_status(node)}
                return leaving
        injection.targets = (target,)
        raise TargetError(f"{target.name} has no replica that could be moved away, nor has any other free server")

    async def run(self, *, replaced: bool) -> None:
        """Makes the server leave the cluster. ``replaced``: an empty server takes its place at once."""
        if "left" not in self.seen:  # else it has left, and ``run`` is repeated because the empty server did not serve
            await self.leave()
        if replaced:
            await self.join()

    async def come_back(self) -> None:
        """Makes the server a member with its previous replicas again. Raises ``NodeError``."""
        await self.join()
        moved: dict[str, Any] = self.evidence["moved"]
        membership = await self.order_until_none_left(
            lambda now: [key for key in moved if self._is_missing(key, now)],
            lambda key, *_: self.order_move(key, moved[key][0]),
            "come back to",
        )
        self.evidence["back"] = [key for key in moved if key in self.find_held_keys(membership)]

    def _is_missing(self, key: str, membership: MembershipState) -> bool:
        """Returns whether the replica must still return. False for a key that clients deleted or moved meanwhile."""
        if key in membership.moving:
            return True
        now = membership.replicas.get(key)
        return now is not None and self.names(now) == self.evidence["moved"][key][1]
