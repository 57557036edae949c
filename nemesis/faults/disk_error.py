"""A disk that fails: chosen changes to it are rejected with an input/output error (EIO).

Of the changes of one kind (``change``: a ``write``, an ``fsync``, a ``cut``, a ``name``, ``DiskChange`` of
``cluster/node.py``) that the server makes while the fault is in force the first ``after`` are as ever, and the next
``errors`` fail and change nothing. Where none of that kind comes for a while any other fails. A system may reject what
it was to store, or end; what it has acknowledged must be there, also when half of a step is done. Where its process has
ended it is started again at the heal, which waits a moment for one that is about to.

Proof: the node's count of changes that were rejected.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, cast

from assay.cluster.node import Cluster, DiskChange, Node, ProcessState, SupportsDiskErrors
from assay.cluster.system import System
from assay.nemesis.faults.fault import LINGER_SECONDS, Census, Injection, Scope, on_each
from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.process import ServerFault, not_here, seen_of, started_if_dead, status
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import TargetError

AFTER: Final = (0, 0, 1, 2, 5, 20)
"""A broker makes most changes one after the other, by the hundred; what is done in several steps is done rarely."""
ERRORS: Final = (1, 1, 3, 1000)
"""One that passes, some, or all until the heal."""
MOST: Final = 1_000_000
CHOSEN_FOR: Final = 1.0
"""Seconds that a change of the chosen kind is waited for, before any is taken."""
LOOK_EVERY: Final = 0.05
TO_FAIL: Final = "made to fail"
ENDING: Final = 1.5
"""Seconds for a process to end of what was rejected. A broker that does so with its next checkpoint takes one."""


class DiskError(ServerFault):
    """Changes fail; at the heal none does."""

    name = "disk-error"
    description = "one or more of the server's changes to its disk fail (EIO)"
    scope = Scope.DISK
    impact = Impact(ends_process=True, gradual=True)
    lingers = LINGER_SECONDS
    slow_disks = True
    ends_late = True

    def parameters(self, rng: random.Random, census: Census) -> dict[str, Parameter]:
        return {**drawn(rng), "errors": rng.choice(ERRORS)}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return not_here(cluster, system, SupportsDiskErrors, TO_FAIL) or await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        errors = counted(injection, "errors", 1)

        async def note(node: Node) -> None:
            seen_of(injection, node)["before"] = (await cast(SupportsDiskErrors, node).broken()).errors

        await on_each(injection.targets, note)
        await broken_at_chosen(injection, lambda: _struck(injection), errors)

    async def look(self, injection: Injection, node: Node) -> None:
        seen = seen_of(injection, node)
        seen["errors"] = (await cast(SupportsDiskErrors, node).broken()).errors - seen["before"]
        seen["process"] = await status(node)

    async def undo(self, injection: Injection, node: Node) -> None:
        await as_before(node)
        if await _struck_at(injection, node):  # just before the heal, it may be, and the process is about to end
            await within(ENDING, lambda: _is_dead(node))
        await started_if_dead(injection, node)

    def lacking(self, seen: Mapping[str, Any]) -> str | None:
        return None if seen.get("errors") else "no change to its disk was rejected"


def drawn(rng: random.Random) -> dict[str, Parameter]:
    """A change that is struck."""
    return {"change": str(rng.choice(tuple(DiskChange))), "after": rng.choice(AFTER)}


async def broken_at_chosen(
    injection: Injection, struck: Callable[[], Awaitable[bool]], errors: int = 0, *, made: bool = False
) -> None:
    """The targets' disks fail at the change of the step's parameters, or at any, if that one does not come soon.

    ``struck``: has any failed? ``errors`` and ``made``: as ``SupportsDiskErrors.break_disk`` takes them. Raises
    ``TargetError`` for parameters that are none.
    """
    change, after = _chosen(injection), counted(injection, "after", 0)

    async def broken(changes: Collection[DiskChange], after: int) -> None:
        await on_each(
            injection.targets, lambda node: cast(SupportsDiskErrors, node).break_disk(changes, after, errors, made=made)
        )

    await broken((change,), after)
    if not await within(CHOSEN_FOR, struck):
        injection.evidence["chosen"] = f"no {change} came in {CHOSEN_FOR:g} s, so that any change was taken"
        await broken(tuple(DiskChange), 0)


async def within(seconds: float, look: Callable[[], Awaitable[bool]]) -> bool:
    """Is it so by then?"""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    found = await look()
    while not found and loop.time() <= until:
        await asyncio.sleep(LOOK_EVERY)
        found = await look()
    return found


def counted(injection: Injection, name: str, least: int) -> int:
    """A parameter that is a number of changes; ``least`` when it is not given. Raises ``TargetError``."""
    value = injection.step.parameters.get(name, least)
    if isinstance(value, str) or value != int(value) or not least <= value <= MOST:
        wanted = f"a whole number from {least} to {MOST}"
        raise TargetError(f"{injection.step.fault} needs the parameter {name}, {wanted}, not {value!r}")
    return int(value)


def _chosen(injection: Injection) -> DiskChange:
    value = injection.step.parameters.get("change", DiskChange.WRITE)
    if value not in tuple(DiskChange):
        wanted = ", ".join(DiskChange)
        raise TargetError(f"{injection.step.fault} needs the parameter change, one of {wanted}, not {value!r}")
    return DiskChange(value)


async def as_before(node: Node) -> None:
    """No change that a node's process makes fails any more."""
    if isinstance(node, SupportsDiskErrors):
        await node.break_disk(())


async def _struck(injection: Injection) -> bool:
    return any([await _struck_at(injection, node) for node in injection.targets])


async def _struck_at(injection: Injection, node: Node) -> bool:
    """Was a change of the node's rejected?"""
    before = seen_of(injection, node).get("before")
    return before is not None and (await cast(SupportsDiskErrors, node).broken()).errors > before


async def _is_dead(node: Node) -> bool:
    return (await node.process()).state is ProcessState.DEAD
