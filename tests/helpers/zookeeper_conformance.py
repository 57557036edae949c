"""Conformance tests of the ZooKeeper seam, for any implementation: a module imports them all and gives ``zoo``.

``zoo.run`` runs a coroutine in the implementation's world. There, ``zoo.client()`` is a connected client whose link to
the servers ``zoo.cut()`` (silence), ``zoo.down()`` (refusal) and ``zoo.restore()`` act on, ``zoo.outsider()`` one that
is never cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.security import OPEN_ACL_UNSAFE

from assay.system_under_test.runtime import ZooKeeper

TIMEOUT = 1.0
"""Seconds of a session that expires in a test: the shortest that ``tickTime=500`` grants."""
LASTING = 10.0
"""Seconds of all other sessions, the longest that ``tickTime=500`` grants: a busy machine stalls for seconds."""
PATIENCE = 10.0


class Zoo(Protocol):
    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None: ...

    def make(self, servers: str | None = None, timeout: float = LASTING) -> ZooKeeper:
        """Returns a client that is not connected; to other servers if asked."""
        ...

    async def client(self, timeout: float = LASTING) -> ZooKeeper: ...

    async def outsider(self) -> ZooKeeper: ...

    async def cut(self) -> None: ...

    async def down(self) -> None: ...

    async def restore(self) -> None: ...


class Events:
    """Notifications of a client, in order, and a way to wait for more."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._more = asyncio.Event()

    def __call__(self, event: Any) -> None:
        self.seen.append(event)
        self._more.set()

    async def until(self, count: int) -> list[Any]:
        async with asyncio.timeout(PATIENCE):
            while len(self.seen) < count:
                self._more.clear()
                await self._more.wait()
        return self.seen

    def types(self) -> list[str]:
        return [event.type for event in self.seen]


async def vanished(zk: ZooKeeper, path: str) -> None:
    """Returns when there is no such znode."""
    async with asyncio.timeout(PATIENCE):
        while True:
            gone = Events()
            if await zk.exists(path, gone) is None:
                return
            await gone.until(1)


async def fresh(zk: ZooKeeper) -> str:
    """A path of the test's own."""
    return await zk.create("/conformance/test-", makepath=True, sequence=True)


def test_create_get_set_delete_and_their_versions(zoo: Zoo) -> None:
    async def main() -> None:
        zk = await zoo.client()
        root = await fresh(zk)
        assert await zk.create(f"{root}/a", b"1") == f"{root}/a"
        data, created = await zk.get(f"{root}/a")
        assert (data, created.version, created.ephemeralOwner, created.numChildren) == (b"1", 0, 0, 0)
        assert created.czxid == created.mzxid > 0
        changed = await zk.set(f"{root}/a", b"22", 0)
        assert (changed.version, changed.dataLength, changed.czxid) == (1, 2, created.czxid)
        assert changed.mzxid > created.mzxid
        with pytest.raises(BadVersionError):
            await zk.set(f"{root}/a", b"3", 0)
        with pytest.raises(BadVersionError):
            await zk.delete(f"{root}/a", 0)
        assert (await zk.get(f"{root}/a")) == (b"22", await zk.exists(f"{root}/a"))
        await zk.delete(f"{root}/a", 1)
        assert await zk.exists(f"{root}/a") is None
        await zk.sync(root)
        await zk.close()

    zoo.run(main)


