"""Runs steps concurrently and leaves none running after a failure."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Awaits all calls to their end, then raises the first error.

    No step of a failed start may still run when the start is undone.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
