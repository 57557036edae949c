"""Interface between the server and the broker: a table of coroutines by API key."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


def _ignore_callback(callback: Callable[[], None]) -> None:
    """Ignores the callback, because no response is sent."""


def _release_nothing() -> None:
    """Does nothing, because the request has no memory of its own to give back."""


class RequestContext(NamedTuple):
    """The origin of a request, and its header's fields."""

    api_key: int
    api_version: int
    """The version of the request; responses are encoded in it, too."""
    correlation_id: int
    client_id: str | None
    peer: str
    """``address:port`` of the client, for log lines."""
    after_response: Callable[[Callable[[], None]], None] = _ignore_callback
    """Registers a callback to run after the response was written, which the peer may not have received yet."""
    release: Callable[[], None] = _release_nothing
    """Gives back the memory of a large request early. Must be called only when nothing refers to its bytes any more."""


Handler = Callable[[Any, RequestContext], Awaitable[Any | None]]
"""Takes the decoded request and returns the API's response message. None sends nothing (Produce with acks 0).

The connection's next request is read only after the handler has returned. A client that disconnects does not interrupt
the handler, so a handler must bound its own waits. :class:`CloseConnection` closes the connection. Any other exception
closes the connection as well, and is logged with its traceback as a bug.
"""


class CloseConnection(Exception):
    """Raised if no error code fits. The connection is closed and the reason is logged in one line."""
