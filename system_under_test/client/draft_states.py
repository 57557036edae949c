"""The states of a consumer of the draft, and what moves it from one to the next."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """It consumes as a member, and while it looks for its coordinator again."""

    DOWN = "Down"
    DISCOVERING = "Discovering"
    MEMBER = "Member"
    REDISCOVERING = "Rediscovering"
    STOPPED = "Stopped"


CONSUMING: Final = frozenset({State.MEMBER, State.REDISCOVERING})


class Happening(StrEnum):
    STARTED = "started"
    JOINED = "joined"
    ACCEPTED = "a heartbeat was accepted"
    REFUSED = "its generation, or itself, is not known any more"
    LOST = "the coordinator does not answer, or is none"
    ENDED = "ended"


_NEXT: Final[Mapping[tuple[State, Happening], State]] = MappingProxyType(
    {
        (State.DOWN, Happening.STARTED): State.DISCOVERING,
        (State.DISCOVERING, Happening.JOINED): State.MEMBER,
        (State.MEMBER, Happening.REFUSED): State.STOPPED,
        (State.MEMBER, Happening.LOST): State.REDISCOVERING,
        (State.REDISCOVERING, Happening.ACCEPTED): State.MEMBER,
        (State.REDISCOVERING, Happening.REFUSED): State.STOPPED,
        (State.STOPPED, Happening.JOINED): State.MEMBER,
        # Stopped by a coordinator that then died: the next one may know of no reason to.
        (State.STOPPED, Happening.ACCEPTED): State.MEMBER,
    }
)


def next_state(state: State, happening: Happening) -> State:
    """What does not concern a state leaves it as it is; an end is one in every state."""
    return State.DOWN if happening is Happening.ENDED else _NEXT.get((state, happening), state)
