"""Functions with decisions of each kind: what counts lines and branches is tried on them.

``REACHED`` has for each call the branches that it takes; lines are known by tracing.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any


# fmt: off
def decide(number: int) -> str:
    if number < 0:
        return "negative"
    elif number == 0:
        found = "zero"
    else:
        found = "positive"
    if number > 10: found += "!"  # noqa: E701 - a body on the line of its test
    if (
        number > 20
        and number % 2 == 0
    ):
        found += "even"
    return found


# fmt: on
def loop(numbers: list[int]) -> int:
    """Sums until a number is negative."""
    total = 0
    for number in numbers:
        if number < 0:
            break
        total += number
    else:
        total *= 2
    while total > 100:
        total -= 100
    for _ in [one for one in numbers if one]:
        try:
            total //= len(numbers) - 1
        except ZeroDivisionError:
            continue
        finally:
            total += 1
    return total


def match(value: object) -> str:
    match value:
        case int():
            return "int"
        case [first, *_] if first:
            return "list"
    return "other"


class Base:
    def __init__(self, number: int) -> None:
        self.__number = number

    def __twice(self) -> int:
        return 2 * self.__number

    def value(self) -> int:
        return self.__twice()


class Derived(Base):
    def value(self) -> int:
        if (found := super().value()) > 4:
            return 4
        return found


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        if not arguments:
            return None
        return function(*arguments)

    return wrapper


@noted
def adding(more: int) -> Callable[[int], int]:
    def add(number: int) -> int:
        nonlocal more
        more += 1
        return number + more

    return add


def generate(count: int) -> Iterator[int]:
    while True:
        if count == 0:
            return
        count -= 1
        yield count


async def gather(count: int) -> int:
    async def numbers() -> AsyncIterator[int]:
        for number in range(count):
            await asyncio.sleep(0)
            yield number

    return sum([number async for number in numbers()])


# fmt: off
def fail(number: int) -> None:
    text = str(number)
    if text:
        raise ValueError(
            text
        )


# fmt: on
CALLS: dict[str, Callable[[], object]] = {
    "decide -1": lambda: decide(-1),
    "decide 0": lambda: decide(0),
    "decide 11": lambda: decide(11),
    "decide 21": lambda: decide(21),
    "decide 22": lambda: decide(22),
    "loop nothing": lambda: loop([]),
    "loop to its end": lambda: loop([1, 300]),
    "loop broken": lambda: loop([1, -1]),
    "loop of one": lambda: loop([5]),
    "match": lambda: [match(1), match([0]), match([1]), match("")],
    "match int": lambda: match(1),
    "derived": lambda: Derived(1).value(),
    "derived large": lambda: Derived(5).value(),
    "adding": lambda: adding(1)(2),
    "adding nothing": lambda: adding(),
    "generate": lambda: list(generate(2)),
    "gather": lambda: asyncio.run(gather(2)),
}

BREAKS = "if number < 0:\n            break"
REACHED: dict[str, set[tuple[str, bool]]] = {
    "decide -1": {("if number < 0:", True)},
    "decide 0": {
        ("if number < 0:", False), ("elif number == 0:", True), ("if number > 10:", False), ("if (", False),
    },
    "decide 11": {
        ("if number < 0:", False), ("elif number == 0:", False), ("if number > 10:", True), ("if (", False),
    },
    "decide 21": {
        ("if number < 0:", False), ("elif number == 0:", False), ("if number > 10:", True), ("if (", False),
    },
    "decide 22": {
        ("if number < 0:", False), ("elif number == 0:", False), ("if number > 10:", True), ("if (", True),
    },
    "loop nothing": {
        ("for number in numbers:", False), ("while total > 100:", False), ("for _ in [", False),
    },
    "loop to its end": {
        ("for number in numbers:", True), (BREAKS, False), ("for number in numbers:", False),
        ("while total > 100:", True), ("while total > 100:", False), ("for _ in [", True), ("for _ in [", False),
    },
    "loop broken": {
        ("for number in numbers:", True), (BREAKS, False),
        (BREAKS, True), ("while total > 100:", False), ("for _ in [", True),
        ("for _ in [", False),
    },
    "loop of one": {
        ("for number in numbers:", True), (BREAKS, False), ("for number in numbers:", False),
        ("while total > 100:", False), ("for _ in [", True), ("for _ in [", False),
    },
    "match": set(),
    "match int": set(),
    "derived": {("if (found :=", False)},
    "derived large": {("if (found :=", True)},
    "adding": {("if not arguments:", False)},
    "adding nothing": {("if not arguments:", True)},
    "generate": {("if count == 0:", False), ("if count == 0:", True)},
    "gather": {("for number in range(count):", True), ("for number in range(count):", False)},
}  # fmt: skip
"""The decision as the source has it."""
