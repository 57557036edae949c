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


LETTERS: Final = "abcdefghijklmnop"
HARD: Final = {
    "fifo-queue": (MODELS["fifo-queue"], at_once(*(("enqueue", number // 2) for number in range(24)))),
    "set": (MODELS["set"], at_once(*(("add", number) for number in range(30)), reads=(("read", [40]),))),
    "text": (Text(), at_once(*(("append", chr(97 + number) * 300) for number in range(24)))),
    "kv": (
        MODELS["kv"],
        at_once(*(("append", letter) for letter in LETTERS * 2), reads=(("get", LETTERS[::-1] * 2), ("get", "q"))),
    ),
}
