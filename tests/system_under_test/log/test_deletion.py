"""Deletion of a log removes the broker's own files, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from random import Random

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log import deletion, directory
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.retention import remove_expired_segments
from assay.system_under_test.records import message_set
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.local import LocalStorage

from helpers.producing import validated

SEGMENT = "00000000000000000000.log"
FOREIGN = ["me.jpg", "mine.log", "0.log", "1-2.log.swap", f"{SEGMENT}.jpg", "shard-1", "damaged.txt", "Damaged"]


async def make_log(storage: Storage, path: str, *, count: int = 3) -> Log:
    storage.mkdir(path)
    await directory.write_incarnation(storage, path, 7)
    config = LogConfig(segment_bytes=50, compacted=True, preallocate=True)
    log, _ = await Log.open(storage, path, config, clean=False, recovery_point=0, wall_clock=lambda: 1000.0)
    for _ in range(count):
        log.append(validated(message_set.build([(b"k", b"v", 5)])))
    await log.flush()
    return log


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_all_that_the_broker_writes_for_a_log_is_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = LocalStorage(str(tmp_path))
        log = await make_log(storage, "data/t-0")
        history = await EpochHistory.load(storage, "data/t-0")
        history.assign(1, 0)
        await history.flush()
        assert await remove_expired_segments(log, lambda: 3, retention_ms=-1, retention_bytes=0)
        log.mark_damaged(CorruptLog("data/t-0", 0, 0, "lost"))
        await log.note_damage()
        names = {Path(path).name for path in tree(tmp_path / "data" / "t-0")}
        assert {"damaged", "topic-incarnation", "preallocated", "compaction-checkpoint"} < names
        assert any(name.endswith(".timeindex.deleted") for name in names)
        assert [name for name in names if not deletion.is_own_file(name)] == []
        await log.delete()
        assert tree(tmp_path / "data") == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "name",
    [
        f"{SEGMENT}.tmp",
        f"{SEGMENT}.cleaned",
        "00000000000000000000-00000000000000000009.log.swap",
        "00000000000000000000-00000000000000000009-4711.log.swap",
        "leader-epoch-checkpoint.tmp",
        "topic-incarnation.tmp",
        "preallocated.tmp",
    ],
)
def test_files_that_a_crash_has_left_are_the_brokers_own(name: str) -> None:
    assert deletion.is_own_file(name)


@pytest.mark.parametrize("name", FOREIGN)
def test_other_files_are_not(name: str) -> None:
    assert not deletion.is_own_file(name)


@pytest.mark.parametrize("doomed", [False, True])
def test_files_of_others_survive_where_they_are_and_a_later_log_of_that_name_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, doomed: bool
) -> None:
    """Also if a folder of a user has the name that the folder of the log gets meanwhile."""

    async def scenario() -> None:
        storage = LocalStorage(str(tmp_path))
        other = tmp_path / "data" / "shard-1" / "logs" / "orders-0"
        other.mkdir(parents=True)
        (other / SEGMENT).write_text("of another broker")
        (tmp_path / "data" / "shard-1" / "me.jpg").write_text("mine")
        if doomed:
            (tmp_path / "data" / "shard-1.deleted").mkdir()
            (tmp_path / "data" / "shard-1.deleted" / "me.jpg").write_text("mine")
        before = tree(tmp_path)
        for _ in range(2):
            log = await make_log(storage, "data/shard-1")
            assert log.end_offset == 3
            (tmp_path / "data" / "shard-1" / "damaged").mkdir()
            await log.delete()
            (tmp_path / "data" / "shard-1" / "damaged").rmdir()  # nor is a folder the broker's, whatever its name
            assert tree(tmp_path) == before
        assert (other / SEGMENT).read_text() == "of another broker"
        assert len(caplog.messages) == 2
        assert "data/shard-1 stays" in caplog.text
        assert "me.jpg" in caplog.text
        assert directory.list_partition_directories(storage, "data") == [("shard", 1)]
        assert not deletion.may_be_log(storage, "data/shard-1")

    asyncio.run(scenario())


def test_a_link_to_a_folder_goes_but_what_others_have_there_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = LocalStorage(str(tmp_path))
        for name in ("data", "a", "b"):
            (tmp_path / name).mkdir()
        (tmp_path / "b" / "me.jpg").write_text("mine")
        for number, target in enumerate(("a", "b")):
            (tmp_path / "data" / f"t-{number}").symlink_to(tmp_path / target)
            await (await make_log(storage, f"data/t-{number}")).delete()
        assert tree(tmp_path) == ["a", "b", "b/me.jpg", "data", "data/t-1"]

    asyncio.run(scenario())


def test_a_start_removes_nothing_of_others_from_folders_with_the_names_of_deleted_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = LocalStorage(str(tmp_path))
    for name in ("holiday-3.deleted", "orders-1.deleted", "orders-1.12.deleted", "orders-1.x.deleted"):
        (tmp_path / name).mkdir()
        (tmp_path / name / SEGMENT).write_text("")
    (tmp_path / "holiday-3.deleted" / "me.jpg").write_text("mine")
    (tmp_path / "notes-1.deleted").write_text("mine")
    for _ in range(2):
        asyncio.run(deletion.remove_deleted(storage, ""))
        assert tree(tmp_path) == [
            "holiday-3.deleted",
            "holiday-3.deleted/me.jpg",
            "notes-1.deleted",
            "orders-1.x.deleted",
            f"orders-1.x.deleted/{SEGMENT}",
        ]
    assert len(caplog.messages) == 2
    assert "holiday-3.deleted stays" in caplog.text


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_in_a_deletion_takes_no_file_of_others_and_leaves_no_part_of_the_log(*, power_loss: bool) -> None:
    async def scenario() -> None:
        instant, ended = 0, False
        while not ended:
            disk, budget = SimDisk(Random(instant)), 10_000

            def check() -> None:
                nonlocal budget
                budget -= 1
                if budget < 0:
                    raise ProcessLookupError

            log = await make_log(disk.storage(check, lambda: 0), "data/t-0")
            disk.write("data/t-0/me.jpg", b"mine")
            before = {path for path in disk.files() if path.endswith(".log")}
            budget = instant
            with contextlib.suppress(ProcessLookupError):
                await log.delete()
                ended = True
            if power_loss:
                disk.cut_power()
            left = {path for path in disk.files() if path.startswith("data/t-0/") and path.endswith(".log")}
            assert left in (set(), before)
            await deletion.remove_deleted(disk.storage(), "data")
            foreign = [path for path in disk.files() if os.path.basename(path) == "me.jpg"]
            assert [disk.read(path) for path in foreign] == [b"mine"]
            if not left:
                assert disk.files() == foreign
            instant += 1
        assert instant > 15

    asyncio.run(scenario())
