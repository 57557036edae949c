"""A replica that has lost something of its log: anyone who finds it and wherever, others go on and it is made whole."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from assay.cluster.sim.disk import SimFile
from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.admin import Admin
from assay.system_under_test.client.coordinated import Position
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.config import OFFSETS_TOPIC
from assay.system_under_test.deployment import OFFSETS_TOPIC_PARTITIONS, Broker
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, format_lines
from assay.system_under_test.log.compaction_note import COMPACTION_NOTE
from assay.system_under_test.log.damage import DAMAGED
from assay.system_under_test.log.directory import INCARNATION
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.records import message_set
from assay.system_under_test.replication.handover import Handover
from assay.system_under_test.replication.partition import Partition

from helpers.sim_brokers import DATA, Brokers, brokers, simulate, until, zookeeper_of

pytestmark = pytest.mark.slow

FOLDER = f"{DATA}/orders-0"
COUNT = 30
STATE = "/brokers/topics/orders/partitions/0/state"
Content = bytes | None | Callable[[bytes], bytes]
"""Content of a file, or a function that changes it. None stands for no file."""


def system(min_insync: int = 2, **settings: object) -> Broker:
    made = Broker(partitions=1, min_insync=min_insync)
    for name, value in {"segment_bytes": 200, "index_interval_bytes": 64, **settings}.items():
        made = made.with_setting(name.replace("_", "."), str(value))
    return made


@dataclass
class Setting:
    """``victim``, whose files are damaged, is the preferred leader of the only partition. It leads at the start."""

    cluster: Brokers
    victim: SimNode

    @property
    def others(self) -> list[SimNode]:
        return [node for node in self.cluster.nodes if node is not self.victim]

    async def state(self) -> dict[str, Any]:
        zookeeper = await zookeeper_of(self.cluster)
        data, _ = await zookeeper.get(STATE)
        await zookeeper.close()
        found: dict[str, Any] = json.loads(data)
        return found

    async def in_sync(self) -> bool:
        state = await self.state()
        return sorted(state["isr"]) == [1, 2, 3] and state["elr"] == [] and state["leader"] > 0

    async def restarted_with(self, path: str, data: Content, *, clean: bool = True) -> None:
        """Stops the victim, changes one of its files (None: removes it), and starts it again."""
        await (self.victim.terminate() if clean else self.victim.kill())
        if data is None:
            self.victim.disk.remove(path)
        else:
            self.victim.disk.write(path, data if isinstance(data, bytes) else data(self.victim.disk.read(path)))
        await self.victim.start()

    async def damaged(self, *, leads: bool = False, without_times: bool = False) -> str:
        """Flips a bit of the victim's second segment, which no one knows; the segment's path. ``without_times``: times
        are looked for in the messages.
        """
        path = segments(self.victim)[1]
        if without_times:
            await self.without_times()
        await self.restarted_with(path, flipped(self.victim, path, 60))
        await until(self.in_sync, "all are in sync, and no one knows")
        if leads:
            await self.made_leader()
        return path

    async def without_times(self) -> None:
        await self.restarted_with(segments(self.victim, ".timeindex")[1], b"")
        await until(self.in_sync, "all are in sync")

    async def configure(self, name: str, value: str) -> None:
        admin = Admin(self.cluster.bootstrap, runtime=self.cluster.cluster.harness_runtime())
        await admin.alter_config("orders", {name: value})
        await admin.close()

    async def made_leader(self) -> None:
        admin = Admin(self.cluster.bootstrap, runtime=self.cluster.cluster.harness_runtime())
        await admin.elect_preferred([("orders", 0)])
        await admin.close()
        await until(self._leads, "the victim leads")

    async def _leads(self) -> bool:
        return await self.cluster.system.find(self.cluster.cluster, "leader", "orders-0") is self.victim

    async def read_damage(self) -> None:
        """A consumer meets the damage at the victim, which leads."""

        async def met() -> bool:
            try:
                await self.cluster.consumer.fetch("orders", 0, 5, max_bytes=150)
            except ReadFailed:
                return self.since("log-damaged") != []
            return False

        await until(met, "the damage is read")

    def since(self, name: str) -> list[dict[str, Any]]:
        """The victim's events of this name."""
        return self.cluster.events(self.victim, name)

    async def made_whole(self, count: int = COUNT) -> None:
        """It is in sync again, with the others' records, and nothing is noted of the damage."""
        await until(self.in_sync, "all are in sync", 30)
        await until(lambda: len(self.cluster.stored(self.victim, "orders-0")) >= count, "it has all")
        held = [self.cluster.stored(node, "orders-0") for node in self.cluster.nodes]
        assert held[0] == held[1] == held[2]
        assert f"{FOLDER}/{DAMAGED}" not in [path.lstrip("/") for path in self.victim.disk.files()]


