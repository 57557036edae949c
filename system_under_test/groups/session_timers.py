"""Session timers: a member's session ends when it sends nothing for its session timeout."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class SessionMember(Protocol):
    """A member with a session. ``session_timeout`` is in seconds, ``deadline`` on the loop's clock."""

    session_timeout: float
    deadline: float
    timer: asyncio.TimerHandle | None

    @property
    def waits(self) -> bool:
        """Whether a request of the member is unanswered."""


MemberT = TypeVar("MemberT", bound=SessionMember)


class SessionTimers(Generic[MemberT]):
    """Timers, one for each member. A heartbeat moves only the deadline, which the timer checks when it fires.

    ``on_expired`` is called with a member whose session has ended, and must remove the member.
    """

    def __init__(self, on_expired: Callable[[MemberT], None]) -> None:
        self._on_expired = on_expired

    def renew(self, member: MemberT) -> None:
        """Restarts the session of a member, which has sent a request."""
        loop = asyncio.get_running_loop()
        member.deadline = loop.time() + member.session_timeout
        if member.timer is not None and member.timer.when() > member.deadline:  # the session timeout has been reduced
            self.stop(member)
        if member.timer is None:
            member.timer = loop.call_at(member.deadline, self._on_timer, member)

    def stop(self, member: MemberT) -> None:
        """Stops the timer of a removed member."""
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    def _on_timer(self, member: MemberT) -> None:
        member.timer = None
        loop = asyncio.get_running_loop()
        if member.waits:
            self.renew(member)  # the member is waiting for this broker's response
        elif loop.time() < member.deadline:
            member.timer = loop.call_at(member.deadline, self._on_timer, member)
        else:
            self._on_expired(member)