def test_errors_are_kazoos(zoo: Zoo) -> None:
    async def main() -> None:
        zk = await zoo.client()
        root = await fresh(zk)
        await zk.create(f"{root}/a/b/c", makepath=True)
        for attempt, error in (
            (zk.create(f"{root}/a"), NodeExistsError),
            (zk.create(f"{root}/x/y"), NoNodeError),
            (zk.get(f"{root}/x"), NoNodeError),
            (zk.set(f"{root}/x", b""), NoNodeError),
            (zk.get_children(f"{root}/x"), NoNodeError),
            (zk.delete(f"{root}/x"), NoNodeError),
            (zk.delete(f"{root}/a/b"), NotEmptyError),
        ):
            with pytest.raises(error):
                await attempt
        await zk.create(f"{root}/e", ephemeral=True)
        with pytest.raises(NoChildrenForEphemeralsError):
            await zk.create(f"{root}/e/f")
        await zk.create(f"{root}/a/b/c", b"", sequence=True, makepath=True)
        assert await zk.get_children(f"{root}/a/b") == ["c", "c0000000001"]
        await zk.close()
        with pytest.raises(ConnectionClosedError):
            await zk.get(root)

    zoo.run(main)


def test_children_are_sorted_and_counted(zoo: Zoo) -> None:
    async def main() -> None:
        zk = await zoo.client()
        root = await fresh(zk)
        for name in ("b", "c", "a"):
            await zk.create(f"{root}/{name}")
        await zk.delete(f"{root}/b")
        assert await zk.get_children(root) == ["a", "c"]
        stat = await zk.exists(root)
        assert stat is not None
        assert (stat.numChildren, stat.cversion, stat.version) == (2, 4, 0)
        await zk.close()

    zoo.run(main)


def test_sequence_numbers_have_ten_digits_and_count_the_creations(zoo: Zoo) -> None:
    async def main() -> None:
        zk = await zoo.client()
        root = await fresh(zk)
        assert await zk.create(f"{root}/n-", sequence=True) == f"{root}/n-0000000000"
        await zk.create(f"{root}/other")
        await zk.delete(f"{root}/other")
        assert await zk.create(f"{root}/n-", sequence=True) == f"{root}/n-0000000002"
        await zk.close()

    zoo.run(main)


def test_ephemerals_belong_to_the_session_and_vanish_when_it_is_closed(zoo: Zoo) -> None:
    async def main() -> None:
        zk, other = await zoo.client(TIMEOUT), await zoo.outsider()
        root = await fresh(zk)
        await zk.create(f"{root}/e", ephemeral=True)
        stat = await other.exists(f"{root}/e")
        assert stat is not None
        assert stat.ephemeralOwner == zk.session_id != 0
        assert other.session_id != zk.session_id
        assert zk.session_timeout == TIMEOUT
        await zk.close()
        assert zk.session_id == 0
        await other.sync(root)
        assert await other.exists(f"{root}/e") is None
        await other.close()

    zoo.run(main)


def test_multi_is_all_or_nothing_and_raises_the_error_of_the_one_that_failed(zoo: Zoo) -> None:
    async def main() -> None:
        zk = await zoo.client()
        root = await fresh(zk)
        await zk.create(f"{root}/v", b"0")
        create = Create(f"{root}/a", b"1", OPEN_ACL_UNSAFE, 1)
        for failing, error in (
            (CheckVersion(f"{root}/v", 7), BadVersionError),
            (Delete(f"{root}/absent", -1), NoNodeError),
            (Create(f"{root}/v", b"", OPEN_ACL_UNSAFE, 0), NodeExistsError),
        ):
            with pytest.raises(error):
                await zk.multi([create, SetData(f"{root}/v", b"x", -1), failing, Delete(f"{root}/v", -1)])
        assert await zk.get_children(root) == ["v"]
        data, stat = await zk.get(f"{root}/v")
        assert (data, stat.version) == (b"0", 0)
        results = await zk.multi(
            [
                CheckVersion(f"{root}/v", 0),
                create,
                SetData(f"{root}/v", b"2", 0),
                Create(f"{root}/s", b"", OPEN_ACL_UNSAFE, 2),
                Create(f"{root}/d", b"", OPEN_ACL_UNSAFE, 0),
                Delete(f"{root}/d", -1),
            ]
        )
        assert results[:2] == [None, f"{root}/a"]
        assert results[2].version == 1
        assert results[3] == f"{root}/s0000000002"
        assert results[5] is None
        mine = await zk.exists(f"{root}/a")
        assert mine is not None
        assert mine.ephemeralOwner == zk.session_id
        assert mine.czxid == results[2].mzxid
        await zk.close()

    zoo.run(main)


