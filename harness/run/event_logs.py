"""Collects the nodes' event logs into the history during the run.

A task per node follows ``node.events()``. Lines are JSON objects in the format of ``system_under_test/events.py``.
Other lines, and lines cut short by a kill, become events named ``unreadable``, so that nothing is lost. A last line
without a line feed is recorded if it is whole. If it is not, or a node can no longer be followed, this is recorded as a
problem of the run and not raised, because the operations matter more.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from assay.cluster.node import Node, NodeError
from assay.harness.core.history import History
from assay.harness.core.history.data_sets import EVENTS, NODE_LISTS
from assay.harness.core.timestamps import NANOSECONDS, Stamps

UNREADABLE: Final = "unreadable"
GRACE: Final = 0.5
"""Seconds that the collector still waits for the last lines when it is stopped."""

_MAX_SECONDS: Final = 2.0**62 / NANOSECONDS
"""Upper limit of a clock (146 years), because larger values could overflow a column of times."""
_Int64: Any = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: Final[Mapping[str, Any]] = {"int64": _Int64, "string": str, "bool": bool}


def _define_line() -> type[msgspec.Struct]:
    """Builds the type of a line from the columns of ``EVENTS``; ``time`` is in seconds of the node's monotonic clock.

    A line with a value that its column cannot hold is unreadable; otherwise the whole history would fail.
    """
    time = Annotated[float, msgspec.Meta(ge=-_MAX_SECONDS, le=_MAX_SECONDS)]
    required = [("time", time), ("seq", _Int64), ("event", str)]
    optional: list[tuple[str, Any, Any]] = [("incarnation", _Int64, 0), ("topic_zxid", int | None, None)]
    for column in EVENTS:
        if column.nullable:
            kind = list[_Int64] if column.name in NODE_LISTS else _TYPES[str(column.type)]
            optional.append((column.name, kind | None, None))
    return msgspec.defstruct("Line", [*required, *optional, ("detail", Any, None)], frozen=True)


Line: Final = _define_line()
"""A line of an event log."""


class TopicKeys:
    """Gives topics of one name distinct keys, as the history does: ``orders-0``, ``orders#2-0``, ``orders#3-0``.

    Lines identify a topic by the zxid of its creation. Topics are numbered as their lines arrive. If the first line of
    an earlier topic arrives after one of a later topic, its key is ``orders#0-0``.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}

    def to_history_key(self, key: str | None, topic_zxid: int | None) -> str | None:
        """Returns the history's key for a line's key and the zxid of its topic's creation."""
        if key is None or topic_zxid is None:
            return key
        topic, _, partition = key.rpartition("-")
        known = self._known.setdefault(topic, [])
        if topic_zxid not in known:
            if known and topic_zxid < known[-1]:
                return f"{topic}#0-{partition}"
            known.append(topic_zxid)
        number = 1 + known.index(topic_zxid)
        return key if number == 1 else f"{topic}#{number}-{partition}"


@dataclass
class EventLogCollector:
    """Follows the event logs of some nodes from ``start`` to ``stop``."""

    nodes: Sequence[Node]
    history: History
    stamps: Stamps
    on_line: Callable[[str, str], None] | None
    """Called with a node's name and each line as soon as it arrives."""
    problems: list[str] = field(default_factory=list)
    _topic_keys: TopicKeys = field(default_factory=TopicKeys)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow(node), name=f"events of {node.name}") for node in self.nodes]

    async def stop(self) -> None:
        """Waits a moment for the last lines, then ends. Idempotent."""
        if self._tasks:
            await asyncio.sleep(GRACE)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for node, task in zip(self.nodes, tasks, strict=True):
            try:
                await task
            except asyncio.CancelledError:
                self._record_unfinished(node)
            except (NodeError, OSError) as error:
                self.problems.append(f"events of {node.name}: {error}")

    def _record_unfinished(self, node: Node) -> None:
        """Records the last line of a log if it has no line feed, as of a server that was killed while it wrote."""
        text = getattr(node, "unfinished_event", "")
        if not text:
            return
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.DecodeError, RecursionError):
            self.problems.append(f"events of {node.name}: the last line is not whole, so it was left out: {text[:200]}")
        else:
            self._record(node, line)

    async def _follow(self, node: Node) -> None:
        unreadable = 0
        async for text in node.events():
            if self.on_line is not None:
                self.on_line(node.name, text)
            try:
                line = msgspec.json.decode(text, type=Line)
            except (msgspec.DecodeError, RecursionError):
                unreadable += 1
                self.history.event(
                    time=self.stamps.now(), node=node.name, incarnation=0, seq=-unreadable, event=UNREADABLE,
                    detail={"line": text},
                )  # fmt: skip
                continue
            self._record(node, line)

    def _record(self, node: Node, line: msgspec.Struct) -> None:
        """Records a line with its time by the harness's clock, which is used for display only.

        In the simulation, nodes share the harness's clock. A real cluster has measured how far the node's clock is
        ahead. In containers on this machine, that is 0.
        """
        fields = msgspec.structs.asdict(line)
        fields["key"] = self._topic_keys.to_history_key(fields["key"], fields.pop("topic_zxid"))
        ahead = getattr(node, "monotonic_ahead", 0.0)
        time = int((fields.pop("time") - ahead - self.stamps.to_loop_time(0)) * NANOSECONDS)
        self.history.event(time=time, node=node.name, **fields)
