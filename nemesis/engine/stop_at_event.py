"""Processes that stop themselves at an event, so that a step strikes exactly there.

A trigger with ``hold`` has this order given to every server when its step is armed. A process that reaches the event
stops itself (SIGSTOP) in the very step that wrote it; once its line has been read and the process seen stopped with
that as its last event, the step acts, the order is withdrawn, and every other process that stands still goes on. A line
that is read while no process stands stopped at it was written before the order came, and does not count.

The file of orders (:class:`assay.cluster.system.SupportsHold`) is that of the fault ``hold``, so the two exclude each
other.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.cluster.node import Node, NodeError, ProcessState
from assay.cluster.system import SupportsHold, System
from assay.nemesis.faults.fault import on_each
from assay.nemesis.schedule.trigger import OnEvent

SEEN_WITHIN = 1.0
"""Seconds from the reading of its line until the process was seen stopped."""
LOOK_EVERY = 0.01
LINE_SECONDS = 5.0
"""For the line of a process that stands to be read; over SSH, from a busy machine, it may take more than one."""


@dataclass
class Ambush:
    """Of one conductor; for one step at a time. ``last_events``: the latest line of each node, by name, as read."""

    servers: Sequence[Node]
    system: System
    last_events: Mapping[str, Mapping[str, Any]]
    step: int | None = None
    """The number of the step for which it is laid."""
    _trigger: OnEvent | None = None
    _dismissed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The line of each node after which its process went on: written before the order came."""

    async def lay(self, step: int, trigger: OnEvent) -> None:
        """Raises ``NodeError``: no such orders here, or another step's stands."""
        if self._trigger is not None:
            raise NodeError(f"another step has the processes stop at {self._trigger.event}: one at a time can")
        if not isinstance(self.system, SupportsHold):
            raise NodeError(f"{self.system.name} cannot stop itself after an event (hold_file)")
        self.step, self._trigger = step, trigger
        order = trigger.event if trigger.key is None else f"{trigger.event} {trigger.key}"
        system = self.system
        await on_each(self.servers, lambda node: node.write_file(system.hold_file(node), f"{order}\n".encode()))

    async def caught(self, but: Collection[str] = ()) -> tuple[str, Mapping[str, Any]] | None:
        """The node whose process stands at the event, and the line; None once none of those read so far does. Not one
        of ``but``, which stand for another reason, whatever they wrote last.
        """
        loop = asyncio.get_running_loop()
        since: dict[str, tuple[Mapping[str, Any], float]] = {}
        while lines := self._matching(but):
            for node, line in lines:
                if await _stands(node) and self.last_events[node.name] is line:
                    return node.name, line
                known, first = since.setdefault(node.name, (line, loop.time()))
                if known is not line:
                    since[node.name] = line, loop.time()
                elif loop.time() - first >= SEEN_WITHIN:
                    self._dismissed[node.name] = line
            await asyncio.sleep(LOOK_EVERY)
        return None

    async def has_sprung(self, but: Collection[str]) -> bool:
        """Does a process stand, other than of these nodes? Then the line that it wrote is on its way."""
        for node in self.servers:
            if node.name not in but and await _stands(node):
                return True
        return False

    def _matching(self, but: Collection[str]) -> list[tuple[Node, Mapping[str, Any]]]:
        """Nodes whose last event is the one asked for, as far as it may be one at which they stand."""
        return [
            (node, line)
            for node in self.servers
            if (line := self.last_events.get(node.name)) is not None
            and self._trigger is not None
            and self._trigger.matches(line)
            and self._dismissed.get(node.name) is not line
            and node.name not in but
        ]

    async def end(self, keep: Collection[str] = ()) -> None:
        """Withdraws the order and continues the processes that are stopped, except these. Idempotent.

        A node that cannot be reached keeps no other from going on; it is still to be asked then, by another call.
        """
        system = self.system
        if self._trigger is None or not isinstance(system, SupportsHold):
            return
        errors: list[NodeError] = []

        async def withdraw(node: Node) -> None:
            await node.write_file(system.hold_file(node), b"")

        async def go_on(node: Node) -> None:
            if node.name not in keep and await _stands(node):
                await node.resume()

        for act in (withdraw, go_on):
            try:
                await on_each(self.servers, act)
            except NodeError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        self.step = self._trigger = None
        self._dismissed.clear()


async def _stands(node: Node) -> bool:
    return (await node.process()).state is ProcessState.STOPPED
