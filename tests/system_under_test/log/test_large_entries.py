"""Small compressed entries that hold much: a log is opened, read and compacted in steps nonetheless."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.client import multi_fetch
from assay.system_under_test.config import TopicConfig
from assay.system_under_test.log import cleaner
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.log import Log
from assay.system_under_test.protocol.fetch import FetchPartitionResponse
from assay.system_under_test.records import message, message_set
from assay.system_under_test.records.compression import LZ4
from assay.system_under_test.records.message import Message
from assay.system_under_test.records.steps import REWRITE_STEP, STEP_BYTES
from assay.system_under_test.records.wrapper import wrap

from helpers.producing import validated

ENTRIES = 12
LARGE = wrap([Message(0, 1, 0, 5, b"k", bytes(STEP_BYTES))], LZ4)


class Bench:
    """A disk with a log."""

    def __init__(self) -> None:
        self.storage = SimDisk(Random(7)).storage(fsync_delay=lambda: 0)

    async def open(self, *, clean: bool = False, recovery_point: int = 0, **config: Any) -> Log:
        log, recovery = await Log.open(
            self.storage,
            "orders-0",
            LogConfig(**config),
            clean=clean,
            recovery_point=recovery_point,
            wall_clock=lambda: 1000.0,
        )
        assert not recovery.damaged, recovery.problem
        return log


async def count_turns(work: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """Returns the result of the work, and how often another task ran meanwhile."""
    working, turns = asyncio.ensure_future(work), 0
    while not working.done():
        turns += 1
        await asyncio.sleep(0)
    return await working, turns


def test_other_tasks_run_while_a_log_of_large_entries_is_recovered() -> None:
    async def scenario() -> None:
        bench = Bench()
        log = await bench.open()
        for _ in range(ENTRIES):
            log.append(validated(LARGE))
        await log.flush()
        found, turns = await count_turns(bench.open(index_interval_bytes=1))
        assert found.end_offset == ENTRIES
        assert turns >= ENTRIES

    asyncio.run(scenario())


def test_the_first_read_of_large_entries_ends_where_it_has_checked_enough() -> None:
    async def scenario() -> None:
        bench = Bench()
        log = await bench.open(index_interval_bytes=1)
        for _ in range(ENTRIES):
            log.append(validated(LARGE))
        await log.close()
        log = await bench.open(clean=True, recovery_point=ENTRIES, index_interval_bytes=1)
        offset, counts = 0, []
        while offset < ENTRIES:
            found = message_set.check(log.read(offset, 1 << 20).read(), offset)
            assert found.problem is None
            counts.append(found.count)
            offset = found.next_offset
        assert max(counts[:-1]) <= 2
        whole = log.read(0, 1 << 20)
        assert message_set.check(whole.read(), 0).count == ENTRIES, "checked once only"

    asyncio.run(scenario())


@pytest.mark.slow
def test_other_tasks_run_while_large_entries_are_compacted() -> None:
    async def scenario() -> None:
        bench = Bench()
        log = await bench.open(compacted=True, segment_bytes=len(LARGE) * ENTRIES // 2)
        for _ in range(ENTRIES):
            log.append(validated(LARGE))
        many = wrap([Message(i, 1, 0, 5, b"%d" % (i % 100), b"v") for i in range(4 * REWRITE_STEP)], LZ4)
        log.append(validated(many))
        for _ in range(2):
            log.append(validated(LARGE))
        log.append(validated(message_set.build([(b"last", bytes(len(LARGE) * ENTRIES), 5)])))
        await log.flush()
        topic = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        plan = cleaner.plan_cleaning(log, 0, log.end_offset, topic)
        assert plan is not None
        result, turns = await count_turns(cleaner.clean(log, plan, 1_000_000, lambda _: None))
        assert result.messages == ENTRIES + 4 * REWRITE_STEP - 100 + 1
        assert turns >= 2 * ENTRIES + 8

    asyncio.run(scenario())


def test_a_search_by_time_makes_no_object_for_the_messages_after_the_found_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = await Bench().open()
        log.append(validated(wrap([Message(i, 1, 0, 5 + i, None, b"v") for i in range(1000)], LZ4)))
        made, original = 0, message.decode

        def counting(*args: Any, **kwargs: Any) -> Message:
            nonlocal made
            made += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(message, "decode", counting)
        assert log.find_offset_for_time(8) == (8, 3)
        assert made < 20

    asyncio.run(scenario())


def test_a_client_takes_no_more_messages_of_a_response_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_fetch, "MAX_MESSAGES", 10)
    records = b"".join(
        wrap([Message(i, 1, 0, 5, None, b"v") for i in range(start, start + 8)], LZ4) for start in range(0, 40, 8)
    )
    response = FetchPartitionResponse(partition=0, error_code=0, high_watermark=40, records=records)
    for offset, end in ((0, 10), (3, 10), (15, 16), (30, 31)):
        messages, damage = multi_fetch.read_messages(response, offset, check_crcs=True)
        assert (messages[0].offset, messages[-1].offset, damage) == (0, end - 1, None)
