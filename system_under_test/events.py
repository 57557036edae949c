"""The broker's event log: every state change that a checker or a fault may need, one JSON line each.

Lines carry the node's monotonic time and a sequence number within this incarnation of the process. The order of events
of different nodes is unknown and must not be inferred from the times.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypedDict, Unpack

import msgspec

_ENCODER = msgspec.json.Encoder()


class Columns(TypedDict, total=False):
    """The optional columns of a line.

    Each line also has ``event``, ``time`` (seconds of the loop's clock), ``broker``, ``incarnation`` (changes with each
    restart of the broker) and ``seq``.

    - ``zxid``: the ZooKeeper transaction that the event is about, such as a write or the broker's registration
    - ``topic_zxid``: the czxid of the topic's znode; differs if a topic is created again under the name in ``key``
    - ``isr``, ``elr``, ``osr``: the in-sync set, the eligible leader replicas (KIP-966), and the replicas out of sync,
      in the partition state of ``version`` (the version of the state's znode)
    - ``position``: usually an offset in the log of ``key``; ``value``, ``owner``: their meaning depends on the event
    - ``gone``: the replicas that a reassignment has removed
    - ``detail``: anything else that a reader needs
    """

    key: str | None
    epoch: int | None
    controller_epoch: int | None
    zxid: int | None
    topic_zxid: int | None
    position: int | None
    value: int | None
    owner: str | None
    high_watermark: int | None
    log_start: int | None
    log_end: int | None
    version: int | None
    isr: Sequence[int] | None
    elr: Sequence[int] | None
    replicas: Sequence[int] | None
    gone: Sequence[int] | None
    min_insync: int | None
    unclean: bool | None
    replica: int | None
    from_state: str | None
    to_state: str | None
    osr: Sequence[int] | None
    detail: Mapping[str, object]


class EventLog:
    """Writes events; stops the process (``hold``) after an event at which a tester wants it stopped.

    ``stop_events`` has the events given at the start. ``read_stop_events`` returns further ones, each ``event`` or
    ``event key``. It is called after each event, because a tester changes them while the broker runs.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        hold: Callable[[], None],
        stop_events: Collection[str],
        now: Callable[[], float],
        broker: int,
        incarnation: int,
        read_stop_events: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._read_stop_events = read_stop_events
        self._write = write
        self._hold = hold
        self._stop_events = frozenset(stop_events)
        self._now = now
        self._broker = broker
        self.incarnation = incarnation
        self._seq = 0
        self.topic_czxids: dict[str, int] = {}
        """For each partition whose log is here, the czxid of its topic, which the partition's events carry."""

    def emit(self, event: str, **columns: Unpack[Columns]) -> None:
        """Writes an event, visible to observers at once. If the process is stopped there, returns when it continues."""
        self._seq += 1
        key = columns.get("key")
        if columns.get("topic_zxid") is None:
            columns["topic_zxid"] = self.topic_czxids.get(key or "")
        line = {
            "time": round(self._now(), 6),
            "broker": self._broker,
            "incarnation": self.incarnation,
            "seq": self._seq,
            "event": event,
            **{name: value for name, value in columns.items() if value is not None},
        }
        self._write(_ENCODER.encode(line).decode())
        if event in self._stop_events or self._is_requested(event, key):
            self._hold()

    def _is_requested(self, event: str, key: str | None) -> bool:
        lines = self._read_stop_events()
        return event in lines or (key is not None and f"{event} {key}" in lines)
