"""A node's power is cut: what was fsynced is there, the rest is gone, and nothing of the disk outlives its cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.cluster import doctor, journal, leftovers, owner
from assay.cluster.docker import DockerCluster, disk
from assay.cluster.docker.engine import list_owned, open_docker
from assay.cluster.node import Node, NodeError, ProcessState
from assay.cluster.ssh import power
from assay.nemesis.faults.kill import PowerLoss

from helpers.echo_system import DATA, Echo, StoringEcho, echoes, until
from helpers.live_cluster import Live, run_of_its_own, started

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("engine_needed")]

FSYNCED = b"f" * 5000
NOT_FSYNCED = b"u" * 3000

WRITE = f"""
import os
def write(name, data, fsync):
    with open("{DATA}/" + name, "ab") as file:
        file.write(data)
        file.flush()
        if fsync:
            os.fsync(file.fileno())
def fsync_folder():
    handle = os.open("{DATA}", os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
write("both", b"f" * 5000, True)
write("replaced", b"old", True)
fsync_folder()
write("both", b"u" * 3000, False)
write("new", b"u" * 3000, False)
write("replaced.new", b"another", False)
os.rename("{DATA}/replaced.new", "{DATA}/replaced")
"""


CHILD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from helpers.echo_system import StoringEcho
from assay.cluster.docker import DockerCluster

async def main():
    cluster = DockerCluster(
        StoringEcho(Path(sys.argv[2])), {"broker": 1}, run_id=sys.argv[4], seed=1, state_dir=Path(sys.argv[3]),
        own_disks=True,
    )
    await cluster.start()
    assert cluster.nodes[0].own_disk_unavailable() is None, cluster.nodes[0].own_disk_unavailable()
    print("up", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def disks_needed() -> None:
    """Skips the test on a machine that can make no disks, and says what is missing."""
    try:
        disk.require_disk_support()
    except disk.DiskImageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def storing(
    engine_needed: None, disks_needed: None, tmp_path_factory: pytest.TempPathFactory, state: Path
) -> Iterator[Live]:
    system = StoringEcho(tmp_path_factory.mktemp("storing"))
    cluster = DockerCluster(
        system, {"broker": 2}, run_id=run_of_its_own("test-power"), seed=1, state_dir=state, own_disks=True
    )
    with started(cluster, state) as live:
        yield live


def pending(live: Live) -> list[journal.Action]:
    """Returns what the undo journal would undo in nodes now."""
    (path,) = (live.state / "journals").glob(f"*{live.cluster.run_id}*.jsonl")
    return [action for _, action in journal.read_journal(path).actions if isinstance(action, journal.RunInContainer)]


async def write(node: Any) -> None:
    await node.shell(f"rm -rf {DATA}/*; sync -f {DATA}; python3 -", stdin=WRITE.encode())


async def content(node: Any) -> dict[str, bytes]:
    return {path: await node.read_file(path) for path in await node.find_files(f"{DATA}/*")}


async def running(node: Node) -> None:
    if (await node.process()).state is ProcessState.DEAD:
        await node.start()
    await until(lambda: echoes(node), f"{node.name} echoes")


def test_nothing_fits_on_a_full_disk_until_there_is_room_again(storing: Live) -> None:
    async def body() -> None:
        node = storing.node("n2")
        await running(node)
        await write(node)
        before, refused = await node.room()
        assert before > 1 << 28
        assert refused is False
        await node.fill_disk()
        try:
            assert len(pending(storing)) == 1, "how to undo it is in the journal"
            assert await node.room() == (0, True)
            said = await node.shell(f"(head -c 99999 /dev/zero >> {DATA}/both) 2>&1 || true")
            assert "No space left" in said
            kept = (await node.read_file(f"{DATA}/both"))[:8000]
            assert kept == FSYNCED + NOT_FSYNCED
        finally:
            await node.free_disk()
        assert await node.room() == (before, False)
        assert pending(storing) == []
        await node.free_disk()

    storing.run(body())


def test_what_was_not_fsynced_is_gone_and_what_was_is_there(storing: Live) -> None:
    async def body() -> None:
        n1, n2 = storing.node("n1"), storing.node("n2")
        await running(n1)
        await write(n1)
        await write(n2)
        lost = await n1.cut_power()
        after = await content(n1)
        assert after.pop(f"{DATA}/both") == FSYNCED
        assert after.pop(f"{DATA}/new", b"") == b"", "its name may have come through with another file's, its bytes not"
        # A rename that came through without the bytes it was for; or none of both.
        assert after.pop(f"{DATA}/replaced") in (b"", b"old")
        assert after in ({}, {f"{DATA}/replaced.new": b""})
        assert lost[f"{DATA}/both"] == len(NOT_FSYNCED)
        assert lost[f"{DATA}/new"] == len(NOT_FSYNCED)
        untouched = await content(n2)
        assert untouched[f"{DATA}/both"] == FSYNCED + NOT_FSYNCED, "another machine's power was not cut"
        assert untouched[f"{DATA}/replaced"] == b"another"

    storing.run(body())


def test_a_kill_loses_nothing(storing: Live) -> None:
    """The neighbour: the page cache survives, or the test above would prove nothing."""

    async def body() -> None:
        node = storing.node("n2")
        await running(node)
        await write(node)
        await node.kill()
        assert (await node.read_file(f"{DATA}/both")) == FSYNCED + NOT_FSYNCED

    storing.run(body())


def test_the_machine_comes_back_behind_its_rules_and_with_another_process(storing: Live) -> None:
    async def body() -> None:
        n1, n2 = storing.node("n1"), storing.node("n2")
        await running(n1)
        before = await n1.process()
        await n1.drop_from([n2])
        await n1.cut_power()
        assert (await n1.process()).state is ProcessState.DEAD
        assert await n1.dropped() == {"n2": 0}
        await n1.cut_power()
        await n1.start()
        assert (await n1.process()).incarnation != before.incarnation
        await n1.accept_all()

    storing.run(body())


def test_a_start_finds_the_disk_mounted_whatever_happened_to_it(storing: Live) -> None:
    async def body() -> None:
        node = storing.node("n1")
        await node.kill() if (await node.process()).state is not ProcessState.DEAD else None
        await write(node)
        await node.shell(f"umount {DATA}")
        await running(node)
        assert await node.read_file(f"{DATA}/both") == FSYNCED + NOT_FSYNCED
        await node.kill()
        shut_down = (
            f"import fcntl,os,struct; fcntl.ioctl(os.open('{DATA}',0),{power.EXT4_IOC_SHUTDOWN},struct.pack('I',2))"
        )
        await node.shell(f'python3 -c "{shut_down}"')
        await running(node)
        assert await node.read_file(f"{DATA}/both") == FSYNCED + NOT_FSYNCED, "all was written by the unmount"

    storing.run(body())


def test_what_the_harness_does_to_files_is_as_durable_as_if_it_had_always_been_there(storing: Live) -> None:
    async def body() -> None:
        node = storing.node("n2")
        await node.kill() if (await node.process()).state is not ProcessState.DEAD else None
        await write(node)
        await node.write_range(f"{DATA}/both", 10, b"damage")
        await node.truncate_file(f"{DATA}/both", 100)
        await node.write_file(f"{DATA}/given", b"by the harness")
        await node.cut_power()
        expected = bytearray(FSYNCED[:100])
        expected[10:16] = b"damage"
        assert await node.read_file(f"{DATA}/both") == bytes(expected)
        assert await node.read_file(f"{DATA}/given") == b"by the harness"

    storing.run(body())


def test_the_disks_are_in_the_journal_before_what_hangs_on_them(storing: Live) -> None:
    (found,) = [one for one in journal.read_journals(storing.state)[0] if one.run_id == storing.cluster.run_id]
    kinds = [type(action) for _, action in found.actions]
    assert kinds.count(journal.RemoveDisk) == 2
    assert kinds.index(journal.RemoveDisk) > max(
        index for index, kind in enumerate(kinds) if kind is journal.RemoveContainer
    ), "undone latest first: containers before their disks"
    for _, action in found.actions:
        if isinstance(action, journal.RemoveDisk):
            assert disk.find_loop_devices(Path(action.image))


def run_cluster(tmp_path: Path, run_id: str, system: Echo, body: Any, *, own_disks: bool = True) -> None:
    async def main() -> None:
        cluster = DockerCluster(
            system, {"broker": 1}, run_id=run_id, seed=1, state_dir=tmp_path / "state", own_disks=own_disks
        )
        try:
            await cluster.start()
            await body(cluster)
        finally:
            await cluster.close()
        assert not disk.list_images(tmp_path / "state")

    asyncio.run(main())


async def reason(cluster: DockerCluster, system: Any) -> str:
    said = await PowerLoss().probe(cluster, system)
    assert said is not None
    return said


@pytest.mark.usefixtures("disks_needed")
def test_a_disk_that_loses_nothing_is_found_out_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = power.argv

    def gentle(what: str, device: str, folder: str) -> list[str]:
        python, option, source, *rest = real(what, device, folder)
        assert "fcntl.ioctl(" in source
        return [python, option, source.replace("fcntl.ioctl(", "(lambda *_: None)("), *rest]

    async def body(cluster: DockerCluster) -> None:
        said = await reason(cluster, system)
        assert "4096 bytes that were never fsynced are still on" in said
        assert "assay doctor" in said
        node: Any = cluster.nodes[0]
        with pytest.raises(NodeError, match="the power of n1 cannot be cut"):
            await node.cut_power()
        await node.start()

    monkeypatch.setattr(power, "argv", gentle)
    system = StoringEcho(tmp_path / "echo")
    run_cluster(tmp_path, "test-gentle", system, body)


def test_a_machine_that_can_make_no_disks_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible() -> None:
        raise disk.DiskImageError("no loop devices today")

    async def body(cluster: DockerCluster) -> None:
        assert await reason(cluster, system) == "the power of n1 cannot be cut: no loop devices today"

    monkeypatch.setattr(disk, "require_disk_support", impossible)
    system = StoringEcho(tmp_path / "echo")
    run_cluster(tmp_path, "test-no-disks", system, body)


def test_a_system_that_names_no_data_folder_has_no_power_to_cut(tmp_path: Path) -> None:
    async def body(cluster: DockerCluster) -> None:
        assert "`data_folder`" in await reason(cluster, system)

    system = Echo(tmp_path / "echo")
    run_cluster(tmp_path, "test-no-folder", system, body)


@pytest.mark.usefixtures("storing")
def test_the_doctor_tries_it_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "state_folder", lambda: tmp_path)
    found = {finding.name: finding for finding in doctor.diagnose()}["power loss in a node"]
    assert (found.good, found.detail) == (True, "what was fsynced stays, what was not is gone")
    real = power.argv
    monkeypatch.setattr(
        power, "argv", lambda *given: [text.replace("NO_LOG_FLUSH = 2", "NO_LOG_FLUSH = 0") for text in real(*given)]
    )
    found = {finding.name: finding for finding in doctor.diagnose()}["power loss in a node"]
    assert not found.good
    assert "that were never fsynced are still on" in found.detail
    assert "EXT4_IOC_SHUTDOWN" in found.remedy
    assert disk.list_images(tmp_path) == []


@pytest.mark.parametrize("journal_lost", [False, True])
def test_kill_9_of_the_owner_then_a_sweep_leaves_no_disk(storing: Live, tmp_path: Path, journal_lost: bool) -> None:
    run_id = run_of_its_own(f"test-orphan-disk-{int(journal_lost)}")
    state = tmp_path / "state"
    arguments = [str(Path(__file__).parents[2]), str(tmp_path / "echo"), str(state), run_id]
    with subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        leftovers.sweep(state)
        assert len(disk.list_images(state)) == 1, "a live owner's disk is left alone"
        child.kill()
    (image,) = disk.list_images(state)
    assert image.run_id == run_id
    assert owner.parse_owner(image.owner).pid == child.pid
    assert disk.find_loop_devices(image.path)
    if journal_lost:
        (found,), _ = journal.read_journals(state)
        found.path.unlink()
    report = leftovers.sweep(state)
    assert not report.failed
    assert disk.list_images(state) == []
    with open_docker() as client:
        assert not [thing for thing in list_owned(client) if thing.run_id == run_id]
    _eventually_detached(image.path)
    assert journal.read_journals(state) == ([], [])


def _eventually_detached(path: Path) -> None:
    """The kernel takes the mount of a container apart a moment after the container is gone."""

    async def detached() -> bool:
        return not disk.find_loop_devices(path)

    asyncio.run(_within(until(detached, f"{path} is detached")))


async def _within(coroutine: Coroutine[Any, Any, None]) -> None:
    await coroutine


def test_the_end_of_the_cluster_leaves_no_disk(storing: Live) -> None:
    """The last of the module."""
    images: Mapping[str, Path] = {image.path.name: image.path for image in disk.list_images(storing.state)}
    assert len(images) == 2
    storing.run(storing.cluster.close())
    assert disk.list_images(storing.state) == []
    for path in images.values():
        _eventually_detached(path)
