"""The replicas on one disk: what is noted of a log goes with it, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.sim.disk import SimDisk, SimStorage
from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, OffsetCheckpoint
from assay.system_under_test.log.cleaner import CleaningInterrupted
from assay.system_under_test.log.directory import DirectoryError, DirectoryMovedError, lock, make_root
from assay.system_under_test.log.errors import CorruptLog, SwapUnfinished
from assay.system_under_test.log.traits import select_log_traits
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.records import message_set
from assay.system_under_test.replication.handover import Handover
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.replica import PartitionError
from assay.system_under_test.replication.replicas import Replicas
from assay.system_under_test.replication.traits import CORRECT
from assay.system_under_test.tasks import BackgroundTasks

from helpers.logs import stored
from helpers.producing import validated
from helpers.sim_brokers import simulate, until

CONFIG = BrokerConfig(zookeeper="zk1:2181", host="n1", broker_id=1, data_dir="data", cleaner_backoff_ms=1)
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "100", "min.cleanable.dirty.ratio": "0"}


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Bench:
    """A disk, and the replicas of the process that uses it. The partition is t-0."""

    disk: SimDisk = field(default_factory=lambda: SimDisk(Random(1)))
    delay: Callable[[], float] = lambda: 0.0
    config: BrokerConfig = CONFIG
    replicas: Replicas = field(init=False)
    storage: SimStorage = field(init=False)
    lives_for: int | None = None
    """So many more operations of the disk; then one ends with ``ends_with``."""
    ends_with: BaseException = field(default_factory=Killed)
    """After ``Killed`` none succeeds any more."""
    _life: int = 0

    async def start(self) -> None:
        self.lives_for = None
        self._life += 1
        self.storage = self.disk.storage(check=partial(self._check, self._life), fsync_delay=lambda: self.delay())
        await make_root(self.storage, "data")
        events: Any = SimpleNamespace(emit=lambda *_, **__: None, topic_czxids={}, incarnation=1)
        runtime: Any = SimpleNamespace(storage=self.storage, wall_clock=lambda: 0.0)
        background = BackgroundTasks(lambda _: None)
        ignore: Any = lambda *_: None  # noqa: E731
        self.replicas = Replicas(
            self.config, runtime, events, background, ignore, ignore, ignore, CORRECT, select_log_traits(())
        )
        await self.replicas.open(clean=False)

    def _check(self, life: int) -> None:
        if life != self._life:
            raise Killed
        if self.lives_for is not None:
            self.lives_for -= 1
            if self.lives_for < 0:
                if not isinstance(self.ends_with, Killed):
                    self.lives_for = None
                raise self.ends_with

    async def lead(self, czxid: int = 1, epoch: int = 0, settings: dict[str, str] | None = None) -> Partition:
        await self.replicas.configure("t", settings or {}, czxid)
        role = update(czxid, epoch)
        partition = await self.replicas.find_or_create(role)
        await partition.lead(role, now=0.0)
        return partition

    @property
    def partition(self) -> Partition:
        found = self.replicas.find("t", 0)
        assert found is not None
        return found

    async def delete(self) -> None:
        partition = self.partition
        partition.stop(partition.leader_epoch)
        await self.replicas.delete(partition)

    def noted(self) -> dict[str, int]:
        """Returns the offset of t-0 in each checkpoint that has it, by the checkpoint's name."""
        storage = self.disk.storage()
        found = {
            name: OffsetCheckpoint(storage, f"data/{name}").load().get(("t", 0))
            for name in (HIGH_WATERMARKS, RECOVERY_POINTS, CLEANED_OFFSETS)
        }
        return {name: offset for name, offset in found.items() if offset is not None}


def update(czxid: int, epoch: int, leader: int = 1) -> internal.PartitionStateUpdate:
    return internal.PartitionStateUpdate(
        topic="t",
        topic_czxid=czxid,
        partition=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[1],
        member_epochs=[],
        elr=[],
        zk_version=epoch,
        replicas=[1],
    )


