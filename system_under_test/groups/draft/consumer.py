"""A consumer of a draft group: its subscription, and its pending join."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from assay.system_under_test.assignors import Partition
from assay.system_under_test.groups.group import GroupError
from assay.system_under_test.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Result of a join; ``on_response_written`` must be called once the response was written."""

    generation: int
    consumer_id: str
    partitions: tuple[Partition, ...]
    on_response_written: Callable[[], None]


@dataclass
class Consumer:
    """A consumer. ``session_timeout`` is in seconds, ``deadline`` on the loop's clock.

    - ``notified``: in this rebalance, the consumer got the response that its generation is over
    - ``seen``: the consumer has sent a heartbeat in the present generation
    """

    consumer_id: str
    topics: tuple[str, ...]
    session_timeout: float
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None
    joining: asyncio.Future[JoinResult] | None = None
    notified: bool = False
    seen: bool = False

    @property
    def waits(self) -> bool:
        """Whether a join of the consumer is unanswered."""
        return self.joining is not None and not self.joining.done()

    def reject(self, code: ErrorCode) -> None:
        """Rejects a pending join."""
        if self.joining is not None and not self.joining.done():
            self.joining.set_exception(GroupError(code))
        self.joining = None
