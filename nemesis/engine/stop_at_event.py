"""Processes that stop themselves at an event, so that a step strikes exactly there.

1. When a step with a ``hold`` trigger is armed, every server gets the order to stop at the event.
2. A process that reaches the event stops itself (SIGSTOP) in the very step that wrote it.
3. Once its line is read, and the process is seen stopped with that line as its last event, the step acts.
4. The order is withdrawn, and every other stopped process continues.

A line that is read while no process is stopped at it was written before the order, and does not count.

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

STOP_SECONDS = 1.0
"""Seconds after a line was read within which its process must be seen stopped."""
LOOK_EVERY = 0.01
LINE_SECONDS = 5.0
"""Seconds until the line of a stopped process is read. Over SSH, from a busy machine, it may take more than one."""


@dataclass
class EventStop:
    """Orders to stop at an event, for one step at a time. ``last_events``: the last line read from each node."""

    servers: Sequence[Node]
    system: System
    last_events: Mapping[str, Mapping[str, Any]]
    step: int | None = None
    """Number of the step that gave the order."""
    _trigger: OnEvent | None = None
    _dismissed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Lines, by node, that were written before the order, because their process was not stopped."""

    async def give_order(self, step: int, trigger: OnEvent) -> None:
        """Gives the order. Raises ``NodeError`` if the system takes no orders, or another step's order is active."""
        if self._trigger is not None:
            raise NodeError(
                f"another step already makes processes stop at {self._trigger.event}: only one at a time can"
            )
        if not isinstance(self.system, SupportsHold):
            raise NodeError(f"{self.system.name} cannot stop itself after an event (hold_file)")
        self.step, self._trigger = step, trigger
        order = trigger.event if trigger.key is None else f"{trigger.event} {trigger.key}"
        system = self.system
        await on_each(self.servers, lambda node: node.write_file(system.hold_file(node), f"{order}\n".encode()))

    async def find_stopped(self, excluded: Collection[str] = ()) -> tuple[str, Mapping[str, Any]] | None:
        """Returns the node and line of a process stopped at the event; None if no line read so far has one.

        Nodes in ``excluded`` are ignored, because they are stopped for another reason.
        """
        loop = asyncio.get_running_loop()
        since: dict[str, tuple[Mapping[str, Any], float]] = {}
        while lines := self._matching(excluded):
            for node, line in lines:
                if await _is_stopped(node) and self.last_events[node.name] is line:
                    return node.name, line
                known, first = since.setdefault(node.name, (line, loop.time()))
                if known is not line:
                    since[node.name] = line, loop.time()
                elif loop.time() - first >= STOP_SECONDS:
                    self._dismissed[node.name] = line
            await asyncio.sleep(LOOK_EVERY)
        return None

    async def is_any_stopped(self, excluded: Collection[str]) -> bool:
        """Returns whether a process of a node not in ``excluded`` is stopped. Then its line will still arrive."""
        for node in self.servers:
            if node.name not in excluded and await _is_stopped(node):
                return True
        return False

    def _matching(self, excluded: Collection[str]) -> list[tuple[Node, Mapping[str, Any]]]:
        """Returns nodes whose last event is the requested one, except lines that were dismissed."""
        return [
            (node, line)
            for node in self.servers
            if (line := self.last_events.get(node.name)) is not None
            and self._trigger is not None
            and self._trigger.matches(line)
            and self._dismissed.get(node.name) is not line
            and node.name not in excluded
        ]

    async def withdraw(self, keep: Collection[str] = ()) -> None:
        """Withdraws the order and continues the stopped processes, except those of ``keep``. Idempotent.

        An unreachable node does not keep the others from continuing. A further call must ask it again.
        """
        system = self.system
        if self._trigger is None or not isinstance(system, SupportsHold):
            return
        errors: list[NodeError] = []

        async def withdraw(node: Node) -> None:
            await node.write_file(system.hold_file(node), b"")

        async def go_on(node: Node) -> None:
            if node.name not in keep and await _is_stopped(node):
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


async def _is_stopped(node: Node) -> bool:
    return (await node.process()).state is ProcessState.STOPPED
