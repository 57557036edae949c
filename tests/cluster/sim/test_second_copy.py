"""A second copy of a simulated process is the fault's own: apart from the node's main process in every way."""

from __future__ import annotations

import asyncio
import json

import pytest

from assay.cluster.node import NodeError, ProcessState
from assay.cluster.sim.node import SimNode
from assay.nemesis.faults.data_loss import read_lock_files
from assay.system_under_test.deployment import Broker
from assay.system_under_test.log.directory import LOCK

from helpers.sim_brokers import DATA, brokers, simulate, until

UNLOCKED = Broker(partitions=1, active_defects=("no-directory-lock",))


async def ended(node: SimNode) -> int | None:
    async def gone() -> bool:
        return not (await node.second()).alive

    await until(gone, "the copy has ended")
    return (await node.second()).exit_status


def holder(node: SimNode) -> bytes:
    return node.disk.read(f"{DATA}/{LOCK}")


def test_a_second_broker_is_refused_and_changes_nothing_and_the_first_lives_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            before, events = await node.process(), len(node.log._lines)
            await node.start_second()
            assert await ended(node) == 1
            seen = await node.second()
            assert (seen.changes, seen.incarnation) == (0, "n1.second.1")
            assert await node.process() == before
            assert node.exit_code is None
            assert len(node.log._lines) == events
            assert holder(node) == b"n1.1\n"
            assert "is in use: process n1.1 holds the lock" in capsys.readouterr().err
            await cluster.producer.send("orders", 0, [(None, b"x")])

    simulate(check)


def test_a_stopped_process_keeps_its_directory_and_a_killed_one_does_not() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            await node.stop()
            await node.start_second()
            assert await ended(node) == 1
            await node.kill()
            await node.start_second()
            await until(lambda: holder(node) == b"n1.second.2\n", "the copy has the directory")
            with pytest.raises(NodeError, match=r"cannot change .* while .*second.* is alive"):
                await node.remove_contents(f"/{DATA}")
            await node.end_second()
            await node.remove_contents(f"/{DATA}", read_lock_files(cluster.system, node))
            assert node.disk.names(DATA) == [LOCK]
            await node.start()
            await until(lambda: holder(node) == b"n1.2\n", "the node's own process has it again")

    simulate(check)


def test_with_the_defect_a_copy_changes_files_and_its_events_are_kept_apart() -> None:
    async def check() -> None:
        async with brokers(UNLOCKED) as cluster:
            node = cluster.nodes[0]
            events = list(node.log._lines)
            await node.start_second()
            with pytest.raises(NodeError, match="is alive; end it first"):
                await node.start_second()
            assert await ended(node) == 1  # its id is taken, but by then it has opened the logs
            seen = await node.second()
            assert seen.changes is not None
            assert seen.changes > 0
            assert {json.loads(line)["event"] for line in node.second_events} >= {"recovered"}
            assert node.log._lines[: len(events)] == events
            assert not [line for line in node.log._lines[len(events) :] if "recovered" in line]

    simulate(check)


def test_a_copy_that_breaks_down_is_no_crash_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]

            async def break_down(*_: object) -> int:
                raise RuntimeError("broken")

            monkeypatch.setattr(Broker, "entry", break_down)
            await node.start_second()
            assert await ended(node) == 1
            assert cluster.cluster.crashes == []

    simulate(check)


def test_a_power_loss_and_a_heal_end_the_copy() -> None:
    async def check() -> None:
        async with brokers(UNLOCKED) as cluster:
            node = cluster.nodes[0]
            with pytest.raises(NodeError, match="no second copy"):
                await node.second()
            await node.end_second()
            for end in (node.end_second, node.cut_power):
                await node.start_second()
                await asyncio.sleep(0.1)
                await end()
                seen = await node.second()
                assert (seen.alive, seen.exit_status) == (False, None)
            assert (await node.process()).state is ProcessState.DEAD
            await node.start()

    simulate(check)


def test_a_rollback_puts_everything_back_but_the_lock_file() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node, kept = cluster.nodes[0], read_lock_files(cluster.system, cluster.nodes[0])
            assert f"{DATA}/{LOCK}" not in await node.save(f"/{DATA}", kept)
            before = await node.contents(f"/{DATA}", kept)
            await node.kill()
            await node.start()
            await until(lambda: holder(node) == b"n1.2\n", "it is back")
            await node.kill()
            await node.restore(f"/{DATA}", kept)
            assert await node.contents(f"/{DATA}", kept) == before
            assert holder(node) == b"n1.2\n"
            await node.start()

    simulate(check)