def test_watches_fire_once_with_the_events_type_and_path(zoo: Zoo) -> None:
    async def main() -> None:
        zk, other = await zoo.client(), await zoo.outsider()
        root = await fresh(zk)
        created, changed, deleted, children, emptied = (Events() for _ in range(5))
        path = f"{root}/a"
        assert await zk.exists(path, created) is None
        await zk.get_children(root, children)
        await other.create(path)
        assert await created.until(1) == [WatchedEvent(EventType.CREATED, created.seen[0].state, path)]
        assert [(event.type, event.path) for event in await children.until(1)] == [(EventType.CHILD, root)]
        await zk.get(path, changed)
        await zk.get_children(path, emptied)
        await other.set(path, b"1")
        assert [(event.type, event.path) for event in await changed.until(1)] == [(EventType.CHANGED, path)]
        await zk.exists(path, deleted)
        await other.set(path, b"2")
        await deleted.until(1)
        await zk.get(path, deleted)
        await other.delete(path)
        await deleted.until(2)
        await emptied.until(1)
        assert deleted.types() == [EventType.CHANGED, EventType.DELETED]
        assert emptied.types() == [EventType.DELETED]
        await other.create(path)
        await zk.sync(root)
        await zk.exists(path)
        assert [len(events.seen) for events in (created, changed, children, emptied)] == [1, 1, 1, 1]
        with pytest.raises(NoNodeError):
            await zk.get(f"{root}/absent", created)
        await other.create(f"{root}/absent")
        await zk.sync(root)
        assert len(created.seen) == 1
        await zk.close()
        await other.close()

    zoo.run(main)


def test_a_watch_fires_before_any_read_returns_the_change_that_caused_it(zoo: Zoo) -> None:
    """Hammered: one client writes without pause, another reads without pause and watches."""

    async def main() -> None:
        zk, other = await zoo.client(), await zoo.outsider()
        root = await fresh(zk)
        path = f"{root}/a"
        await zk.create(path, b"0")
        rounds = 300
        late: list[int] = []

        async def write() -> None:
            for number in range(1, rounds + 1):
                await other.set(path, b"%d" % number)

        async def read() -> None:
            fired = asyncio.Event()
            known = b"0"
            data, _ = await zk.get(path, lambda _: fired.set())
            while known != b"%d" % rounds:
                if data != known and not fired.is_set() and known != b"0":
                    late.append(int(data))
                known = data
                if fired.is_set():
                    fired = asyncio.Event()
                    data, _ = await zk.get(path, lambda _, fired=fired: fired.set())
                    known = data
                else:
                    data, _ = await zk.get(path)

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            group.create_task(read())
        assert late == []
        await zk.close()
        await other.close()

    zoo.run(main)


