"""One consumer of a group of the draft: what it asked for, and the answer it waits for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from assay.system_under_test.assignors import Partition
from assay.system_under_test.groups.group import GroupError
from assay.system_under_test.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join; ``handed`` is to be called when it has gone out."""

    generation: int
    consumer_id: str
    partitions: tuple[Partition, ...]
    handed: Callable[[], None]


@dataclass
class Consumer:
    """``session_timeout`` in seconds, ``deadline`` on the loop's clock.

    ``notified``: since the group prepares, it got the answer that its generation is over; ``seen``: it has heartbeated
    in the present one.
    """

    consumer_id: str
    topics: tuple[str, ...]
    session_timeout: float
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None
    joining: asyncio.Future[Joined] | None = None
    notified: bool = False
    seen: bool = False

    @property
    def waits(self) -> bool:
        """Has it asked to join, and is not answered yet?"""
        return self.joining is not None and not self.joining.done()

    def reject(self, code: ErrorCode) -> None:
        """Ends a join that waits."""
        if self.joining is not None and not self.joining.done():
            self.joining.set_exception(GroupError(code))
        self.joining = None
