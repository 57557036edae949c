"""Histories whose search explodes, by model."""

from __future__ import annotations

from typing import Final

from assay.checkers.linearizability import MODELS

from helpers.linearizability_histories import operation
from helpers.linearizability_models import Text
from helpers.linearizability_oracle import Op


def at_once(*asked: tuple[str, object], reads: tuple[tuple[str, object], ...] = ()) -> list[Op]:
    """All of them overlap; afterwards come some that take care that they are not foreseen."""
    ops = [operation(f, value, call=at, ret=1000 + at) for at, (f, value) in enumerate(asked)]
    return ops + [
        operation(f, None, value, call=2000 + 2 * at, ret=2001 + 2 * at) for at, (f, value) in enumerate(reads)
    ]


READ_OF_NO_MOMENT: Final = [
    operation("read", None, [], call=-10, ret=-9),
    operation("remove", "b", call=-8, ret=-7),
    operation("add", "b", call=1500, ret=1501),
    operation("add", "a", call=1600, ret=1601),
    operation("remove", "a", call=1610, ret=1611),
    operation("remove", "b", call=1700, ret=1701),
    operation("read", None, [*range(30), "a"], call=1400, ret=1900),
]
"""The read shows a set that never was: a without b. For a alone and for b alone, there is such a moment."""
LETTERS: Final = "abcdefghijklmnop"
HARD: Final = {
    "fifo-queue": (MODELS["fifo-queue"], at_once(*(("enqueue", number // 2) for number in range(24)))),
    "set": (MODELS["set"], READ_OF_NO_MOMENT + at_once(*(("add", number) for number in range(30)))),
    "text": (Text(), at_once(*(("append", chr(97 + number) * 300) for number in range(24)))),
    "kv": (
        MODELS["kv"],
        at_once(*(("append", letter) for letter in LETTERS * 2), reads=(("get", LETTERS[::-1] * 2), ("get", "q"))),
    ),
}