@asynccontextmanager
async def cluster_with_records(**settings: Any) -> AsyncIterator[Setting]:
    async with brokers(system(**settings)) as cluster:
        for number in range(COUNT):
            await cluster.producer.send("orders", 0, [(b"k%d" % (number % 7), b"%d" % number)])
        victim = await cluster.leader()
        setting = Setting(cluster, victim)
        await asyncio.sleep(2.5)  # all of it is on the disks, and noted so
        yield setting


def flipped(node: SimNode, path: str, position: int) -> bytes:
    data = bytearray(node.disk.read(path))
    data[position] ^= 0x10
    return bytes(data)


def one_digit(data: bytes) -> bytes:
    """Another digit at the end of the last row: what makes sense, and is wrong."""
    end = data.rfind(b"\ncrc ")
    at = (end if end > 0 else len(data) - 1) - 1
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def segments(node: SimNode, suffix: str = ".log") -> list[str]:
    return sorted(path for path in node.disk.files() if "/orders-0/" in path and path.endswith(suffix))


def spoil(monkeypatch: pytest.MonkeyPatch, node: SimNode, path: str, position: int) -> None:
    """From now on the disk does not give this byte of this file."""
    spoiled, given = node.disk._tree.file(path), SimFile.read

    def read(self: SimFile, begin: int, size: int) -> bytes:
        if self._inode is spoiled and begin <= position < begin + size:
            raise OSError(errno.EIO, "a bad sector")
        return given(self, begin, size)

    monkeypatch.setattr(SimFile, "read", read)


async def read(cluster: Brokers, first: int, end: int, max_bytes: int = 150) -> list[bytes | None]:
    """As a consumer, which asks again after an error, with new metadata."""
    found: list[bytes | None] = []
    for _ in range(200):
        try:
            fetched = await cluster.consumer.fetch("orders", 0, first + len(found), max_bytes=max_bytes)
        except ReadFailed:
            await asyncio.sleep(0.1)
            continue
        found += [message.value for message in fetched.messages]
        if first + len(found) >= end:
            break
    return found


