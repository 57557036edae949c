"""The broker's event log: every state change that a checker or a fault may want, one JSON line each.

Lines carry the node's monotonic time and a sequence number within this incarnation of the process; the order of events
of different nodes is not known and must not be concluded from the times.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

_ENCODER = msgspec.json.Encoder()


class BrokerEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. ``time``: seconds of the loop's clock; ``incarnation`` differs between any two lives of a broker;
    ``topic_zxid``: which of the topics that bear the name of ``key``, one after the other, it is (its znode's czxid);
    ``isr`` and ``elr`` are those of the ``version`` of its state.
    """

    time: float
    broker: int
    incarnation: int
    seq: int
    event: str
    key: str | None = None
    epoch: int | None = None
    controller_epoch: int | None = None
    zxid: int | None = None
    topic_zxid: int | None = None
    position: int | None = None
    value: int | None = None
    owner: str | None = None
    high_watermark: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    version: int | None = None
    isr: Sequence[int] | None = None
    elr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    gone: Sequence[int] | None = None
    min_insync: int | None = None
    unclean: bool | None = None
    replica: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    osr: Sequence[int] | None = None
    detail: dict[str, object] = {}


class EventLog:
    """Writes events; stops the process after one at which it is to be held.

    ``hold_at`` are the events given at the start; ``orders`` returns the lines of those that came since, each
    ``event`` or ``event key``. Events are changes of state, some per second at most, so that this costs little.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        hold: Callable[[], None],
        hold_at: Collection[str],
        now: Callable[[], float],
        broker: int,
        incarnation: int,
        orders: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._orders = orders
        self._write = write
        self._hold = hold
        self._hold_at = frozenset(hold_at)
        self._now = now
        self._broker = broker
        self.incarnation = incarnation
        self._seq = 0
        self.lives: dict[str, int] = {}
        """Of partitions whose log is here, the czxid of the topic: their events bear it."""

    def emit(
        self,
        event: str,
        *,
        key: str | None = None,
        epoch: int | None = None,
        controller_epoch: int | None = None,
        zxid: int | None = None,
        topic_zxid: int | None = None,
        position: int | None = None,
        value: int | None = None,
        owner: str | None = None,
        high_watermark: int | None = None,
        log_start: int | None = None,
        log_end: int | None = None,
        version: int | None = None,
        isr: Sequence[int] | None = None,
        elr: Sequence[int] | None = None,
        replicas: Sequence[int] | None = None,
        gone: Sequence[int] | None = None,
        min_insync: int | None = None,
        unclean: bool | None = None,
        replica: int | None = None,
        from_state: str | None = None,
        to_state: str | None = None,
        osr: Sequence[int] | None = None,
        **detail: object,
    ) -> None:
        """Visible to an observer when this returns; returns late if it is held at this event."""
        self._seq += 1
        line = BrokerEvent(
            time=round(self._now(), 6),
            broker=self._broker,
            incarnation=self.incarnation,
            seq=self._seq,
            event=event,
            key=key,
            epoch=epoch,
            controller_epoch=controller_epoch,
            zxid=zxid,
            topic_zxid=self.lives.get(key or "") if topic_zxid is None else topic_zxid,
            position=position,
            value=value,
            owner=owner,
            high_watermark=high_watermark,
            log_start=log_start,
            log_end=log_end,
            version=version,
            isr=isr,
            elr=elr,
            replicas=replicas,
            gone=gone,
            min_insync=min_insync,
            unclean=unclean,
            replica=replica,
            from_state=from_state,
            to_state=to_state,
            osr=osr,
            detail=detail,
        )
        self._write(_ENCODER.encode(line).decode())
        if event in self._hold_at or self._ordered(event, key):
            self._hold()

    def _ordered(self, event: str, key: str | None) -> bool:
        orders = self._orders()
        return event in orders or (key is not None and f"{event} {key}" in orders)
