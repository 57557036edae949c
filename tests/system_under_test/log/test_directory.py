"""Names and small files of a log directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log import deletion, directory
from assay.system_under_test.log.directory import DirectoryError, MetaProperties
from assay.system_under_test.log.recovery import remove_leftovers
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.local import LocalStorage

SEGMENT = "00000000000000000000.log"


def view(disk: SimDisk) -> Storage:
    return disk.storage(fsync_delay=lambda: 0)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True), st.integers(0, 10**6))
def test_a_directorys_name_tells_topic_and_partition(topic: str, partition: int) -> None:
    assert directory.parse_directory_name(directory.format_directory_name(topic, partition)) == (topic, partition)


@pytest.mark.parametrize("name", ["orders", "-1", "orders-", "orders-x", "orders-01", "o-1.deleted", "o-1.0.stray"])
def test_other_names_are_no_partitions(name: str) -> None:
    assert directory.parse_directory_name(name) is None


def test_the_clean_marker_counts_once_and_is_durably_gone_when_taken() -> None:
    async def scenario() -> None:
        for seed in range(20):
            disk = SimDisk(Random(seed))
            disk.write("data/x", b"")
            assert await directory.take_clean_marker(view(disk), "data") == ()
            await directory.write_clean_marker(view(disk), [4711, 4715], "data")
            disk.cut_power()
            assert await directory.take_clean_marker(view(disk), "data") == (4711, 4715)
            disk.cut_power()
            assert await directory.take_clean_marker(view(disk), "data") == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("properties", [MetaProperties(7), MetaProperties(1001, "abc_DEF-123")])
def test_meta_properties_come_back(properties: MetaProperties) -> None:
    disk = SimDisk(Random(0))
    assert directory.read_meta_properties(view(disk)) is None
    asyncio.run(directory.write_meta_properties(view(disk), properties))
    assert directory.read_meta_properties(view(disk)) == properties


def test_meta_properties_of_java_are_read_and_nonsense_is_named() -> None:
    disk = SimDisk(Random(0))
    disk.write("meta.properties", b"#Mon Jan 02\nversion=0\nbroker.id=3\n")
    assert directory.read_meta_properties(view(disk)) == MetaProperties(3)
    disk.write("meta.properties", b"\x00\x00")
    with pytest.raises(DirectoryError, match=r"meta\.properties"):
        directory.read_meta_properties(view(disk))


def test_a_topics_incarnation_comes_back_and_damage_is_named() -> None:
    disk = SimDisk(Random(0))
    disk.write("t-0/x", b"")
    assert directory.read_incarnation(view(disk), "t-0") is None
    asyncio.run(directory.write_incarnation(view(disk), "t-0", 8589934605))
    assert directory.read_incarnation(view(disk), "t-0") == 8589934605
    whole = disk.read("t-0/topic-incarnation")
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)
    ]
    for damaged in [*flipped, *(whole[:size] for size in range(len(whole)))]:
        disk.write("t-0/topic-incarnation", damaged)
        with pytest.raises(DirectoryError, match="t-0/topic-incarnation"):
            directory.read_incarnation(view(disk), "t-0")


def test_an_incarnation_without_a_checksum_is_read_as_it_was_written_once() -> None:
    disk = SimDisk(Random(0))
    disk.write("t-0/topic-incarnation", b"4711\n")
    assert directory.read_incarnation(view(disk), "t-0") == 4711


def test_a_log_set_aside_keeps_its_bytes_under_a_name_that_no_one_serves() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(0))
        for content in (b"first", b"second"):
            disk.write("data/t-0/log", content)
            path = await directory.set_aside(view(disk), "data/t-0")
            disk.cut_power()
            assert disk.read(f"{path}/log") == content
        assert directory.list_partition_directories(view(disk), "data") == []
        assert len(disk.files()) == 2

    asyncio.run(scenario())


def test_interrupted_deletions_are_finished_and_partitions_listed() -> None:
    disk = SimDisk(Random(0))
    for path in ("data/b-1/x", f"data/a-0.deleted/{SEGMENT}", "data/a-c-2/x", "data/file"):
        disk.write(path, b"")
    assert asyncio.run(deletion.remove_deleted(view(disk), "data")) == ["a-0.deleted"]
    assert directory.list_partition_directories(view(disk), "data") == [("a-c", 2), ("b", 1)]
    assert disk.files() == ["data/a-c-2/x", "data/b-1/x", "data/file"]


def test_the_log_directory_survives_a_power_loss_with_all_its_parents() -> None:
    async def scenario() -> None:
        for seed in range(20):
            disk = SimDisk(Random(seed))
            await directory.make_root(view(disk), "var/lib/data")
            await directory.write_meta_properties(view(disk), MetaProperties(7, "cluster"), "var/lib/data")
            disk.cut_power()
            assert directory.read_meta_properties(view(disk), "var/lib/data") == MetaProperties(7, "cluster")

    asyncio.run(scenario())


@pytest.mark.parametrize("mark", [directory.LOCK, directory.META_PROPERTIES])
@pytest.mark.parametrize(("other", "mine"), [("data/shard-1", "data"), ("data", "data/shard-1")])
def test_a_directory_in_another_brokers_is_rejected_and_unchanged(mark: str, other: str, mine: str) -> None:
    disk = SimDisk(Random(0))
    disk.write(f"{other}/{mark}", b"")
    before = view(disk).listdir(mine)
    with pytest.raises(DirectoryError, match=rf"data_dir {mine}: data/shard-1 and data would be two brokers'"):
        directory.lock(view(disk), mine)
    assert view(disk).listdir(mine) == before


@pytest.mark.parametrize("mark", [directory.LOCK, directory.META_PROPERTIES])
@pytest.mark.parametrize(
    "mine", ["x/data/shard-1/logs", "x/data/shard-1/a/b/logs/", "x/data/a-0/b-0", "alias", "alias/a"]
)
def test_a_directory_somewhere_in_a_folder_that_another_broker_could_take_for_a_partitions_is_rejected(
    tmp_path: Path, mine: str, mark: str
) -> None:
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "x/data/shard-1").mkdir(parents=True)
    (tmp_path / "x/data" / mark).write_text("")
    (tmp_path / "alias").symlink_to(tmp_path / "x/data/shard-1")
    folder = "a-0" if "a-0" in mine else "shard-1"
    with pytest.raises(DirectoryError) as error:
        directory.lock(storage, mine)
    assert f"data_dir {mine}: x/data/{folder}" in str(error.value)
    assert f" and x/data would be two brokers' directories, and x/data/{folder} has the name" in str(error.value)
    assert sorted(os.listdir(tmp_path / "x/data")) == sorted([mark, "shard-1"])


def test_a_directory_in_a_folder_that_no_broker_has_is_accepted(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "run-1/data-2").mkdir(parents=True)
    (tmp_path / ".lock").write_text("")
    (tmp_path / "run" / "x").mkdir(parents=True)
    (tmp_path / "run-1" / "data-2" / "orders-0").mkdir()
    (tmp_path / "run" / "alias").symlink_to(tmp_path / "run" / "x")
    directory.lock(storage, "run/alias")
    (tmp_path / ".lock").unlink()
    directory.lock(storage, "run-1/data-2")


@pytest.mark.parametrize(("other", "mine"), [("data/broker1", "data"), ("data", "data/broker1")])
def test_a_directory_that_no_topic_can_be_named_like_may_lie_in_another(other: str, mine: str) -> None:
    disk = SimDisk(Random(0))
    disk.write(f"{other}/{directory.LOCK}", b"")
    disk.write("data/orders-1/00000000000000000000.log", b"")
    directory.lock(view(disk), mine)


def test_a_file_with_the_name_of_a_partitions_folder_is_no_log(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "notes-1").write_text("mine")
    disk = SimDisk(Random(0))
    disk.write(f"orders-0/{SEGMENT}", b"")
    disk.write("notes-1", b"mine")
    for one in (storage, view(disk)):
        assert directory.list_partition_directories(one) == [("orders", 0)]


def test_only_deleted_partitions_are_removed() -> None:
    disk = SimDisk(Random(0))
    for name in ("photos.deleted", "orders-01.deleted", "orders-1.deleted"):
        disk.write(f"data/{name}/{SEGMENT}", b"")
    assert asyncio.run(deletion.remove_deleted(view(disk), "data")) == ["orders-1.deleted"]
    assert view(disk).listdir("data") == ["orders-01.deleted", "photos.deleted"]


def test_recovery_removes_files_of_segments_alone() -> None:
    disk = SimDisk(Random(0))
    left = ["00000000000000000000.log", "mynotes.log", "mynotes.log.deleted", "notes.index"]
    for name in [
        *left,
        "00000000000000000007.log",
        "00000000000000000007.timeindex",
        "00000000000000000003.log.deleted",
    ]:
        disk.write(f"orders-0/{name}", b"")
    remove_leftovers(view(disk), "orders-0", [0])
    assert view(disk).listdir("orders-0") == left


@pytest.mark.parametrize("length", [1, 240, 249])
def test_a_log_of_any_legal_name_can_be_set_aside_and_deleted(tmp_path: Path, length: int) -> None:
    topic = "t" * length
    storage = LocalStorage(str(tmp_path))

    async def scenario() -> None:
        aside = []
        for _ in range(2):
            storage.mkdir(f"data/{topic}-12")
            aside.append(await directory.set_aside(storage, f"data/{topic}-12"))
        assert storage.listdir("data") == sorted(path.removeprefix("data/") for path in aside)
        assert len(set(aside)) == 2
        assert directory.list_partition_directories(storage, "data") == []
        doomed = directory.add_suffix(f"data/{topic}-12", directory.DELETED_SUFFIX)
        storage.mkdir(doomed)
        assert await deletion.remove_deleted(storage, "data") == [doomed.removeprefix("data/")]

    asyncio.run(scenario())
