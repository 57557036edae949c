"""etcd, asked through the JSON gateway that its server has: the standard library is enough, on client nodes as well."""

import json
from base64 import b64encode
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SECONDS: Final = 1.0
"""For which a client waits for an answer."""
TROUBLE: Final = (OSError, HTTPException)
"""What :func:`ask` raises: no connection, no answer in time, or a refusal."""


def ask(address: str, what: str, *, seconds: float = SECONDS, **request: Any) -> dict[str, Any]:
    """One request, such as ``kv/range``, of the member at ``host:port``."""
    asked = Request(f"http://{address}/v3/{what}", json.dumps(request).encode())
    try:
        with urlopen(asked, timeout=seconds) as answer:
            return dict(json.load(answer))
    except HTTPError as refusal:
        refusal.close()  # it has a body, and so a socket
        raise


def text(value: object) -> str:
    """Keys and values travel in Base64."""
    return b64encode(str(value).encode()).decode()
