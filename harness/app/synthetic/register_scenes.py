"""One scene for each register anomaly. Each begins and ends with a plain write, so that it stands for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from harness.app.synthetic.scene import Scene, Step
from harness.core.operation import Effect

OWN_VALUES: Final = 1 << 40
"""Values of scenes begin here; ordinary ones are below."""

A, B, C, D = (OWN_VALUES + number for number in range(4))
LAST: Final = D
"""What the register holds after every scene."""


def _write(key: str, value: int, begin: int, end: int) -> Step:
    return Step("write", begin, end, (Effect("write", key, value=value),))


def _read(key: str, value: int, begin: int, end: int) -> Step:
    return Step("read", begin, end, (Effect("read", key, value=value),))


def _cas(key: str, expected: int, value: int, begin: int, end: int) -> Step:
    return Step("cas", begin, end, (Effect("cas", key, value=value, expected=expected),))


def _missing_writer(key: str) -> Scene:
    return Scene(key, (_write(key, A, 0, 1), _read(key, B, 2, 3), _write(key, D, 4, 5)), value=B)


def _future_read(key: str) -> Scene:
    return Scene(key, (_write(key, A, 0, 1), _read(key, D, 2, 3), _write(key, D, 4, 5)), value=D)


def _stale_read(key: str) -> Scene:
    return Scene(key, (_write(key, A, 0, 1), _write(key, D, 2, 3), _read(key, A, 4, 5)), value=A)


def _lost_update(key: str) -> Scene:
    steps = (_write(key, A, 0, 1), _cas(key, A, B, 2, 4), _cas(key, A, C, 3, 5), _write(key, D, 6, 7))
    return Scene(key, steps, value=A)


SCENES: Final[Mapping[str, Callable[[str], Scene]]] = {
    "missing-writer": _missing_writer,
    "future-read": _future_read,
    "stale-read": _stale_read,
    "lost-update": _lost_update,
}
"""Anomaly -> its scene on a key."""
