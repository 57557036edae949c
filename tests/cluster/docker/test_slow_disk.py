"""The disk of a node's process is slow while it runs, its fsyncs or all that it reads and writes, or fails; and nothing
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.docker import DockerCluster, preload
from assay.cluster.docker.engine import open_docker, undo_action
from assay.cluster.journal import RunInContainer, read_journal
from assay.cluster.node import DiskChange, DiskErrorEffects, NodeError, ProcessState, Slowed

from helpers.echo_system import DATA, Echo, SyncingEcho, echoes, until
from helpers.live_cluster import Live, run_of_its_own, started

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("engine_needed")]


@pytest.fixture(scope="module")
def slow(engine_needed: None, tmp_path_factory: pytest.TempPathFactory, state: Path) -> Iterator[Live]:
    try:
        preload.compile_here(preload.SLOWNESS)
    except preload.PreloadError as error:
        pytest.skip(str(error))
    system = SyncingEcho(tmp_path_factory.mktemp("slow"))
    cluster = DockerCluster(
        system, {"broker": 1}, run_id=run_of_its_own("test-slow"), seed=1, state_dir=state, slow_disks=True
    )
    with started(cluster, state) as live:
        yield live


async def running(node: Any) -> None:
    if (await node.process()).state is ProcessState.DEAD:
        await node.start()
    await until(lambda: echoes(node), f"{node.name} echoes")


async def taken(node: Any) -> float:
    """Seconds for an answer, for which one write and one fsync are made."""
    began = asyncio.get_running_loop().time()
    assert await echoes(node, timeout=10)
    return asyncio.get_running_loop().time() - began


def pending(live: Live) -> list[Any]:
    """Returns what the undo journal would undo in nodes now."""
    (path,) = (live.state / "journals").glob(f"*{live.cluster.run_id}*.jsonl")
    return [action for _, action in read_journal(path).actions if isinstance(action, RunInContainer)]


def more(now: Slowed, before: Slowed) -> Slowed:
    return Slowed(now.fsyncs - before.fsyncs, now.calls - before.calls, now.halts - before.halts)


@pytest.mark.parametrize(
    ("fsync", "call", "least", "counted"),
    [(0.4, 0.0, 0.4, Slowed(1, 0, 0)), (0.0, 0.3, 0.3, Slowed(0, 1, 0)), (0.3, 0.2, 0.5, Slowed(1, 1, 0))],
    ids=["fsyncs", "calls", "both"],
)
def test_it_is_slow_by_so_much_until_it_is_as_before(
    slow: Live, fsync: float, call: float, least: float, counted: Slowed
) -> None:
    async def body() -> None:
        node = slow.node("n1")
        assert node.slowness_unavailable() is None
        await running(node)
        before = await node.read_disk_delays()
        await node.slow_disk(fsync, call)
        try:
            assert len(pending(slow)) == 1, "how to undo it is in the journal"
            assert await taken(node) >= least
            assert more(await node.read_disk_delays(), before) == counted
        finally:
            await node.slow_disk(0.0)
        assert pending(slow) == []
        await taken(node)
        assert more(await node.read_disk_delays(), before) == counted, "none has been slow since"

    slow.run(body())


def test_a_process_dies_in_the_middle_of_an_fsync(slow: Live) -> None:
    async def body() -> None:
        node = slow.node("n1")
        await running(node)
        before = await node.read_disk_delays()
        await node.slow_disk(0.5)
        await node.halt_in_fsync(0.2)
        asking = asyncio.create_task(echoes(node, timeout=20))

        async def halted() -> bool:
            return bool((await node.process()).state is ProcessState.STOPPED)

        await until(halted, "it stands still")
        assert more(await node.read_disk_delays(), before) == Slowed(1, 0, 1)
        assert not asking.done()
        await node.kill()
        assert not await asking
        await node.halt_in_fsync(0.0)
        await node.slow_disk(0.0)
        assert pending(slow) == []
        await running(node)
        assert (await node.read_disk_delays()).halts == before.halts + 1

    slow.run(body())


def test_one_that_stands_still_in_an_fsync_goes_on_from_the_journal(slow: Live) -> None:
    async def body() -> None:
        node = slow.node("n1")
        await running(node)
        await node.slow_disk(5.0)
        await node.halt_in_fsync(0.1)
        asking = asyncio.create_task(echoes(node, timeout=20))

        async def halted() -> bool:
            return bool((await node.process()).state is ProcessState.STOPPED)

        await until(halted, "it stands still")

        def undo() -> None:
            with open_docker() as client:
                for action in pending(slow):
                    assert undo_action(client, action), action

        await asyncio.to_thread(undo)
        assert await asking
        assert await taken(node) < 5.0
        await node.halt_in_fsync(0.0)
        await node.slow_disk(0.0)

    slow.run(body())


@pytest.mark.parametrize("change", [DiskChange.WRITE, DiskChange.FSYNC])
def test_a_change_is_rejected_once_after_another_and_is_not_made(slow: Live, change: DiskChange) -> None:
    """The echo of one who cannot store closes the connection."""

    async def body() -> None:
        node = slow.node("n1")
        await running(node)
        before, stored = await node.read_disk_errors(), len(await node.read_file(f"{DATA}/echoed"))
        await node.break_disk((change,), 1, 1)
        try:
            assert len(pending(slow)) == 1, "how to undo it is in the journal"
            assert await echoes(node), "the first is as ever"
            assert not await echoes(node)
            assert await echoes(node), "one was to be rejected"
            assert (await node.read_disk_errors()).errors == before.errors + 1
        finally:
            await node.break_disk(())
        assert pending(slow) == []
        written = len(await node.read_file(f"{DATA}/echoed")) - stored
        assert written == (2 if change is DiskChange.WRITE else 3) * len("hello")

    slow.run(body())


def test_changes_fail_until_that_is_undone_from_the_journal(slow: Live) -> None:
    async def body() -> None:
        node = slow.node("n1")
        await running(node)
        await node.break_disk((DiskChange.CUT, DiskChange.NAME), 0, 1000)
        assert await echoes(node), "it neither cuts nor renames"
        await node.break_disk(tuple(DiskChange), 0, 1000)
        assert not await echoes(node)
        assert not await echoes(node)

        def undo() -> None:
            with open_docker() as client:
                for action in pending(slow):
                    assert undo_action(client, action), action

        await asyncio.to_thread(undo)
        assert await echoes(node)
        await node.break_disk(())

    slow.run(body())


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
def test_a_process_ends_just_before_a_change_or_after_it_and_its_next_one_does_not(slow: Live, made: bool) -> None:
    async def body() -> None:
        node = slow.node("n1")
        await running(node)
        before, stored = await node.read_disk_errors(), await node.read_file(f"{DATA}/echoed")
        await node.break_disk((DiskChange.WRITE,), 0, 0, after_change=made)
        assert not await echoes(node)
        assert (await node.process()).state is ProcessState.DEAD
        assert await node.read_file(f"{DATA}/echoed") == stored + b"hello" * made
        assert await node.read_disk_errors() == DiskErrorEffects(before.errors, before.ends + 1)
        await running(node)
        assert await echoes(node), "it ends once"
        await node.break_disk(())
        assert (await node.read_disk_errors()).ends == before.ends + 1

    slow.run(body())


def test_other_files_are_as_fast_as_ever(slow: Live) -> None:
    async def body() -> None:
        node = slow.node("n1")
        await running(node)
        before = await node.read_disk_delays()
        await node.slow_disk(2.0, 2.0)
        try:
            environment = await node.shell("tr '\\0' '\\n' < /proc/$(pgrep -f echo.py | head -1)/environ")
            variables = " ".join(line for line in environment.split() if line.startswith(("LD_PRELOAD", "ASSAY")))
            assert DATA in variables
            await node.shell(f"{variables} timeout 1 dd if=/dev/zero of=/tmp/other bs=1 count=9 conv=fsync 2>&1")
            assert await node.read_disk_delays() == before
        finally:
            await node.slow_disk(0.0)

    slow.run(body())


def test_of_a_system_that_does_not_say_where_its_data_are_no_disk_is_slow(echo: Echo, tmp_path: Path) -> None:
    async def body() -> None:
        cluster = DockerCluster(
            echo, {"broker": 1}, run_id=run_of_its_own("no-slow"), seed=1, state_dir=tmp_path, slow_disks=True
        )
        try:
            await cluster.start()
            (node,) = cluster.nodes
            assert "does not say where its data are" in str(node.slowness_unavailable())
            with pytest.raises(NodeError, match="disk of n1 cannot be made slow, or to fail"):
                await node.slow_disk(0.1)
        finally:
            await cluster.close()

    asyncio.run(body())