def test_a_broken_connection_suspends_the_session_fires_the_watches_and_a_quick_heal_keeps_it(zoo: Zoo) -> None:
    async def main() -> None:
        zk = await zoo.client()
        root = await fresh(zk)
        states, watch = Events(), Events()
        zk.add_listener(states)
        session = zk.session_id
        await zk.create(f"{root}/e", ephemeral=True)
        await zk.get(f"{root}/e", watch)
        await zoo.down()
        assert (await states.until(1))[0] == KazooState.SUSPENDED
        assert [(event.type, event.path) for event in await watch.until(1)] == [(EventType.NONE, None)]
        waiting = asyncio.ensure_future(zk.exists(f"{root}/e"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await zoo.restore()
        assert (await states.until(2))[1] == KazooState.CONNECTED
        assert await waiting is not None
        assert zk.session_id == session
        await zk.close()

    zoo.run(main)


def test_expiry_takes_the_ephemerals_and_gives_lost_then_a_new_session(zoo: Zoo) -> None:
    async def main() -> None:
        zk, other = await zoo.client(TIMEOUT), await zoo.outsider()
        root = await fresh(zk)
        sessions: list[tuple[str, int]] = []
        states = Events()
        zk.add_listener(lambda state: sessions.append((state, zk.session_id)))
        zk.add_listener(states)
        old = zk.session_id
        await zk.create(f"{root}/e", ephemeral=True)
        await zoo.cut()
        in_flight = asyncio.ensure_future(zk.set(f"{root}/e", b"x"))
        await states.until(1)
        with pytest.raises(ConnectionLoss):
            await in_flight
        waiting = asyncio.ensure_future(zk.get(root))
        await vanished(other, f"{root}/e")
        await zoo.restore()
        await states.until(3)
        assert states.seen == [KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED]
        assert sessions == [(KazooState.SUSPENDED, old), (KazooState.LOST, 0), (KazooState.CONNECTED, zk.session_id)]
        assert zk.session_id not in (0, old)
        with pytest.raises((SessionExpiredError, ConnectionLoss)):
            await waiting
        await zk.create(f"{root}/e", ephemeral=True)
        stat = await other.exists(f"{root}/e")
        assert stat is not None
        assert stat.ephemeralOwner == zk.session_id
        await zk.close()
        await other.close()

    zoo.run(main)


def test_an_idle_session_lives_on(zoo: Zoo) -> None:
    async def main() -> None:
        zk = await zoo.client(TIMEOUT)
        states = Events()
        zk.add_listener(states)
        session = zk.session_id
        await asyncio.sleep(2.5 * TIMEOUT)
        assert await zk.exists("/") is not None
        # The connection may have been made again: of a session this short, kazoo gives a ping 0.17 s to be answered.
        assert (KazooState.LOST in states.seen, zk.session_id) == (False, session)
        await zk.close()

    zoo.run(main)


def test_who_is_cut_off_knows_that_its_session_is_over_before_its_ephemerals_are_gone(zoo: Zoo) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        zk, other = await zoo.client(TIMEOUT), await zoo.outsider()
        root = await fresh(zk)
        await zk.create(f"{root}/e", ephemeral=True)
        await asyncio.sleep(1.5 * TIMEOUT)
        assert loop.time() < zk.alive_until <= loop.time() + TIMEOUT, "pings and requests alike prove that it lives"
        states = Events()
        zk.add_listener(states)
        begun = loop.time()
        await zoo.cut()
        await vanished(other, f"{root}/e")
        assert begun < zk.alive_until <= loop.time()
        await zoo.restore()
        assert (await states.until(3))[2] == KazooState.CONNECTED
        assert zk.alive_until > loop.time()
        assert zk.session_id, "what it says is of a session that it has announced"
        await zk.close()
        assert zk.alive_until == 0.0
        await other.close()

    zoo.run(main)


def test_connecting_to_nothing_raises_soon_and_names_the_servers(zoo: Zoo) -> None:
    async def main() -> None:
        zk = zoo.make("127.0.0.1:9")
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:9"):
            await zk.connect(0.5)
        assert asyncio.get_running_loop().time() - began < 3
        with pytest.raises((ConnectionClosedError, ConnectionLoss)):
            await zk.get("/")

    zoo.run(main)


def test_after_close_no_callback_runs_and_closing_again_does_nothing(zoo: Zoo) -> None:
    async def main() -> None:
        zk, other = await zoo.client(), await zoo.outsider()
        root = await fresh(zk)
        events = Events()
        zk.add_listener(events)
        await zk.get(root, events)
        await zk.close()
        await zk.close()
        await other.set(root, b"1")
        await asyncio.sleep(0.1)
        assert events.seen == []
        with pytest.raises(KazooException):
            await zk.get(root)
        await other.close()

    zoo.run(main)
