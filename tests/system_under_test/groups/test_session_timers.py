"""A session is over when its member has been silent for its timeout, and never while the member waits for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.groups.session_timers import SessionTimers


@dataclass
class Silent:
    session_timeout: float = 3.0
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None
    waits: bool = False


def simulate(test: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop(1)
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()


def test_a_silent_member_expires_once_and_a_renewed_one_later() -> None:
    async def check() -> None:
        expired: list[Silent] = []
        timers: SessionTimers[Silent] = SessionTimers(expired.append)
        one, other = Silent(), Silent()
        timers.renew(one)
        timers.renew(other)
        await asyncio.sleep(2)
        timers.renew(other)
        await asyncio.sleep(2)
        assert expired == [one]
        assert expired[0] is one
        await asyncio.sleep(2)
        assert len(expired) == 2
        assert expired[1] is other

    simulate(check())


def test_a_shorter_timeout_counts_from_the_next_renewal() -> None:
    async def check() -> None:
        expired: list[Silent] = []
        timers: SessionTimers[Silent] = SessionTimers(expired.append)
        one = Silent(session_timeout=60.0)
        timers.renew(one)
        one.session_timeout = 1.0
        timers.renew(one)
        await asyncio.sleep(1.5)
        assert len(expired) == 1

    simulate(check())


def test_a_member_that_waits_for_an_answer_or_was_removed_does_not_expire() -> None:
    async def check() -> None:
        expired: list[Silent] = []
        timers: SessionTimers[Silent] = SessionTimers(expired.append)
        waiting, removed = Silent(waits=True), Silent()
        timers.renew(waiting)
        timers.renew(removed)
        timers.stop(removed)
        await asyncio.sleep(10)
        assert expired == []
        waiting.waits = False
        await asyncio.sleep(4)
        assert len(expired) == 1

    simulate(check())
