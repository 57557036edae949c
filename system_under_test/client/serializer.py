"""Serializers: convert a caller's keys and values to bytes."""

import json
from collections.abc import Callable
from typing import Any

Serializer = Callable[[str, Any], bytes | None]
"""Converts a message's key or value to bytes. The arguments are the topic and the key or value, which may be None.

The result None is sent as null. An exception fails only that send."""


def as_bytes(topic: str, data: Any) -> bytes | None:
    """Returns bytes unchanged. Raises ``TypeError`` for anything else."""
    if data is not None and not isinstance(data, bytes):
        raise TypeError(f"without a serializer, a message to {topic} must be bytes, not {type(data).__name__}")
    return data


def as_text(topic: str, data: Any) -> bytes | None:
    """Encodes a string as UTF-8. Raises ``TypeError`` for anything else."""
    if data is not None and not isinstance(data, str):
        raise TypeError(f"a message to {topic} must be text, not {type(data).__name__}")
    return None if data is None else data.encode()


def as_json(topic: str, data: Any) -> bytes | None:
    """Encodes JSON with sorted keys, so equal data are equal bytes. None becomes a null value (a tombstone), not the
    JSON text ``null``."""
    return None if data is None else json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
