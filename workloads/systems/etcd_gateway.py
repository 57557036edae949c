"""Client of etcd's JSON gateway. It needs only the standard library, so that it also runs on client nodes."""

import json
from base64 import b64encode
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SECONDS: Final = 1.0
"""Timeout of a request."""
TROUBLE: Final = (OSError, HTTPException)
"""Exceptions of :func:`ask`: no connection, no answer in time, or a rejection."""


def ask(address: str, what: str, *, seconds: float = SECONDS, **request: Any) -> dict[str, Any]:
    """Sends one request, such as ``kv/range``, to the member at ``host:port``, and returns the answer."""
    http_request = Request(f"http://{address}/v3/{what}", json.dumps(request).encode())
    try:
        with urlopen(http_request, timeout=seconds) as answer:
            return dict(json.load(answer))
    except HTTPError as refusal:
        refusal.close()  # the error holds the response, and so a socket
        raise


def encode_text(value: object) -> str:
    """Encodes a key or value in Base64, as the gateway requires."""
    return b64encode(str(value).encode()).decode()
