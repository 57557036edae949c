"""What a server asks of the broker: a table of coroutines by API key."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


def _ignored(deed: Callable[[], None]) -> None:
    """No response is sent."""


def _nothing() -> None:
    """The request has no memory of its own to give back."""


class Context(NamedTuple):
    """Where a request came from, and how to read it."""

    api_key: int
    api_version: int
    """Responses are encoded in this version, too."""
    correlation_id: int
    client_id: str | None
    peer: str
    """``address:port`` of the client, for log lines."""
    after_response: Callable[[Callable[[], None]], None] = _ignored
    """Has something done once the response was handed to the connection; whether the peer gets it is not known."""
    release: Callable[[], None] = _nothing
    """Gives back the memory of a large request before it is answered. The handler has dropped the request's bytes."""


Handler = Callable[[Any, Context], Awaitable[Any | None]]
"""Takes the decoded request and returns the API's response message; None sends nothing (Produce with acks 0).

The connection's next request is read only after the handler has returned, and its client's going away does not
interrupt it, so a handler must bound its own waiting. Raising :class:`CloseConnection` closes the connection; any other
exception does as well, and is logged with its traceback as an error of ours.
"""


class CloseConnection(Exception):
    """The protocol has no way to say what is wrong: the connection is closed and the reason logged in one line."""
