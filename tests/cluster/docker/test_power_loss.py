"""A node's power is cut: what was fsynced is there, the rest is gone, and nothing of the disk outlives its cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from assay.cluster import doctor, journal, leftovers
from assay.cluster.docker import DockerCluster, ability_trials, disk, engine_machine, power
from assay.cluster.docker.engine import CAPABILITIES, list_owned, open_docker, remove_container
from assay.cluster.node import Node, NodeError, ProcessState
from assay.nemesis.faults.kill import PowerLoss

from helpers.echo_system import DATA, Echo, StoringEcho, echoes, until
from helpers.live_cluster import Live, run_of_its_own, started
from helpers.loop_devices import find_loop_devices, wait_until_detached

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
def storing(engine_needed: None, tmp_path_factory: pytest.TempPathFactory, state: Path) -> Iterator[Live]:
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
        maker, container = (f"assay-{storing.cluster.run_id}-{name}" for name in ("disks", "n1"))
        with open_docker() as client:
            pid = client.containers.get(container).attrs["State"]["Pid"]
            code, said = client.containers.get(maker).exec_run(
                ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "umount", DATA]
            )
        assert code == 0, said
        assert await node.find_files(f"{DATA}/*") == {}
        await running(node)
        assert await node.read_file(f"{DATA}/both") == FSYNCED + NOT_FSYNCED
        await node.kill()
        shut_down = (
            f"import fcntl,os,struct; fcntl.ioctl(os.open('{DATA}',0),{power.EXT4_IOC_SHUTDOWN},struct.pack('I',2))"
        )
        with pytest.raises(NodeError, match="Operation not permitted"):
            await node.shell(f'python3 -c "{shut_down}"')
        with open_docker() as client:
            command = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "python3", "-c", shut_down]
            code, said = client.containers.get(maker).exec_run(command)
        assert code == 0, said
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


def test_a_node_with_a_disk_has_no_more_rights_than_others(storing: Live) -> None:
    with open_docker() as client:
        settings = {
            name: client.containers.get(f"assay-{storing.cluster.run_id}-{name}").attrs["HostConfig"]
            for name in ("n1", "disks")
        }
    assert settings["n1"]["CapAdd"] == list(CAPABILITIES)
    assert not settings["n1"]["Devices"]
    assert not settings["n1"]["SecurityOpt"]
    assert not any(found["Privileged"] for found in settings.values())


def test_the_container_that_makes_disks_is_in_the_journal(storing: Live) -> None:
    (found,) = [one for one in journal.read_journals(storing.state)[0] if one.run_id == storing.cluster.run_id]
    removed = [action.name for _, action in found.actions if isinstance(action, journal.RemoveContainer)]
    assert removed[-1] == f"assay-{storing.cluster.run_id}-disks"
    assert find_loop_devices(f"{storing.cluster.run_id}.n1.ext4")


@pytest.mark.parametrize("name", ["my data", "back\\slash", "dätä", "a\ttab", "linked"])
def test_a_disk_is_found_where_it_is_mounted(storing: Live, name: str) -> None:
    run_id, folder, node = storing.cluster.run_id, f"/srv/{name}", storing.node("n2")
    if name == "linked":
        storing.run(node.shell(f"mkdir /srv/place; ln -s place {folder}"))
    count = "grep -c ' /srv/' /proc/mounts || true"
    before = int(storing.run(node.shell(count)))
    mine = disk.DockerDisk(f"assay-{run_id}-disks", f"assay-{run_id}-n2", f"{run_id}.{name}.ext4", folder)
    for action in (mine.try_out, mine.mount, mine.lose_power, mine.mount):
        action()
    assert int(storing.run(node.shell(count))) == before + 1


def test_a_volume_at_the_data_folder_is_not_taken_for_the_disk(storing: Live) -> None:
    """Otherwise the file system of the engine's machine would be shut down."""
    run_id = storing.cluster.run_id
    maker, name = f"assay-{run_id}-disks", f"assay-{run_id}-volume"
    with open_docker() as client:
        image = client.containers.get(maker).image
        try:
            client.containers.run(
                image, ["infinity"], entrypoint="sleep", name=name, volumes=["/data"], network_mode="none", detach=True
            )
            mine = disk.DockerDisk(maker, name, f"{run_id}.volume.ext4", "/data")
            with pytest.raises(NodeError, match="not mounted at /data"):
                mine.lose_power()
            mine.try_out()
            mounted = client.containers.get(name).exec_run(["grep", "-c", " /data ", "/proc/self/mounts"])
            assert mounted.output.strip() == b"2", "on top of the volume"
        finally:
            remove_container(client, name)


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

    asyncio.run(main())
    wait_until_detached(run_id)


