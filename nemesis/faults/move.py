"""Move: a key's replica moves from the target to another server while clients use it, as when a broker is replaced.

If the target has no replica of the key, it takes over another server's replica. If every server has a replica, the
target's replica is removed. At the heal it is added again, so that everything must be copied.

Nothing else must be undone: the fault is healed when the system says that the move has ended. Another fault may keep
the move from ending. So this fault lingers, and other faults do not wait for it. If the move still has not ended, the
heal fails. It is tried again once the other faults are healed.

Proof: the key's replicas came to be on other servers. A line of an event log shows it at once. That matters because
clients may move the replicas back in the next moment. Without such lines the system is asked at the heal.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.system import SupportsMove, System
from assay.nemesis.faults.fault import Census, Impact, Injection, Proof, Scope
from assay.nemesis.faults.process import ServerFault, draw_target
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import KEYS_REMEDY, Target, TargetError, TargetKind, list_possible_servers, servers

T = TypeVar("T")
SINGLE_SERVER_KINDS = (
    TargetKind.ONE,
    TargetKind.LEADER,
    TargetKind.FOLLOWER,
    TargetKind.CONTROLLER,
    TargetKind.ORIGIN,
    TargetKind.NAMED,
)
ASK_SECONDS = 5.0
"""Maximum seconds until the system reports the replicas and accepts the order.

