"""Equal rows folded into one: what differs in numbers alone (which partition, which node, when) is one thing."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LEAST: Final = 3
"""So many at least are folded; fewer are read as quickly."""
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Fold(Generic[T]):
    """``first`` stands for all; ``others`` are shown when it is opened."""

    first: T
    others: tuple[T, ...] = ()


def fold(items: Sequence[T], text: Callable[[T], str]) -> tuple[Fold[T], ...]:
    """In the order of the first of each; ``text``: what is said of an item."""
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


def keys_of(keys: Sequence[str | None], most: int = 3) -> str:
    """Some of the keys, and how many more there are; empty where nothing has a key."""
    known = list(dict.fromkeys(key for key in keys if key is not None))
    more = f" and {len(known) - most:,} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more
