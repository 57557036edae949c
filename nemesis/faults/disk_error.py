"""Disk errors: chosen changes to a disk are rejected with an input/output error (EIO).

1. The parameter ``change`` selects a kind of the server's changes: ``write``, ``fsync``, ``cut`` (truncation) or
   ``name`` (creation, renaming, deletion); see ``DiskChange`` of ``cluster/node.py``.
2. The first ``after`` changes of that kind succeed.
3. The next ``errors`` changes fail and change nothing. If none of that kind comes within 1 s, changes of every kind
   fail.
4. At the heal, a process that has ended is started again. The heal waits a moment for a process that is about to end.

After an error a server may reject requests, or end. Acknowledged data must survive, even if the server was in the
middle of several changes.

Proof: the node's count of rejected changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

from assay.cluster.node import DiskChange, Node, ProcessState, SupportsDiskErrors
from assay.nemesis.faults.abilities import DISK_ERRORS
from assay.nemesis.faults.fault import LINGER_SECONDS, Impact, Injection, Scope, on_each
from assay.nemesis.faults.process import ServerFault, evidence_of, read_status, start_if_dead
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import TargetError

AFTER: Final = (0, 0, 1, 2, 5, 20)
"""Numbers of changes that succeed first."""
CHANGE_PARAMETERS: Final[Mapping[str, Sequence[Parameter]]] = {"change": [*map(str, DiskChange)], "after": AFTER}
"""Parameters that choose the change, with the values that each is drawn from."""
ERRORS: Final = (1, 1, 3, 1000)
"""Numbers of changes that fail: one (a transient error), three, or all until the heal."""
MAX_CHANGES: Final = 1_000_000
CHOSEN_SECONDS: Final = 1.0
"""Seconds to wait for a change of the chosen kind. Then changes of any kind fail."""
POLL_SECONDS: Final = 0.05
ENDING_SECONDS: Final = 1.5
"""Seconds for a process to end after an error. A broker that ends at its next checkpoint takes one second."""


class DiskErrorFault(ServerFault):
    """Makes changes fail until the heal."""

    name = "disk-error"
    description = "one or more of the server's changes to its disk fail (EIO)"
    abilities = (DISK_ERRORS,)
    scope = Scope.DISK
    impact = Impact(ends_process=True, gradual=True)
    # For the three declarations below see `get_declaration`.
    lingers = LINGER_SECONDS
    slow_disks = True
    ends_late = True
    drawn: Mapping[str, Sequence[Parameter]] = {**CHANGE_PARAMETERS, "errors": ERRORS}

    async def inject(self, injection: Injection) -> None:
        errors = read_count(injection, "errors", 1)

        async def note(node: Node) -> None:
            evidence_of(injection, node)["before"] = (await cast(SupportsDiskErrors, node).read_disk_errors()).errors

        await on_each(injection.targets, note)
        await break_at_chosen(injection, lambda: _is_struck(injection), errors)

    async def observe_node(self, injection: Injection, node: Node) -> None:
        seen = evidence_of(injection, node)
        seen["errors"] = (await cast(SupportsDiskErrors, node).read_disk_errors()).errors - seen["before"]
        seen["process"] = await read_status(node)

    async def undo(self, injection: Injection, node: Node) -> None:
        await repair_disk(node)
        if await _is_struck_at(injection, node):  # perhaps just before the heal, so that the process is about to end
            await wait_within(ENDING_SECONDS, lambda: _is_dead(node))
        await start_if_dead(injection, node)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        return None if seen.get("errors") else "no change to its disk was rejected"


async def break_at_chosen(
    injection: Injection, struck: Callable[[], Awaitable[bool]], errors: int = 0, *, after_change: bool = False
) -> None:
    """Makes the targets' disks fail at the step's kind of change, or at any change if none of that kind comes soon.

    ``struck``: returns whether any change has failed. ``errors`` and ``after_change``: see
    ``SupportsDiskErrors.break_disk``. Raises ``TargetError`` for invalid parameters.
    """
    change, after = _read_change(injection), read_count(injection, "after", 0)

    async def break_disks(changes: Collection[DiskChange], after: int) -> None:
        await on_each(
            injection.targets,
            lambda node: cast(SupportsDiskErrors, node).break_disk(changes, after, errors, after_change=after_change),
        )

    await break_disks((change,), after)
    if not await wait_within(CHOSEN_SECONDS, struck):
        injection.evidence["chosen"] = f"no {change} came in {CHOSEN_SECONDS:g} s, so that any change was taken"
        await break_disks(tuple(DiskChange), 0)


async def wait_within(seconds: float, look: Callable[[], Awaitable[bool]]) -> bool:
    """Polls until ``look`` returns True or the time is over. Returns the last answer."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    found = await look()
    while not found and loop.time() <= until:
        await asyncio.sleep(POLL_SECONDS)
        found = await look()
    return found


def read_count(injection: Injection, name: str, least: int) -> int:
    """Returns a parameter that is a number of changes, by default ``least``. Raises ``TargetError``."""
    value = injection.step.parameters.get(name, least)
    if isinstance(value, str) or value != int(value) or not least <= value <= MAX_CHANGES:
        wanted = f"a whole number from {least} to {MAX_CHANGES}"
        raise TargetError(f"{injection.step.fault}: the parameter {name} is {value!r}; it must be {wanted}")
    return int(value)


def _read_change(injection: Injection) -> DiskChange:
    value = injection.step.parameters.get("change", DiskChange.WRITE)
    if value not in tuple(DiskChange):
        wanted = ", ".join(DiskChange)
        raise TargetError(f"{injection.step.fault}: the parameter change is {value!r}; it must be one of {wanted}")
    return DiskChange(value)


async def repair_disk(node: Node) -> None:
    """Ends the failures of a node's disk."""
    if isinstance(node, SupportsDiskErrors):
        await node.break_disk(())


async def _is_struck(injection: Injection) -> bool:
    """Returns whether a change of any target was rejected."""
    return any([await _is_struck_at(injection, node) for node in injection.targets])


async def _is_struck_at(injection: Injection, node: Node) -> bool:
    """Returns whether a change of this node was rejected."""
    before = evidence_of(injection, node).get("before")
    return before is not None and (await cast(SupportsDiskErrors, node).read_disk_errors()).errors > before


async def _is_dead(node: Node) -> bool:
    return (await node.process()).state is ProcessState.DEAD
