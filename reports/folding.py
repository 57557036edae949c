"""Folds rows that differ only in numbers (partition, node, time) into one."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LEAST: Final = 3
"""Minimum number of rows to fold; fewer are read as quickly."""
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Fold(Generic[T]):
    """``first`` represents the group; ``others`` are shown when it is opened."""

    first: T
    others: tuple[T, ...] = ()


def fold(items: Sequence[T], text: Callable[[T], str]) -> tuple[Fold[T], ...]:
    """Returns the folds in the order of their first items; ``text``: the text of an item."""
    alike: dict[str, list[T]] = {}
    for item in items:
        alike.setdefault(_NUMBER.sub("#", text(item)), []).append(item)
    folds: list[Fold[T]] = []
    for group in alike.values():
        if len(group) < LEAST:
            folds += [Fold(item) for item in group]
        else:
            folds.append(Fold(group[0], tuple(group[1:])))
    return tuple(folds)


def join_keys(keys: Sequence[str | None], most: int = 3) -> str:
    """Lists some of the keys and the number of others; empty if no item has a key."""
    known = list(dict.fromkeys(key for key in keys if key is not None))
    more = f" and {len(known) - most:,} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more
