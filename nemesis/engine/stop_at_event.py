"""Processes that stop themselves at an event, so that a step strikes exactly there.

1. When a step with a ``hold`` trigger is armed, every server gets the request to stop at the event.
2. A process that reaches the event writes its line to the event log and stops itself (SIGSTOP) at once.
3. The harness reads the line. Once the process is seen stopped with that line as its last event, the step acts.
4. The request is withdrawn, and every other stopped process continues.

If the process of a line does not stop, it wrote the line before it got the request. Such a line does not count.

The fault ``hold`` uses the same file of requests (:class:`assay.cluster.system.SupportsHold`), so it cannot be active
at the same time.
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
POLL_SECONDS = 0.01
LINE_SECONDS = 5.0
"""Maximum seconds until the line of a stopped process is read. Over SSH, a busy machine may need more than one."""


@dataclass
class EventStop:
    """Requests to stop at an event, for one step at a time. ``last_events``: the last line read from each node."""

    servers: Sequence[Node]
    system: System
    last_events: Mapping[str, Mapping[str, Any]]
    step: int | None = None
    """Number of the step that made the request."""
    _trigger: OnEvent | None = None
    _dismissed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Lines, by node, that do not count because the process did not stop: it had no request yet."""

    async def request_stop(self, step: int, trigger: OnEvent) -> None:
        """Makes the request. Raises ``NodeError`` if the system takes none, or another step's request is active."""
        if self._trigger is not None:
            raise NodeError(
                f"another step already makes processes stop at {self._trigger.event}: only one step at a time can "
                "do this"
            )
        if not isinstance(self.system, SupportsHold):
            raise NodeError(
                f"{self.system.name} cannot stop itself after an event: define its method hold_file (SupportsHold)"
            )
        self.step, self._trigger = step, trigger
        request = trigger.event if trigger.key is None else f"{trigger.event} {trigger.key}"
        system = self.system
        await on_each(self.servers, lambda node: node.write_file(system.hold_file(node), f"{request}\n".encode()))

    async def find_stopped(self, excluded: Collection[str] = ()) -> tuple[str, Mapping[str, Any]] | None:
        """Returns the node and the line of a process that is stopped at the event; None if there is none yet.

        Nodes in ``excluded`` are ignored, because they are stopped for another reason.
        """
        loop = asyncio.get_running_loop()
        since: dict[str, tuple[Mapping[str, Any], float]] = {}
        while lines := self._find_matching(excluded):
            for node, line in lines:
                if await _is_stopped(node) and self.last_events[node.name] is line:
                    return node.name, line
                known, first = since.setdefault(node.name, (line, loop.time()))
                if known is not line:
                    since[node.name] = line, loop.time()
                elif loop.time() - first >= STOP_SECONDS:
                    self._dismissed[node.name] = line
            await asyncio.sleep(POLL_SECONDS)
        return None

    async def is_any_stopped(self, excluded: Collection[str]) -> bool:
        """Returns whether a process is stopped, so that its line will still arrive. Skips the nodes in ``excluded``."""
        for node in self.servers:
            if node.name not in excluded and await _is_stopped(node):
                return True
        return False

    def _find_matching(self, excluded: Collection[str]) -> list[tuple[Node, Mapping[str, Any]]]:
        """Returns the nodes whose last event is the requested one, with its line. Skips dismissed lines."""
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
        """Withdraws the request and continues the stopped processes, except those of ``keep``. Idempotent.

        If a node is unreachable, the others continue anyway, and the call raises ``NodeError``: it must be repeated.
        """
        system = self.system
        if self._trigger is None or not isinstance(system, SupportsHold):
            return
        errors: list[NodeError] = []

        async def withdraw(node: Node) -> None:
            await node.write_file(system.hold_file(node), b"")

        async def resume(node: Node) -> None:
            if node.name not in keep and await _is_stopped(node):
                await node.resume()

        for act in (withdraw, resume):
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