def numbers(first: int = 0, end: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_a_leader_whose_damage_is_read_hands_over_and_is_made_whole_by_the_next() -> None:
    """Found by hand once: every fetch answered 2, every send -1, for ever, with two healthy replicas in sync."""

    async def check() -> None:
        async with cluster_with_records() as setting:
            cluster, victim = setting.cluster, setting.victim
            await setting.damaged(leads=True)
            began = asyncio.get_running_loop().time()
            assert await read(cluster, 0, COUNT) == numbers()
            assert (await cluster.producer_with(repeat_unknown=True).send("orders", 0, [(b"k", b"30")])).node > 0
            assert asyncio.get_running_loop().time() - began < 2, "no client waits for a session to end"
            assert await cluster.leader() is not victim
            (damaged,) = setting.since("log-damaged")
            (offline,) = setting.since("replica-offline")
            out = [e for n in cluster.nodes for e in cluster.events(n, "partition-state-written") if e["epoch"] > 1]
            cut = setting.since("truncated")[-1]
            await setting.made_whole(COUNT + 1)
            assert damaged["time"] <= offline["time"] < setting.since("truncated")[-1]["time"]
            first = next(event for event in out if victim.index not in event["isr"])
            assert victim.index not in first["elr"]
            assert cut["epoch"] > offline["epoch"], "nothing was deleted before it had left the in-sync set"

    simulate(check)


@pytest.mark.parametrize(("max_bytes", "position"), [(150, 20), (100_000, 180)], ids=["looked up", "sent"])
def test_a_leader_whose_disk_does_not_give_its_records_hands_over_and_is_made_whole(
    monkeypatch: pytest.MonkeyPatch, max_bytes: int, position: int
) -> None:
    """It closed the connections of consumers and followers that asked for them, for ever."""

    async def check() -> None:
        async with cluster_with_records() as setting:
            cluster, victim = setting.cluster, setting.victim
            path = segments(victim)[1]
            assert len(victim.disk.read(path)) > position
            spoil(monkeypatch, victim, path, position)
            async with asyncio.timeout(60):
                assert await read(cluster, 0, COUNT, max_bytes) == numbers()
            assert await cluster.leader() is not victim
            (damaged,) = setting.since("log-damaged")
            assert "it cannot be read: [Errno 5] a bad sector" in damaged["detail"]["problem"]
            (offline,) = setting.since("replica-offline")
            await setting.made_whole()
            assert setting.since("truncated")[-1]["epoch"] > offline["epoch"]
            assert victim.exit_code is None

    simulate(check)


def test_a_follower_whose_damage_the_cleaner_meets_deletes_nothing_before_it_has_left_the_in_sync_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller does not answer for a while; a new record has it look how far it agrees with the leader."""

    async def check() -> None:
        async with cluster_with_records(cleanup_policy="compact", min_compaction_lag_ms=3_600_000) as setting:
            cluster, victim = setting.cluster, setting.victim
            await setting.damaged()
            assert await cluster.leader() is not victim
            await setting.configure("min.compaction.lag.ms", "0")
            real, heard = Handover._report, False

            async def report(self: Handover, partition: Partition) -> bool:
                return heard and await real(self, partition)

            monkeypatch.setattr(Handover, "_report", report)
            await until(lambda: setting.since("log-damaged") != [], "the cleaner has met it")
            epoch = (await setting.state())["leader_epoch"]
            sending = asyncio.ensure_future(
                cluster.producer_with(repeat_unknown=True).send("orders", 0, [(b"k2", b"30")])
            )
            await asyncio.sleep(1)
            assert victim.index in (await setting.state())["isr"]
            assert setting.since("truncated") == []
            heard = True
            await sending
            await until(setting.in_sync, "it is back", 30)
            (cut,) = setting.since("truncated")
            assert cut["position"] == 0
            assert cut["epoch"] > epoch
            written = [e for n in cluster.nodes for e in cluster.events(n, "partition-state-written")]
            assert any(e["epoch"] == cut["epoch"] and victim.index not in e["isr"] for e in written)
            assert {value for _, value in cluster.stored(victim, "orders-0")} >= set(numbers(24, COUNT + 1))

    simulate(check)


async def cleaning(setting: Setting) -> None:
    await setting.configure("min.compaction.lag.ms", "0")


async def look_up_by_time(setting: Setting) -> None:
    stored = message_set.decode(setting.others[0].disk.read(segments(setting.others[0])[1]))
    assert stored[-1].timestamp is not None
    with pytest.raises(ReadFailed):
        await setting.cluster.consumer.offsets("orders", 0, stored[-1].timestamp)


async def retention(setting: Setting) -> None:
    await setting.configure("cleanup.policy", "delete")
    await setting.configure("retention.ms", "1")


@pytest.mark.parametrize("meet", [cleaning, look_up_by_time, retention])
@pytest.mark.parametrize("lost", [False, True], ids=["flipped", "bad-sector"])
def test_a_leader_hands_over_whatever_part_of_it_meets_the_damage(
    monkeypatch: pytest.MonkeyPatch, meet: Callable[[Setting], Awaitable[None]], lost: bool
) -> None:
    """A bad sector that retention met ended the process, and the next one; one that a look-up met the connection."""

    async def check() -> None:
        async with cluster_with_records(cleanup_policy="compact", min_compaction_lag_ms=3_600_000) as setting:
            cluster, victim = setting.cluster, setting.victim
            if lost:
                await setting.without_times()
                await setting.made_leader()
                spoil(monkeypatch, victim, segments(victim)[1], 60)
            else:
                await setting.damaged(leads=True, without_times=True)
            assert setting.since("log-damaged") == []
            await meet(setting)
            await until(lambda: setting.since("log-damaged") != [], "it is met", 70)
            if meet is retention:
                await setting.configure("retention.ms", "-1")
            await until(lambda: setting.since("truncated") != [], "it starts over", 30)
            await until(setting.in_sync, "all are in sync", 30)
            (offline,) = setting.since("replica-offline")
            (cut,) = setting.since("truncated")
            assert cut["epoch"] > offline["epoch"], "nothing was deleted before it had left the in-sync set"
            assert await cluster.leader() is not victim
            assert victim.exit_code is None
            assert f"{FOLDER}/{DAMAGED}" not in victim.disk.files()
            await cluster.producer_with(repeat_unknown=True).send("orders", 0, [(b"k", b"30")])
            assert await read(cluster, COUNT, COUNT + 1) == numbers(COUNT, COUNT + 1)

    simulate(check)


@pytest.mark.parametrize("lost", [False, True], ids=["flipped", "bad-sector"])
def test_a_coordinator_that_meets_damage_as_it_loads_its_groups_hands_over(
    monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """The next one has all that was committed. A bad sector, in what this process has copied, ended the process."""

    async def check() -> None:
        async with brokers(Broker(partitions=1).with_setting("index.interval.bytes", "64")) as cluster:
            await cluster.consumer.commit("g", {("orders", 0): Position(0)})
            key = f"{OFFSETS_TOPIC}-{find_partition('g', OFFSETS_TOPIC_PARTITIONS)}"
            path = f"{DATA}/{key}/{0:020d}.log"
            victim = await cluster.leader(key)
            loads = len(cluster.events(victim, "groups-loaded"))
            if lost:
                await victim.terminate()
            for offset in range(COUNT):
                await cluster.consumer.commit("g", {("orders", 0): Position(offset)})
            await asyncio.sleep(2.5)
            if lost:
                await victim.start()
                await until(lambda: len(cluster.stored(victim, key)) > COUNT, "it has copied all", 30)
                spoil(monkeypatch, victim, path, len(victim.disk.read(path)) - 10)
            else:
                await victim.terminate()
                victim.disk.write(path, flipped(victim, path, 60))
                await victim.start()
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            topic, _, index = key.rpartition("-")

            async def elected() -> bool:
                met = cluster.events(victim, "log-damaged") != []
                if not met:
                    await admin.elect_preferred([(topic, int(index))])
                return met

            await until(elected, "it leads and loads")
            await admin.close()
            committed = await cluster.consumer.committed("g", [("orders", 0)])
            assert committed["orders", 0].offset == COUNT - 1
            assert await cluster.leader(key) is not victim
            assert victim.exit_code is None
            assert not [e for e in cluster.events(victim, "groups-loaded")[loads:] if e["key"] == key]
            await until(lambda: len(cluster.stored(victim, key)) >= COUNT, "it is made whole", 30)

    simulate(check)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (EPOCHS, one_digit),
        (INCARNATION, one_digit),
        (INCARNATION, None),
        (COMPACTION_NOTE, one_digit(format_lines(["gaps 5"]))),
        (EPOCHS, b"0\n1\n0 x\n"),
        (EPOCHS, b"0\n2\n1 0\n0 9\n"),
        (EPOCHS, b""),
        (EPOCHS, None),
        (INCARNATION, b"\x00\x01"),
        (COMPACTION_NOTE, b"0\n1\nnonsense\n"),
    ],
    ids=[
        *("epochs-digit", "incarnation-digit", "incarnation-gone", "compaction-digit"),
        *("epochs", "epochs-order", "epochs-empty", "epochs-gone", "incarnation", "compaction"),
    ],
)
def test_a_start_that_meets_a_damaged_note_of_a_log_has_the_log_copied_again(name: str, data: Content) -> None:
    """A wrong digit made the log that of a topic that is no more once: set aside, at a start that counted as clean."""

    async def check() -> None:
        async with cluster_with_records() as setting:
            cluster, victim = setting.cluster, setting.victim
            await setting.restarted_with(f"{FOLDER}/{name}", data)
            await setting.made_whole()
            assert [event["detail"]["damaged"] for event in setting.since("recovered")][-1] is True
            assert setting.since("registered")[-1]["detail"]["clean_since"] is None
            assert await cluster.leader() is not victim
            assert setting.since("truncated")[-1]["position"] == 0
            await setting.made_leader()
            assert await read(cluster, 0, COUNT) == numbers()

    simulate(check)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_found_cut_below_its_recovery_point_at_a_start_is_copied_again(clean: bool) -> None:
    async def check() -> None:
        async with cluster_with_records() as setting:
            victim = setting.victim
            path = segments(victim)[-1]
            await setting.restarted_with(path, victim.disk.read(path)[:-10], clean=clean)
            await setting.made_whole()
            assert setting.since("log-damaged") != []

    simulate(check)


@pytest.mark.parametrize("position", [0, 5])
def test_an_index_that_is_damaged_is_made_again_and_nothing_is_handed_over(position: int) -> None:
    """Nothing is lost by it."""

    async def check() -> None:
        async with cluster_with_records() as setting:
            cluster, victim = setting.cluster, setting.victim
            path = next(path for path in segments(victim, ".index")[1:] if len(victim.disk.read(path)) > 5)
            await setting.restarted_with(path, flipped(victim, path, position))
            await until(setting.in_sync, "all are in sync")
            await setting.made_leader()
            assert await read(cluster, 0, COUNT) == numbers()
            assert await cluster.leader() is victim
            assert setting.since("log-damaged") == []

    simulate(check)


@pytest.mark.parametrize(
    "nonsense",
    [b"", b"\xff\x00", b"0\n1\norders 0\n", one_digit, None],
    ids=["empty", "bytes", "short", "digit", "gone"],
)
def test_without_recovery_points_a_broker_starts_and_is_not_trusted_and_its_whole_log_is(nonsense: Content) -> None:
    async def check() -> None:
        async with cluster_with_records() as setting:
            await setting.restarted_with(f"{DATA}/{RECOVERY_POINTS}", nonsense)
            await setting.made_whole()
            assert len(setting.since("checkpoint-damaged")) == 1
            assert setting.since("log-damaged") == []
            assert setting.since("registered")[-1]["detail"]["clean_since"] is None
            await asyncio.sleep(1.5)
            await setting.restarted_with(f"{DATA}/other", b"")
            await setting.made_whole()
            assert len(setting.since("checkpoint-damaged")) == 1, "it was made again"
            assert setting.since("registered")[-1]["detail"]["clean_since"] is not None

    simulate(check)


def test_a_torn_tail_before_the_first_checkpoint_is_no_damage() -> None:
    """The file of the recovery points is there before the first log is, or its absence would make damage of this."""

    async def check() -> None:
        async with brokers(system(checkpoint_interval_ms=3_600_000)) as cluster:
            for number in range(COUNT):
                await cluster.producer.send("orders", 0, [(b"k", b"%d" % number)])
            setting = Setting(cluster, await cluster.leader())
            path = segments(setting.victim)[-1]
            await setting.restarted_with(path, lambda data: data[:-10], clean=False)
            await setting.made_whole()
            assert setting.since("checkpoint-damaged") == setting.since("log-damaged") == []

    simulate(check)


def test_without_recovery_points_nothing_that_is_wrong_is_cut() -> None:
    async def check() -> None:
        async with cluster_with_records() as setting:
            victim = setting.victim
            path = segments(victim)[-1]
            await victim.terminate()
            victim.disk.write(f"{DATA}/{RECOVERY_POINTS}", b"?")
            victim.disk.write(path, victim.disk.read(path)[:-10])
            await victim.start()
            await setting.made_whole()
            assert setting.since("log-damaged") != []

    simulate(check)


@pytest.mark.parametrize("nonsense", [b"nonsense", one_digit], ids=["bytes", "digit"])
def test_high_watermarks_that_make_no_sense_are_found_again(nonsense: Content) -> None:
    async def check() -> None:
        async with cluster_with_records() as setting:
            await setting.restarted_with(f"{DATA}/{HIGH_WATERMARKS}", nonsense)
            await setting.made_whole()
            assert len(setting.since("checkpoint-damaged")) == 1
            assert setting.since("log-damaged") == []
            await setting.made_leader()
            assert await read(setting.cluster, 0, COUNT) == numbers()

    simulate(check)


@pytest.mark.parametrize("nonsense", [b"nonsense", one_digit], ids=["bytes", "digit"])
def test_a_cleaners_checkpoint_that_makes_no_sense_has_the_log_cleaned_again(nonsense: Content) -> None:
    """Nothing is lost by it, and the start is trusted."""

    async def check() -> None:
        async with cluster_with_records(cleanup_policy="compact") as setting:
            victim = setting.victim
            path = f"{DATA}/{CLEANED_OFFSETS}"
            await until(lambda: path in victim.disk.files(), "it is cleaned", 60)
            before = victim.disk.read(path)
            await setting.restarted_with(path, nonsense)
            await until(lambda: victim.disk.read(path) == before, "it is again", 60)
            await until(setting.in_sync, "all are in sync")
            assert len(setting.since("checkpoint-damaged")) == 1
            assert setting.since("registered")[-1]["detail"]["clean_since"] is not None

    simulate(check)


def test_after_restarts_of_all_a_damaged_replica_is_not_elected_over_healthy_ones() -> None:
    """It finds its damage, cannot report it, and all stop; at the start no file but its own note shows the damage."""

    async def check() -> None:
        async with cluster_with_records() as setting:
            cluster, victim = setting.cluster, setting.victim
            await setting.damaged(leads=True)
            await cluster.cut(victim, [node for node in cluster.nodes if node is not victim])
            for server in cluster.zookeepers:
                await server.kill()
            await setting.read_damage()
            await asyncio.sleep(0.5)
            assert len(setting.since("replica-offline")) == 1
            for node in cluster.nodes:
                await node.kill()
            await cluster.heal()
            for node in [*cluster.zookeepers, victim]:
                await node.start()
            await asyncio.sleep(8)
            assert (await setting.state())["leader"] in (-1, victim.index)
            assert len(setting.since("became-leader")) == 2, "not alone, either"
            for node in setting.others:
                await node.start()
            await setting.made_whole()
            assert await cluster.leader() is not victim
            assert await read(cluster, 0, COUNT) == numbers()

    simulate(check)


def test_the_only_member_of_the_in_sync_set_goes_offline_and_keeps_its_bytes() -> None:
    async def check() -> None:
        async with cluster_with_records(min_insync=1) as setting:
            cluster, victim = setting.cluster, setting.victim
            path = await setting.damaged(leads=True)
            for node in setting.others:
                await node.kill()
            await cluster.producer_with(repeat_unknown=True).send("orders", 0, [(b"k", b"30")])
            before = {path: victim.disk.read(path) for path in segments(victim)}
            await setting.read_damage()
            await until(lambda: _leaderless(setting), "no one leads")
            for node in setting.others:
                await node.start()
            await asyncio.sleep(10)
            state = await setting.state()
            assert (state["leader"], state["isr"]) == (-1, [victim.index])
            assert {path: victim.disk.read(path) for path in segments(victim)} == before
            assert len(setting.since("replica-offline")) == 1, "it is not elected again and again"
            await victim.terminate()
            await victim.start()
            await asyncio.sleep(8)
            assert (await setting.state())["leader"] == -1
            assert {path: victim.disk.read(path) for path in segments(victim)} == before
            await victim.terminate()  # an operator mends the file
            victim.disk.write(path, flipped(victim, path, 60))
            victim.disk.remove(f"{FOLDER}/{DAMAGED}")
            await victim.start()
            assert await read(cluster, 0, COUNT + 1) == numbers(0, COUNT + 1)

    simulate(check)


async def _leaderless(setting: Setting) -> bool:
    return bool((await setting.state())["leader"] == -1)


def test_where_unclean_election_is_allowed_a_damaged_last_member_makes_room() -> None:
    async def check() -> None:
        async with cluster_with_records(min_insync=1, unclean_leader_election_enable="true") as setting:
            cluster = setting.cluster
            await setting.damaged(leads=True)
            for node in setting.others:
                await node.kill()
            await cluster.producer_with(repeat_unknown=True).send("orders", 0, [(b"k", b"30")])
            await setting.read_damage()
            await until(lambda: _leaderless(setting), "no one leads")
            for node in setting.others:
                await node.start()
            await setting.made_whole()
            assert await read(cluster, 0, COUNT) == numbers()

    simulate(check)


@pytest.mark.parametrize(
    ("note", "end"), [(b"1\n", 0), (None, -1)], ids=["another topic's is set aside", "no one knows whose: damaged"]
)
def test_after_all_have_failed_a_log_of_another_topic_of_that_name_is_not_the_longest(
    note: bytes | None, end: int
) -> None:
    """Such a log exists if its folder was being deleted and a loss of power brought it back."""

    async def check() -> None:
        async with cluster_with_records() as setting:
            for node in setting.others:
                await node.kill()
            await setting.victim.kill()
            path = f"{FOLDER}/{INCARNATION}"
            await asyncio.sleep(3)  # their sessions end
            await asyncio.gather(*(node.start() for node in setting.others))
            if note is None:
                setting.victim.disk.remove(path)
            else:
                setting.victim.disk.write(path, note)
            await setting.victim.start()
            await setting.made_whole()
            assert await read(setting.cluster, 0, COUNT) == numbers()
            (answered,) = setting.since("log-end-answered")
            assert (answered["value"], answered["position"]) == (-1, end)
            (others,) = setting.cluster.events(setting.others[0], "log-end-answered")
            assert (answered["topic_zxid"], others["position"]) == (others["topic_zxid"], COUNT)

    simulate(check)


def test_after_all_have_failed_those_with_the_same_log_as_the_longest_may_lead_next() -> None:
    """Else the longest would be alone: killed, and cut by its disk, it would lead again, and what it lost be gone."""

    async def check() -> None:
        async with cluster_with_records() as setting:
            cluster, victim = setting.cluster, setting.victim
            for node in cluster.nodes:
                await node.kill()
            await asyncio.sleep(3)  # their sessions end
            victim.disk.write(segments(victim)[-1], b"")
            await asyncio.gather(*(node.start() for node in cluster.nodes))
            await setting.made_whole()
            written = [e for n in cluster.nodes for e in cluster.events(n, "partition-state-written")]
            (elected,) = [e for e in written if e["value"] > 0 and len(e["isr"]) == 1]
            assert sorted([*elected["isr"], *elected["elr"]]) == sorted(node.index for node in setting.others)
            assert await read(cluster, 0, COUNT) == numbers()

    simulate(check)
