"""If a group of the draft has two coordinators, only the one of the later term writes.

Each knows the outcome of its writes, whatever ZooKeeper's connections do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import CheckVersion, Create, SetData

from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.groups.draft.metadata import (
    ABSENT,
    MAX_BYTES,
    CoordinatorDisplaced,
    GroupMetadata,
    GroupTooLarge,
    MetadataStore,
    StoredConsumer,
)
from assay.system_under_test.zookeeper import paths, znodes

from helpers.examples import some_of

DONE, LOST, UNHEARD, LATE = "done", "lost", "unheard", "late"
"""A request: is answered; never arrives; is carried out without an answer; is carried out after the next one."""


@dataclass
class Stat:
    version: int


@dataclass
class Znode:
    """A znode on connections that fare as ``fates`` says, one after the other, and then well."""

    fates: list[str] = field(default_factory=list)
    content: tuple[bytes, int] | None = None
    written: list[bytes] = field(default_factory=list)
    _late: list[tuple[bytes, int]] = field(default_factory=list)

    def _apply(self, data: bytes, version: int) -> Stat:
        if version == ABSENT and self.content is not None:
            raise NodeExistsError
        if version != ABSENT and self.content is None:
            raise NoNodeError
        if version != ABSENT and self.content is not None and self.content[1] != version:
            raise BadVersionError
        self.content = (data, version + 1)
        self.written.append(data)
        return Stat(version + 1)

    async def _write(self, data: bytes, version: int) -> Stat:
        fate = self.fates.pop(0) if self.fates else DONE
        late, self._late = self._late, []
        try:
            if fate in (DONE, UNHEARD):
                stat = self._apply(data, version)
        finally:
            for request in late:
                try:
                    self._apply(*request)
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue
        if fate == DONE:
            return stat
        if fate == LATE:
            self._late.append((data, version))
        raise ConnectionLoss

    async def multi(self, operations: list[Any]) -> list[Any]:
        """A creation, which the folder counts, or a change; others than the group's coordinators create no group."""
        match operations:
            case [Create(data=value), SetData(path=paths.DRAFT_GROUPS)]:
                return [None, replace(await self._write(value, ABSENT), version=1)]
            case [CheckVersion(path=paths.DRAFT_GROUPS), SetData(data=value, version=version)]:
                return [None, await self._write(value, version)]
            case _:
                raise AssertionError(operations)

    async def get(self, path: str) -> tuple[bytes, Stat]:
        if self.fates and self.fates.pop(0) != DONE:
            raise ConnectionLoss
        if path == paths.DRAFT_GROUPS:
            return b"", Stat(1)
        if self.content is None:
            raise NoNodeError
        return self.content[0], Stat(self.content[1])


def metadata(epoch: int, generation: int, topics: int = 1) -> GroupMetadata:
    return GroupMetadata(
        epoch=epoch,
        generation=generation,
        strategy="range",
        consumers={"c": StoredConsumer(["orders"] * topics, 2000)},
        partitions={"orders": 1},
        assignment={"c": {"orders": [0]}},
    )


def run(test: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop(1)
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()


def store(znode: Znode, epoch: int) -> MetadataStore:
    zookeeper: Any = znode
    return MetadataStore(zookeeper, epoch)


@settings(max_examples=some_of(200), deadline=None)
@given(st.lists(st.sampled_from((DONE, LOST, UNHEARD, LATE)), max_size=8))
def test_a_write_that_is_said_to_be_done_was_done_once(fates: list[str]) -> None:
    async def check() -> None:
        znode = Znode(fates)
        mine, version = store(znode, 5), ABSENT
        for generation in (1, 2, 3):
            version = await mine.write("g", metadata(5, generation), version)
            assert version == generation - 1
        expected = [znodes.encode(metadata(5, generation)) for generation in (1, 2, 3)]
        assert znode.written == expected
        assert znode.content == (expected[-1], version)

    run(check())


@settings(max_examples=some_of(200), deadline=None)
@given(st.lists(st.sampled_from((DONE, LOST, UNHEARD, LATE)), max_size=8))
def test_one_that_was_there_before_is_displaced_by_a_claim(fates: list[str]) -> None:
    async def check() -> None:
        znode = Znode()
        former, later = store(znode, 5), store(znode, 6)
        version = await former.write("g", metadata(5, 1), ABSENT)
        znode.fates = fates
        found = await later.claim("g")
        assert found is not None
        assert (found.value.generation, found.value.epoch, found.value.consumers) == (1, 6, metadata(6, 1).consumers)
        with pytest.raises(CoordinatorDisplaced):
            await former.write("g", metadata(5, 2), version)
        with pytest.raises(CoordinatorDisplaced):
            await former.claim("g")
        assert await later.write("g", metadata(6, 2), found.version) == found.version + 1

    run(check())


def test_what_does_not_fit_is_never_sent_and_what_was_never_written_is_none() -> None:
    async def check() -> None:
        znode = Znode()
        with pytest.raises(GroupTooLarge, match=str(MAX_BYTES)):
            await store(znode, 1).write("g", metadata(1, 1, topics=MAX_BYTES // 9), ABSENT)
        assert znode.content is None
        assert await store(znode, 1).claim("g") is None
        unknown = znodes.encode(GroupMetadata(1, 1, "sticky", {}, {}, {}))
        for content in (b"nonsense", unknown):
            znode.content = (content, 0)
            with pytest.raises(znodes.ZnodeError, match=paths.draft_group("g")):
                await store(znode, 1).claim("g")
            assert znode.content == (content, 0)

    run(check())


def test_two_that_create_the_same_group_are_not_both_right() -> None:
    async def check() -> None:
        znode = Znode()
        await store(znode, 5).write("g", metadata(5, 1), ABSENT)
        with pytest.raises(CoordinatorDisplaced):
            await store(znode, 6).write("g", metadata(6, 1), ABSENT)
        await asyncio.sleep(0)

    run(check())