async def fill(partition: Partition, count: int) -> None:
    """With values of one key."""
    for number in range(count):
        partition.log.append(validated(message_set.build([(b"k", b"%d" % number, 5)])))
    await partition.log.flush()
    partition.high_watermark = partition.log.end_offset


async def _compacted() -> Bench:
    """Its log has gaps between segments, and all of it is noted."""
    bench = Bench()
    await bench.start()
    await fill(await bench.lead(settings=COMPACTED), 9)
    cleaning = asyncio.ensure_future(bench.replicas.cleaner.run())
    await until(lambda: CLEANED_OFFSETS in bench.noted(), "it is cleaned")
    cleaning.cancel()
    await bench.replicas.checkpoint()
    assert len(bench.noted()) == 3
    return bench


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_deletion_that_is_killed_leaves_no_note_for_the_next_topic_of_that_name(power_loss: bool) -> None:
    """Compaction would take the new log for clean up to where the old one was."""

    async def check() -> None:
        instant, ended = 0, False
        while not ended:
            bench = await _compacted()
            bench.lives_for = instant
            try:
                await bench.delete()
                ended = True
            except Killed:
                instant += 1
            if power_loss:
                bench.disk.cut_power()
            await bench.start()
            await bench.lead(czxid=2)
            assert bench.noted() == {}, f"killed at operation {instant}"
        assert instant > 20

    simulate(check)


def test_a_file_in_the_place_of_a_partitions_folder_rejects_that_partition_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        bench = Bench()
        bench.disk.write("data/t-0", b"mine")
        await bench.start()
        with pytest.raises(DirectoryError, match="data/t-0 is a file, but the log of t-0 belongs there; remove it"):
            await bench.lead()
        manager: Any = SimpleNamespace(replicas=bench.replicas)
        assert await ReplicaManager._change_role(manager, update(1, 0), {}) == ErrorCode.UNKNOWN
        assert caplog.messages == [
            "data/t-0 is a file, but the log of t-0 belongs there; remove it and restart the broker"
        ]
        assert bench.disk.read("data/t-0") == b"mine"

    simulate(check)


