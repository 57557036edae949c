"""Session timers: a member's session ends when it sends nothing for its session timeout."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class SessionMember(Protocol):
    """Session of a member. ``session_timeout`` is in seconds, ``deadline`` on the loop's clock."""

    session_timeout: float
    deadline: float
    timer: asyncio.TimerHandle | None

    @property
    def waits(self) -> bool:
        """Whether a request of the member is unanswered."""


TimedT = TypeVar("TimedT", bound=SessionMember)


class SessionTimers(Generic[TimedT]):
    """A timer per member. Heartbeats move only the deadline, which the timer checks. ``expired`` removes members."""

    def __init__(self, expired: Callable[[TimedT], None]) -> None:
        self._expired = expired

    def renew(self, member: TimedT) -> None:
        """Restarts the session of a member that sent something."""
        loop = asyncio.get_running_loop()
        member.deadline = loop.time() + member.session_timeout
        if member.timer is not None and member.timer.when() > member.deadline:  # the session timeout has been reduced
            self.stop(member)
        if member.timer is None:
            member.timer = loop.call_at(member.deadline, self._fired, member)

    def stop(self, member: TimedT) -> None:
        """Stops the timer of a removed member."""
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    def _fired(self, member: TimedT) -> None:
        member.timer = None
        loop = asyncio.get_running_loop()
        if member.waits:
            self.renew(member)  # the member waits for a response from here
        elif loop.time() < member.deadline:
            member.timer = loop.call_at(member.deadline, self._fired, member)
        else:
            self._expired(member)