The fault's duration is a further limit, because other faults wait meanwhile.
"""
CHECK_SECONDS = 1.0
"""Maximum seconds of a check whether the move has ended."""
MOVE_SECONDS = 30.0
"""Maximum seconds that the fault may outlast its duration."""
HEAL_SECONDS = 12.0
"""Maximum seconds that a heal waits for the end of a move."""
POLL_SECONDS = 0.2


class MoveReplicas(ServerFault):
    """Moves one replica of one key to another server.

    The evidence has the servers with replicas: ``before``, as ``meant``, ``after`` the move, and ``back`` after a
    removed replica was added again. ``accepted``: the system took the order. ``awaited``: a heal has waited for it.
    """

    name = "move-replicas"
    description = "a key's replica moves from one server to another; the fault is healed when the move has ended"
    capabilities: Sequence[type] = (SupportsMove,)
    scope = Scope.REPLICAS
    impact = Impact(moves_replicas=True)
    lingers = MOVE_SECONDS  # maximum seconds beyond the duration while it has no effect yet

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if census.lacks_keys or census.servers < 2:
            raise ScheduleError(f"{self.name} needs a system with keys, and two servers: set --nodes=3")
        if target is not None and (target.kind not in SINGLE_SERVER_KINDS or len(target.names) > 1):
            raise ScheduleError(
                f"{self.name} hits one server, so its target cannot be {target}: use one, leader, follower, "
                "controller or a name"
            )
        return draw_target(rng, census, target, (TargetKind.LEADER, TargetKind.FOLLOWER))

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        if not isinstance(system, SupportsMove):
            return f"{system.name} cannot move replicas: define its methods replicas_of and move (SupportsMove)"
        if not system.keys():
            return f"{system.name} has no keys, so no replica can move: {KEYS_REMEDY}"
        if len(servers(cluster, system)) < 2:
            return "there is no second server to which a replica can move: set --nodes=3"
        return await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        cluster, system = injection.context.cluster, _require_movable(injection)
        rng = random.Random(injection.seed)
        key = injection.step.target.key or rng.choice(list(injection.context.system.keys()))
        deadline = asyncio.get_running_loop().time() + min(ASK_SECONDS, injection.step.duration)
        before = await _poll_until(lambda: system.replicas_of(cluster, key), deadline)
        if before is None:
            raise TargetError(
                f"the replicas of {key} are unknown: the system did not say where they are, or they already move"
            )
        nodes = {node.name: node for node in servers(cluster, injection.context.system)}
        known = {node.name: node for node in list_possible_servers(cluster, injection.context.system)}
        names, indexes = [node.name for node in before], {node.index: node.name for node in known.values()}
        meant = choose_placement(names, injection.targets[0].name, list(nodes), rng)
        injection.evidence.update(key=key, before=names, meant=meant)

        def listen(_: str, line: Mapping[str, Any]) -> None:
            moved_key, replicas = system.moved(line) or (None, ())
            if moved_key == key:
                after = [indexes[index] for index in replicas]
                if set(after) != set(names):
                    injection.evidence.setdefault("after", after)

        injection.context.listeners[injection.id] = listen
        await _order_move(injection, key, [known[name] for name in meant], deadline)
        injection.evidence["accepted"] = True

    async def observe(self, injection: Injection) -> None:
        """Checks whether the move has ended. Orders a removed replica back at once."""
        evidence = injection.evidence
        if "meant" not in evidence or "back" in evidence:
            return
        deadline = asyncio.get_running_loop().time() + CHECK_SECONDS
        found = await _ask_once(lambda: _read_placement(injection, evidence["key"]), deadline)
        if found is None:
            return
        if len(evidence.setdefault("after", found)) < len(evidence["before"]):
            if set(found) == set(evidence["before"]):
                evidence["back"] = found
            else:
                with contextlib.suppress(NodeError):
                    await _order_back(injection, deadline)

    async def heal(self, injection: Injection) -> None:
        evidence = injection.evidence
        if "meant" not in evidence:
            return
        key = evidence["key"]
        if "after" not in evidence:
            # An order without an answer may be executed anyway. Another fault may keep the move from ending, and it
            # cannot be healed while this heal waits. So the first wait is short. The conductor calls this heal again
            # after it has healed the other faults.
            seconds = HEAL_SECONDS if evidence.get("accepted") or evidence.get("awaited") else CHECK_SECONDS
            evidence["awaited"] = True
            ended = await _wait_for_placement(injection, key, seconds)
            evidence.setdefault("after", ended)  # a line may have been read meanwhile
        injection.context.listeners.pop(injection.id, None)
        if len(evidence["after"]) < len(evidence["before"]) and "back" not in evidence:
            await _order_back(injection, asyncio.get_running_loop().time() + ASK_SECONDS)
            evidence["back"] = await _wait_for_placement(injection, key, HEAL_SECONDS)

    def proof(self, injection: Injection) -> Proof:
        evidence = injection.evidence
        if "after" not in evidence:
            return Proof(False, evidence, "no move was seen to end")
        if set(evidence["after"]) == set(evidence["before"]):
            return Proof(False, evidence, f"the replicas of {evidence['key']} are where they were")
        if len(evidence["after"]) < len(evidence["before"]) and "back" not in evidence:
            return Proof(False, evidence, "the replica that was taken away has not come back")
        return Proof(True, evidence)


def choose_placement(before: Sequence[str], target: str, nodes: Sequence[str], rng: random.Random) -> list[str]:
    """Returns the servers of the new replicas. Keeps their number if possible.

    If the target has a replica, it moves to another server, else a replica moves to the target. Raises ``TargetError``
    if the only replica is on the only server.
    """
    others = [name for name in nodes if name not in before]
    if target not in before:
        leaving = rng.choice(list(before))
        return [target if name == leaving else name for name in before]
    if others:
        coming = rng.choice(others)
        return [coming if name == target else name for name in before]
    if len(before) == 1:
        raise TargetError(
            f"{target} has the only replica, and there is no other server to which it can move: set --nodes=3"
        )
    return [name for name in before if name != target]


def _require_movable(injection: Injection) -> SupportsMove:
    system = injection.context.system
    if not isinstance(system, SupportsMove):
        raise TargetError(f"{system.name} cannot move replicas: define its methods replicas_of and move (SupportsMove)")
    return system


async def _order_move(injection: Injection, key: str, nodes: Sequence[Node], deadline: float) -> None:
    """Repeats the order until it is accepted, which is harmless. Raises ``NodeError`` at the deadline (loop time)."""
    loop = asyncio.get_running_loop()
    while True:
        trouble: str | None = "no answer in time"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                trouble = await _require_movable(injection).move(injection.context.cluster, key, nodes)
        if trouble is None:
            return
        if loop.time() >= deadline:
            whom = ", ".join(node.name for node in nodes)
            raise NodeError(f"the system did not accept the move of {key} to {whom}: {trouble}")
        await asyncio.sleep(POLL_SECONDS)


async def _order_back(injection: Injection, deadline: float) -> None:
    nodes = {node.name: node for node in list_possible_servers(injection.context.cluster, injection.context.system)}
    await _order_move(
        injection, injection.evidence["key"], [nodes[name] for name in injection.evidence["before"]], deadline
    )


async def _read_placement(injection: Injection, key: str) -> list[str] | None:
    """Returns the servers with replicas; None while they move."""
    found = await _require_movable(injection).replicas_of(injection.context.cluster, key)
    return None if found is None else [node.name for node in found]


async def _wait_for_placement(injection: Injection, key: str, seconds: float) -> list[str]:
    """Waits until the move has ended and returns the servers with replicas. Raises ``NodeError`` after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    found = await _poll_until(lambda: _read_placement(injection, key), deadline)
    if found is None:
        raise NodeError(f"the move of {key} did not end within {seconds:g} s; a move waits for dead servers")
    return found


async def _ask_once(ask: Callable[[], Awaitable[T | None]], deadline: float) -> T | None:
    """Asks once. Returns None if there is no answer before the deadline (loop time)."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            return await ask()
    return None


async def _poll_until(ask: Callable[[], Awaitable[T | None]], deadline: float) -> T | None:
    """Asks repeatedly until there is an answer or the deadline has passed."""
    loop = asyncio.get_running_loop()
    while True:
        found = await _ask_once(ask, deadline)
        if found is not None or loop.time() >= deadline:
            return found
        await asyncio.sleep(POLL_SECONDS)