def test_a_log_does_not_lead_in_an_epoch_before_its_own_and_says_what_to_restore(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An older copy of ZooKeeper's data was restored. Before, the controller's requests ended with a traceback."""

    async def check() -> None:
        bench = Bench()
        await bench.start()
        await fill(await bench.lead(epoch=4), 3)
        await bench.start()
        with pytest.raises(PartitionError):
            await bench.lead(epoch=2)
        assert caplog.messages == [
            "t-0 has no leader: ZooKeeper names leader epoch 2, and the log has epoch 4 already, so ZooKeeper has "
            "older data than the log; stop all brokers, and restore ZooKeeper's newest data"
        ]
        assert (bench.partition.leader, bench.partition.log.end_offset) == (None, 3)
        assert (await bench.lead(epoch=5)).leader is not None, "the newest data were restored"

    simulate(check)


def test_nothing_is_written_where_the_data_directory_was_once_it_was_moved() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.start()
        lock(bench.storage, "data")
        await fill(await bench.lead(), 3)
        await bench.replicas.checkpoint()
        before = bench.disk.snapshot("data").files
        storage = bench.disk.storage()
        storage.rename("data", "moved")
        storage.mkdir("data")
        other = update(1, 0)
        other.topic = "other"
        for write in (
            bench.replicas.checkpoint(),
            bench.replicas.find_or_create(other),
            bench.replicas.delete(bench.partition),
        ):
            with pytest.raises(OSError):  # noqa: PT011
                await write
        with pytest.raises(DirectoryMovedError, match="data_dir data was moved"):
            await bench.replicas.checkpoint()
        assert bench.disk.files() == [path.replace("data/", "moved/") for path in before]
        assert storage.listdir("data") == []

    simulate(check)


def test_a_start_that_removes_a_torn_tail_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        bench = Bench()
        await bench.start()
        await fill(await bench.lead(), 3)
        path = f"data/t-0/{0:020d}.log"
        bench.disk.write(path, bench.disk.read(path) + b"torn")
        await bench.start()
        assert bench.partition.log.end_offset == 3
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            (
                "WARNING",
                "data/t-0: 4 bytes that were not known to be fsynced were removed: "
                f"{path}: at byte 108 (offset 3): the last message is not all there",
            )
        ]
        await bench.start()
        assert len(caplog.records) == 1

    simulate(check)


def test_files_of_others_outlive_the_logs_in_their_folder_and_are_no_log_themselves() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.start()
        bench.disk.write("data/t-0/me.jpg", b"mine")
        for life in range(1, 4):
            await fill(await bench.lead(czxid=life), 3)
            assert bench.partition.log.end_offset == 3
            await bench.delete()
            assert [path for path in bench.disk.files() if "t-0" in path] == ["data/t-0/me.jpg"]
            await bench.start()
            assert bench.replicas.find("t", 0) is None
            assert not bench.replicas.records_lost

    simulate(check)


def test_a_deletion_waits_for_the_cleaners_note_of_the_log() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.start()
        await fill(await bench.lead(settings=COMPACTED), 9)
        await bench.replicas.checkpoint()
        begun = asyncio.Event()

        def delay() -> float:
            if begun.is_set() or not bench.storage.exists(f"data/{CLEANED_OFFSETS}.tmp"):
                return 0.0
            begun.set()
            return 1.0

        bench.delay = delay
        cleaning = asyncio.ensure_future(bench.replicas.cleaner.run())
        await begun.wait()
        await bench.delete()
        await bench.lead(czxid=2, settings={})
        await asyncio.sleep(2)
        cleaning.cancel()
        assert CLEANED_OFFSETS not in bench.noted()

    simulate(check)


@pytest.mark.parametrize("how", ["deleted", "set aside"])
def test_a_log_that_a_failing_disk_could_not_take_away_is_not_the_next_topics(how: str) -> None:
    """The role, or the request to delete it, comes again."""

    async def check() -> None:
        instant, ended = 0, False
        while not ended:
            bench = Bench(ends_with=OSError(errno.EIO, "the device fails"))
            await bench.start()
            await fill(await bench.lead(), 9)
            await bench.replicas.checkpoint()
            bench.lives_for = instant
            for _ in range(2):
                with contextlib.suppress(OSError):
                    if how == "deleted" and bench.replicas.find("t", 0) is not None:
                        await bench.delete()
                    remade = await bench.lead(czxid=2)
                    break
            ended, bench.lives_for = bench.lives_for is not None, None
            assert (remade.incarnation, remade.log.end_offset) == (2, 0), f"failed at operation {instant}"
            await fill(remade, 1)
            assert "data/t-0.deleted" not in {path.rpartition("/")[0] for path in bench.disk.files()}
            instant += 1
        assert instant > 20

    simulate(check)


def test_a_role_for_a_replica_of_which_the_deletion_failed_begins_with_an_empty_log() -> None:
    """The partition was moved away and back. A late copy of the former role brings nothing back."""

    async def check() -> None:
        instant, ended = 0, False
        while not ended:
            bench = Bench(ends_with=OSError(errno.EIO, "the device fails"))
            await bench.start()
            await fill(await bench.lead(), 9)
            bench.lives_for = instant
            with contextlib.suppress(OSError):
                await bench.delete()
            ended, bench.lives_for = bench.lives_for is not None, None
            manager: Any = SimpleNamespace(replicas=bench.replicas, config=SimpleNamespace(broker_id=2))
            for role, is_new, meant in ((1, True, True), (0, False, False)):
                assert ReplicaManager._concerns_this_replica(manager, update(1, role), is_new=is_new) is meant
            again = await bench.lead(epoch=1)
            await fill(again, 1)
            assert again.log.end_offset == 1, f"failed at operation {instant}"
            instant += 1

    simulate(check)


def test_logs_are_closed_also_when_one_of_them_cannot_be_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        bench = Bench()
        await bench.start()
        partition = await bench.lead()

        async def broken() -> int:
            monkeypatch.undo()
            raise OSError(errno.EIO, "the device fails")

        monkeypatch.setattr(partition.log, "flush", broken)
        with pytest.raises(OSError, match="the device fails"):
            await bench.replicas.close(flush=True)
        assert partition.log.closed

    simulate(check)


@pytest.mark.parametrize("how", ["truncate", "discard"])
def test_what_a_failing_disk_leaves_of_a_cut_is_stopped_without_another_error(how: str) -> None:
    """The broker ends of it, in one line; its terms are ended and reported first. A read that fails is damage."""

    async def check() -> None:
        instant, ended = 0, False
        while not ended:
            bench = Bench(ends_with=OSError(errno.EIO, "the device fails"))
            await bench.start()
            partition = await bench.lead()
            await fill(partition, 9)
            partition.follow(update(1, epoch=1, leader=2))
            term = partition.follower
            assert term is not None
            bench.lives_for = instant
            damaged = False
            try:
                await (term.truncate(3, "") if how == "truncate" else term.discard(20, ""))
            except CorruptLog:
                damaged = True
            except OSError:
                pass
            ended, bench.lives_for = bench.lives_for is not None, None
            partition.end_term()
            with contextlib.suppress(OSError):
                await bench.replicas.close(flush=False)
            await bench.start()
            assert damaged or bench.partition.log.damage is None, f"failed at operation {instant}"
            instant += 1

    simulate(check)


def test_settings_that_could_not_be_applied_are_taken_when_they_are_sent_again() -> None:
    """That a log may have gaps is noted before its topic is compacted, and a full disk takes no note."""

    async def check() -> None:
        bench = Bench()
        await bench.start()
        partition = await bench.lead()
        bench.disk.capacity = bench.disk.used
        with pytest.raises(OSError, match="No space left"):
            await bench.replicas.configure("t", COMPACTED, 5)
        bench.disk.capacity = None
        await bench.replicas.configure("t", COMPACTED, 5)
        assert partition.config.compacts
        await bench.replicas.configure("t", {}, 4)
        assert partition.config.compacts

    simulate(check)


def test_a_high_watermark_beyond_what_was_lost_is_not_that_of_what_comes_next() -> None:
    """Not even when the process is killed before the next checkpoint."""

    async def check() -> None:
        bench = Bench()
        await bench.start()
        partition = await bench.lead(settings={"flush.messages": "100"})
        for number in range(9):
            partition.require_leader().append(
                validated(message_set.build([(b"k", b"%d" % number, 5)])), wait_for_all=True
            )
        partition.high_watermark = 9
        await bench.replicas.checkpoint()
        bench.disk.cut_power()
        await bench.start()
        partition = await bench.lead(epoch=1, settings={"flush.messages": "100"})
        left = partition.log.end_offset
        assert left == partition.high_watermark < 9
        await fill(partition, 9)
        await bench.start()
        assert bench.partition.high_watermark == left

    simulate(check)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_high_watermark_beyond_a_cut_is_not_that_of_what_comes_next(checkpoint: bool) -> None:
    """Not even when the process is killed before the next checkpoint, or one is written while the log is cut."""

    async def check() -> None:
        bench = Bench()
        await bench.start()
        partition = await bench.lead()
        await fill(partition, 9)
        await bench.replicas.checkpoint()
        partition.follow(update(1, epoch=1, leader=2))
        bench.delay = lambda: 0.01
        cutting = asyncio.ensure_future(partition.follower.truncate(5, "an unclean election"))
        if checkpoint:
            await asyncio.sleep(0.001)
            await bench.replicas.checkpoint()
        await cutting
        bench.delay = lambda: 0.0
        partition.log.append_replicated(message_set.build([(b"k", b"v", 5)] * 4, base_offset=5))
        await partition.log.flush()
        assert partition.high_watermark == 5
        await bench.start()
        assert bench.partition.high_watermark == 5

    simulate(check)


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_that_retention_has_passed_meanwhile_notes_that_nothing_of_the_log_counts(seed: int) -> None:
    """It becomes a new beginning, of which a power loss may leave any prefix of the old log."""

    async def check() -> None:
        bench = Bench(disk=SimDisk(Random(seed)))
        await bench.start()
        partition = await bench.lead(settings={"segment.bytes": "100", "retention.bytes": "100"})
        await fill(partition, 9)
        await bench.replicas.checkpoint()
        partition.follow(update(1, epoch=1, leader=2))
        term = partition.follower
        assert term is not None
        bench.delay = lambda: 1.0
        cutting = asyncio.ensure_future(term.truncate(2, "an unclean election"))
        await asyncio.sleep(0.1)
        retaining = asyncio.ensure_future(partition.apply_retention())
        await until(lambda: partition.log.start_offset > 2, "retention passes it")
        assert partition.log.end_offset == 9
        await until(lambda: partition.log.end_offset < 9, "it is cut", 30)
        assert bench.noted()[RECOVERY_POINTS] == 0
        cutting.cancel()
        retaining.cancel()
        bench.disk.cut_power()
        await bench.start()
        assert bench.partition.log.damage is None

    simulate(check)


@pytest.mark.parametrize("how", ["truncate", "discard"])
@pytest.mark.parametrize("end", ["another term", "a stop"])
def test_a_compacted_log_that_was_to_be_cut_and_was_not_is_whole(how: str, end: str) -> None:
    """The note about its gaps is lowered before a cut. Then the term may be over, or the process is stopped."""

    async def check() -> None:
        instants, cut = 0, False
        while not cut:
            bench = await _compacted()
            partition = bench.partition
            before = partition.log.end_offset
            partition.follow(update(1, epoch=1, leader=2))
            term = partition.follower
            assert term is not None
            bench.delay = lambda: 0.01
            cutting = asyncio.ensure_future(term.truncate(1, "") if how == "truncate" else term.discard(0, ""))
            await asyncio.sleep(0.005 + instants * 0.01)
            cut = partition.log.end_offset < before
            if end == "a stop":
                cutting.cancel()
                await asyncio.wait([cutting])
            else:
                partition.follow(update(1, epoch=2, leader=3))
                await cutting
            bench.delay = lambda: 0.0
            await bench.replicas.flush()
            left = partition.log.end_offset
            await bench.start()
            found = bench.partition.log
            assert (found.damage, found.end_offset) == (None, left), f"at instant {instants}"
            instants += 1
        assert instants > 8

    simulate(check)


def test_a_damaged_log_is_handed_over_also_while_that_is_going_on_for_a_former_one_of_its_name() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.start()
        background = BackgroundTasks(lambda _: None)
        handover = Handover(bench.config, background, lambda: None, lambda: 1)
        for czxid in (1, 2):
            partition = await bench.lead(czxid)
            partition.log.mark_damaged(CorruptLog("a file", 0, 0, "a flipped bit"))
            handover.begin_if_damaged(partition)
            if czxid == 1:
                await asyncio.sleep(0.01)
                await bench.delete()
        await asyncio.sleep(1)
        assert partition.leader is None
        await background.close()

    simulate(check)


def test_damage_that_could_not_be_noted_is_noted_with_the_next_checkpoint() -> None:
    """Without the note the next start would not look at the damaged place."""

    async def check() -> None:
        bench = Bench(ends_with=OSError(errno.ENOSPC, "no room"))
        await bench.start()
        partition = await bench.lead()
        await fill(partition, 9)
        bench.lives_for = 0
        partition.log.mark_damaged(CorruptLog("data/t-0", 3, 3, "a flipped bit"))
        await asyncio.sleep(1)
        assert bench.lives_for is None
        await bench.replicas.checkpoint()
        await bench.start()
        assert bench.partition.log.damage is not None

    simulate(check)


@pytest.mark.parametrize("seed", range(4))
def test_damage_that_is_noted_stays_known(seed: int) -> None:
    """The note is there when a process is killed in the middle of writing it, and the next relies on it."""

    async def check() -> None:
        known = instant = 0
        while known < 3:
            bench = Bench(disk=SimDisk(Random(seed)))
            await bench.start()
            partition = await bench.lead()
            await fill(partition, 9)
            await bench.replicas.checkpoint()
            partition.log.mark_damaged(CorruptLog("a file", 0, 0, "a flipped bit"))
            bench.lives_for = instant
            with contextlib.suppress(Killed):
                await partition.log.note_damage()
            await bench.start()
            if bench.partition.log.damage is not None:
                known += 1
                bench.disk.cut_power()
                await bench.start()
                assert bench.partition.log.damage is not None, f"killed at operation {instant}"
            instant += 1

    simulate(check)


LIVES = {
    "deleted": {"segment.bytes": "100", "retention.bytes": "150"},
    "preallocated": {"segment.bytes": "150", "preallocate": "true", "retention.bytes": "400"},
    "compacted": COMPACTED,
    "both": COMPACTED | {"cleanup.policy": "compact,delete", "retention.bytes": "300"},
}
MOST_OPERATIONS = 400
"""Operations of the disk in one life. A compacted log has more."""


@dataclass
class _Life:
    """A log that is appended to, flushed, cleaned, shortened and noted, until its disk fails where nothing may."""

    bench: Bench
    partition: Partition
    over: bool = False
    flushed: int = 0
    last: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    """The last record of each key, with its offset."""

    async def live(self) -> None:
        for number in range(10):
            await self._try(partial(self._append, b"%d" % (number % 4), number, 1 + number % 3), may_fail=True)
            await self._try(partial(self._append, b"z", number, 1), may_fail=True)
            await self._try(self._flush)
            if number % 3 == 2:
                await self._try(self._clean, may_fail=True)
                await self._try(self.partition.apply_retention)
                await self._try(self.bench.replicas.checkpoint)

    async def _try(self, step: Callable[[], Any], *, may_fail: bool = False) -> None:
        """Some errors end a broker. A log that the disk does not give is handed over, and copied again."""
        if self.over:
            return
        try:
            await step()
        except OSError:
            self.over = not may_fail
        except SwapUnfinished:
            self.over = True
        except CorruptLog:
            self.over = True

    async def _append(self, key: bytes, number: int, count: int) -> None:
        values = [b"%d" % (number + more) for more in range(count)]
        first, *_ = self.partition.log.append(validated(message_set.build([(key, value, 5) for value in values])))
        self.last[key] = first + count - 1, values[-1]

    async def _flush(self) -> None:
        await self.partition.log.flush()
        self.flushed = self.partition.high_watermark = self.partition.log.flushed_offset

    async def _clean(self) -> None:
        with contextlib.suppress(CleaningInterrupted):
            await self.bench.replicas.cleaner._clean(self.partition)


@pytest.mark.parametrize("settings", LIVES.values(), ids=LIVES)
@pytest.mark.parametrize("end", ["kill", "power loss", "clean"])
@pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.long)])
def test_one_operation_of_the_disk_that_fails_costs_no_flushed_record(
    settings: dict[str, str], end: str, stride: int
) -> None:
    """Whichever it is, and however the process ends then; and the log goes on."""

    async def check(failing: int) -> None:
        bench = Bench(disk=SimDisk(Random(failing)), ends_with=OSError(errno.EIO, "the device"))
        await bench.start()
        life = _Life(bench, await bench.lead(settings=settings))
        bench.lives_for = failing
        await life.live()
        bench.lives_for = None
        if end == "clean" and not life.over:
            await bench.replicas.close(flush=True)
        elif end == "power loss":
            bench.disk.cut_power()
        start = life.partition.log.start_offset
        await bench.start()
        log = bench.partition.log
        assert log.damage is None, failing
        assert log.start_offset <= start, failing
        assert log.end_offset >= life.flushed, failing
        found = {one.offset: (one.key, one.value) for one in stored(log, log.start_offset, log.end_offset)}
        kept = {key: at for key, at in life.last.items() if log.start_offset <= at[0] < life.flushed}
        assert {key: found.get(offset) for key, (offset, _) in kept.items()} == {
            key: (key, value) for key, (_, value) in kept.items()
        }, failing
        if "cleanup.policy" not in settings:
            assert list(found) == list(range(log.start_offset, log.end_offset)), failing
        await fill(await bench.lead(epoch=1, settings=settings), 3)

    for failing in range(0, MOST_OPERATIONS, stride):
        simulate(partial(check, failing))
