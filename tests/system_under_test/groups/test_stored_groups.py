"""Deletions of committed offsets in the log of the offsets topic, beside commits of clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from assay.system_under_test.clocks import read_clocks
from assay.system_under_test.groups.records import VALUE_VERSION, OffsetRecord, OffsetValue
from assay.system_under_test.groups.stored_groups import BACK_OFF, StoredGroups
from assay.system_under_test.protocol.errors import ErrorCode


class RecordedGroups(StoredGroups):
    """Groups whose appends are recorded in ``appended`` and end as the test says.

    ``answers`` has the codes of the first appends. All later appends wait for :meth:`finish`.
    """

    answers: list[ErrorCode]
    appended: list[tuple[bytes, bytes | None]]
    waiting: list[tuple[asyncio.Future[ErrorCode], Callable[[ErrorCode], None]]]

    async def _append(
        self, records: Sequence[tuple[bytes, bytes | None]], on_outcome: Callable[[ErrorCode], None] = lambda code: None
    ) -> ErrorCode:
        if self.answers:
            code = self.answers.pop(0)
            on_outcome(code)
            return code
        self.appended += records
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, on_outcome))
        return await future

    def finish(self, code: ErrorCode = ErrorCode.NONE) -> None:
        future, on_outcome = self.waiting.pop(0)
        on_outcome(code)
        future.set_result(code)


class IgnoredEvents:
    def emit(self, name: str, **fields: Any) -> None:
        pass


def make_groups(*answers: ErrorCode) -> RecordedGroups:
    given = cast(Any, None)
    made = RecordedGroups(given, given, given, cast(Any, IgnoredEvents()), given, time.time)
    made.answers, made.appended, made.waiting = list(answers), [], []
    return made


def make_record(offset: int) -> OffsetRecord:
    now = int(time.time() * 1000)
    value = OffsetValue(
        version=VALUE_VERSION, offset=offset, metadata="", commit_timestamp=now, expire_timestamp=now + 10**6
    )
    return OffsetRecord("g", "again", 0, value)


def test_a_repeated_deletion_does_not_follow_a_commit_of_the_new_topic() -> None:
    async def check() -> None:
        stored = make_groups(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
        group = stored.get_or_create_group("g")
        group.offsets.put(make_record(5), read_clocks(time.time))
        deletion = asyncio.create_task(stored.delete_offsets(group, ["again"]))
        await asyncio.sleep(0)
        commit = asyncio.create_task(stored.commit(group, [make_record(1)]))
        await asyncio.sleep(2.5 * BACK_OFF)
        assert len(stored.appended) == 1, "only the commit"
        stored.finish()
        assert await commit == ErrorCode.NONE
        await asyncio.wait_for(deletion, 10 * BACK_OFF)
        assert group.offsets.values["again", 0].offset == 1

    asyncio.run(check())


def test_a_deletion_is_repeated_after_a_failed_commit() -> None:
    async def check() -> None:
        stored = make_groups(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
        group = stored.get_or_create_group("g")
        group.offsets.put(make_record(5), read_clocks(time.time))
        deletion = asyncio.create_task(stored.delete_offsets(group, ["again"]))
        await asyncio.sleep(0)
        commit = asyncio.create_task(stored.commit(group, [make_record(1)]))
        await asyncio.sleep(0)
        stored.finish(ErrorCode.UNKNOWN)
        assert await commit == ErrorCode.UNKNOWN
        await asyncio.sleep(2.5 * BACK_OFF)
        stored.finish()
        await asyncio.wait_for(deletion, 10 * BACK_OFF)
        assert not group.offsets.values

    asyncio.run(check())


def test_a_commit_that_is_under_way_when_the_topic_is_deleted_is_deleted_too() -> None:
    async def check() -> None:
        stored = make_groups()
        group = stored.get_or_create_group("g")
        commit = asyncio.create_task(stored.commit(group, [make_record(5)]))
        await asyncio.sleep(0)
        deletion = asyncio.create_task(stored.delete_offsets(group, ["again"]))
        await asyncio.sleep(0)
        for _ in range(2):  # in the order of the log
            stored.finish()
        await asyncio.wait_for(asyncio.gather(commit, deletion), 10 * BACK_OFF)
        assert not group.offsets.values

    asyncio.run(check())
