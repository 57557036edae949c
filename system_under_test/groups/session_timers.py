"""When the session of a member is over: it has sent nothing for as long as it asked for."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """The part of a member that its session needs. ``session_timeout`` in seconds, ``deadline`` on the loop's clock."""

    session_timeout: float
    deadline: float
    timer: asyncio.TimerHandle | None

    @property
    def waits(self) -> bool:
        """Has it asked something, and is not answered yet?"""


TimedT = TypeVar("TimedT", bound=Timed)


class SessionTimers(Generic[TimedT]):
    """One timer for each member, moved on when it fires, not at each heartbeat. ``expired`` removes the member."""

    def __init__(self, expired: Callable[[TimedT], None]) -> None:
        self._expired = expired

    def renew(self, member: TimedT) -> None:
        """The member lives: its session begins again."""
        loop = asyncio.get_running_loop()
        member.deadline = loop.time() + member.session_timeout
        if member.timer is not None and member.timer.when() > member.deadline:  # its session is shorter now
            self.stop(member)
        if member.timer is None:
            member.timer = loop.call_at(member.deadline, self._fired, member)

    def stop(self, member: TimedT) -> None:
        """Ends the timer of a member that is removed."""
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    def _fired(self, member: TimedT) -> None:
        member.timer = None
        loop = asyncio.get_running_loop()
        if member.waits:
            self.renew(member)  # it waits for us
        elif loop.time() < member.deadline:
            member.timer = loop.call_at(member.deadline, self._fired, member)
        else:
            self._expired(member)
