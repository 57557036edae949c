"""Serializers: from a caller's keys and values to the bytes of a message."""

import json
from collections.abc import Callable
from typing import Any

Serializer = Callable[[str, Any], bytes | None]
"""From a topic and a key or value, None included, to bytes, or None for none. What it raises fails that one send."""


def as_bytes(topic: str, data: Any) -> bytes | None:
    """Bytes as they are. Raises ``TypeError`` for anything else."""
    if data is not None and not isinstance(data, bytes):
        raise TypeError(f"a message to {topic} needs bytes without a serializer, not {type(data).__name__}")
    return data


def as_text(topic: str, data: Any) -> bytes | None:
    """UTF-8 of a string. Raises ``TypeError`` for anything else."""
    if data is not None and not isinstance(data, str):
        raise TypeError(f"a message to {topic} was to be text, not {type(data).__name__}")
    return None if data is None else data.encode()


def as_json(topic: str, data: Any) -> bytes | None:
    """JSON, keys sorted, so that equal data are equal bytes; None stays no value (a tombstone), and is not ``null``."""
    return None if data is None else json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