async def reason(cluster: DockerCluster, system: Any) -> str:
    said = await PowerLoss().probe(cluster, system)
    assert said is not None
    return said


def test_a_disk_that_loses_nothing_is_found_out_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = power.argv

    def gentle(*given: Any) -> list[str]:
        python, option, source, *rest = real(*given)
        assert "fcntl.ioctl(handle, " in source
        return [python, option, source.replace("fcntl.ioctl(handle, ", "(lambda *_: None)("), *rest]

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


def test_a_machine_without_loop_devices_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = power.argv
    monkeypatch.setattr(
        power,
        "argv",
        lambda *given: [text.replace("LOOP_CONTROL = (10, 237)", "LOOP_CONTROL = (10, 9)") for text in real(*given)],
    )

    async def body(cluster: DockerCluster) -> None:
        assert "the engine's machine gives no loop devices (" in await reason(cluster, system)

    system = StoringEcho(tmp_path / "echo")
    run_cluster(tmp_path, "test-no-loops", system, body)


def test_an_engine_that_can_make_no_disks_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(cluster: DockerCluster) -> None:
        said = await reason(cluster, system)
        assert said.startswith("the power of n1 cannot be cut: the engine is rootless, ")

    monkeypatch.setattr(disk, "is_rootless", lambda info: True)
    system = StoringEcho(tmp_path / "echo")
    run_cluster(tmp_path, "test-no-disks", system, body)


def test_a_system_that_names_no_data_folder_has_no_power_to_cut(tmp_path: Path) -> None:
    async def body(cluster: DockerCluster) -> None:
        assert "its method data_folder" in await reason(cluster, system)

    system = Echo(tmp_path / "echo")
    run_cluster(tmp_path, "test-no-folder", system, body)


@pytest.mark.usefixtures("storing")
def test_the_doctor_tries_it_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ability_trials, "state_folder", lambda: tmp_path)
    monkeypatch.setattr(engine_machine, "state_folder", lambda: tmp_path)
    found = {finding.name: finding for finding in doctor.diagnose()}["power loss in a node"]
    assert (found.good, found.detail) == (True, "what was fsynced stays, what was not is gone")
    monkeypatch.setattr(engine_machine, "state_folder", lambda: tmp_path / "again")  # has no earlier result
    real = power.argv
    monkeypatch.setattr(
        power, "argv", lambda *given: [text.replace("NO_LOG_FLUSH = 2", "NO_LOG_FLUSH = 0") for text in real(*given)]
    )
    found = {finding.name: finding for finding in doctor.diagnose()}["power loss in a node"]
    assert not found.good
    assert "that were never fsynced are still on" in found.detail
    assert "EXT4_IOC_SHUTDOWN" in found.remedy
    with open_docker() as client:
        assert not [one.name for one in list_owned(client) if one.name.startswith(f"assay-doctor-{os.getpid()}")]
    wait_until_detached("doctor")


@pytest.mark.parametrize("journal_lost", [False, True])
def test_kill_9_of_the_owner_then_a_sweep_leaves_no_disk(storing: Live, tmp_path: Path, journal_lost: bool) -> None:
    run_id = run_of_its_own(f"test-orphan-disk-{int(journal_lost)}")
    state = tmp_path / "state"
    arguments = [str(Path(__file__).parents[2]), str(tmp_path / "echo"), str(state), run_id]
    with subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        leftovers.sweep(state)
        assert len(find_loop_devices(run_id)) == 1, "a live owner's disk is left alone"
        child.kill()
    assert find_loop_devices(run_id)
    with open_docker() as client:
        (volume,) = client.containers.get(f"assay-{run_id}-disks").attrs["Mounts"]
        assert client.volumes.get(volume["Name"])
    if journal_lost:
        (found,), _ = journal.read_journals(state)
        found.path.unlink()
    report = leftovers.sweep(state)
    assert not report.failed
    with open_docker() as client:
        assert not [thing for thing in list_owned(client) if thing.run_id == run_id]
        with pytest.raises(NotFound):
            client.volumes.get(volume["Name"])
    wait_until_detached(run_id)
    assert journal.read_journals(state) == ([], [])


def test_the_end_of_the_cluster_leaves_no_disk(storing: Live) -> None:
    """The last of the module."""
    assert find_loop_devices(storing.cluster.run_id)
    storing.run(storing.cluster.close())
    wait_until_detached(storing.cluster.run_id)
