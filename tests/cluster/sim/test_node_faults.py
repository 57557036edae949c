"""Tests what faults ask of a simulated node beyond kill, stop and cut: terminate, reject, freeze, damaged files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.node import DiskChange, Node, NodeError, ProcessState, by_role
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop

from helpers.counter_system import PORT, Counter, ask


class Cleanly(Counter):
    """A counter that notes on its disk that it was asked to end."""

    async def entry(self, runtime: Any, argv: Any) -> int:
        try:
            return await super().entry(runtime, argv)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            runtime.storage.write_bytes("var/counter/ended", b"cleanly")
            return 0


def simulate(
    test: Callable[[SimCluster, Node, Node], Coroutine[Any, Any, None]], system: Counter | None = None
) -> None:
    system = system or Cleanly()

    async def main() -> None:
        cluster = SimCluster(system, {"zookeeper": 1, "broker": 2}, 1)
        try:
            await start_system(system, cluster, 20, lambda _: None)
            await test(cluster, *by_role(cluster, "broker"))
        finally:
            await cluster.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:
        runner.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


def test_on_a_full_disk_no_file_grows_and_what_is_there_can_be_read() -> None:
    async def test(cluster: SimCluster, node: Any, other: Any) -> None:
        storage = node.disk.storage()
        storage.write_bytes("old", b"12345")
        assert (await node.room())[1] is False
        await node.fill_disk()
        assert await node.room() == (0, True)
        file = storage.open("old")
        with pytest.raises(OSError, match="No space left"):
            file.append(b"6")
        with pytest.raises(OSError, match="No space left"):
            storage.write_bytes("new", b"1")
        assert storage.read_bytes("old") == b"12345"
        file.truncate(3)
        file.append(b"67")
        assert await node.room() == (0, True), "what was cut made room for as much, and no more"
        assert (await other.room())[1] is False
        await node.free_disk()
        file.append(b"8")
        assert storage.read_bytes("old") == b"123678"

    simulate(test)


async def asked(node: Any, what: str) -> tuple[str, float]:
    """The answer, and the seconds that it took."""
    began = now()
    return await ask(node, what), now() - began


def test_a_process_stands_still_in_each_read_and_write_of_a_slow_disk() -> None:
    """The counter writes once and syncs twice for each number that it adds."""

    async def test(_: SimCluster, node: Any, other: Any) -> None:
        usual = (await asked(node, "add"))[1]
        before = await node.process()
        await node.slow_disk(0.0, 0.3)
        assert await asked(node, "add") == ("2", pytest.approx(usual + 0.3, abs=0.02))
        assert (await node.read_disk_delays()).calls == 1
        assert (await asked(other, "add"))[1] < 0.1
        adding = asyncio.create_task(asked(node, "add"))
        await asyncio.sleep(0.1)
        assert await node.process() == before, "it waits, and no signal has stopped it"
        assert not adding.done()
        assert (await asked(node, "members"))[1] > 0.1, "so does everyone who asks it something"
        assert (await adding)[0] == "3"
        await node.slow_disk(0.0)
        assert (await asked(node, "add"))[1] == pytest.approx(usual, abs=0.02)
        assert (await node.read_disk_delays()).fsyncs == 0

    simulate(test)


def test_slow_fsyncs_keep_no_one_from_being_served() -> None:
    async def test(_: SimCluster, node: Any, other: Any) -> None:
        await node.slow_disk(0.5)
        adding = asyncio.create_task(asked(node, "add"))
        await asyncio.sleep(0.1)
        assert (await asked(node, "members"))[1] < 0.1
        assert (await adding)[1] == pytest.approx(1.0, abs=0.1)
        assert (await node.read_disk_delays()).fsyncs == 2
        assert (await node.read_disk_delays()).calls == 0

    simulate(test)


@pytest.mark.parametrize("signal", ["continued", "killed"])
def test_signals_reach_a_process_that_waits_for_its_disk(signal: str) -> None:
    async def test(_: SimCluster, node: Any, other: Any) -> None:
        await node.slow_disk(0.0, 1.0)
        adding = asyncio.create_task(ask(node, "add"))
        await asyncio.sleep(0.2)
        await node.stop()
        assert (await node.process()).state is ProcessState.STOPPED
        if signal == "killed":
            await node.kill()
            assert (await node.process()).state is ProcessState.DEAD
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await adding
            await asyncio.sleep(2.0)
            assert (await node.process()).state is ProcessState.DEAD
            return
        await asyncio.sleep(2.0)
        assert not adding.done(), "the call has returned, and the process is stopped"
        await node.slow_disk(0.0)
        await node.resume()
        assert await adding == "1"

    simulate(test)


def test_a_process_is_stopped_in_the_middle_of_an_fsync_once_and_what_it_was_about_is_lost() -> None:
    async def test(_: SimCluster, node: Any, other: Any) -> None:
        assert await ask(node, "add") == "1"
        await node.slow_disk(0.4)
        await node.halt_in_fsync(0.3)
        adding = asyncio.create_task(ask(node, "add"))
        await asyncio.sleep(0.25)
        assert (await node.process()).state is ProcessState.RUNNING
        await asyncio.sleep(0.1)
        assert (await node.process()).state is ProcessState.STOPPED
        assert (await node.read_disk_delays()).halts == 1
        await node.halt_in_fsync(0.0)
        assert await adding == "2"
        assert (await node.read_disk_delays()).halts == 1, "others are not stopped"
        await node.halt_in_fsync(0.3)
        lost = asyncio.create_task(ask(node, "add"))
        await asyncio.sleep(1.0)
        await node.cut_power()
        lost.cancel()
        assert await node.read_file("/var/counter/n") == b"2"

    simulate(test)


def test_who_runs_out_of_memory_stands_still_and_is_gone() -> None:
    async def test(_: SimCluster, node: Any, other: Any) -> None:
        assert await ask(node, "add") == "1"
        ending = asyncio.create_task(node.exhaust_memory())
        await asyncio.sleep(0.1)
        asking = asyncio.create_task(asked(node, "members"))
        await asyncio.sleep(0.1)
        assert not asking.done()
        assert (await node.process()).state is ProcessState.RUNNING
        assert (await ending).ended == 1
        assert (await node.process()).state is ProcessState.DEAD
        with pytest.raises(ConnectionError):
            await asking
        with pytest.raises(NodeError, match="no process to kill"):
            await node.exhaust_memory()
        await node.start()
        assert await node.read_file("/var/counter/n") == b"1"
        assert await ask(other, "add") == "1"

    simulate(test)


async def from_node(node: Any, target: Node) -> tuple[str, float]:
    """Returns what connecting from one node to another comes to, and the seconds it took."""
    began = now()

    async def connect() -> None:
        _, writer = await asyncio.open_connection(target.address, PORT)
        writer.close()

    try:
        async with asyncio.timeout(5):
            await node._process.spawn(connect(), "connect")
    except ConnectionRefusedError:
        return "refused", now() - began
    except TimeoutError:
        return "silence", now() - began
    return "open", now() - began


def test_a_terminated_process_ends_in_its_own_time_and_another_may_start() -> None:
    async def test(_: SimCluster, n1: Any, n2: Node) -> None:
        before = await n1.process()
        began = now()
        await n1.terminate()
        assert now() - began == pytest.approx(0.5)
        assert (await n1.process()).state is ProcessState.DEAD
        assert await n1.read_file("/var/counter/ended") == b"cleanly"
        assert n1.exit_code == 0
        with pytest.raises(NodeError, match="there is none"):
            await n1.terminate()
        await n1.start()
        assert (await n1.process()).incarnation != before.incarnation

    simulate(test)


def test_a_stopped_process_does_not_end() -> None:
    async def test(_: SimCluster, n1: Any, n2: Node) -> None:
        await n1.stop()
        with pytest.raises(NodeError, match="did not end within 15 s"):
            await n1.terminate()
        await n1.kill()

    simulate(test)


class HoldsLast(Counter):
    """Counter that holds itself in its last step."""

    async def entry(self, runtime: Any, argv: Any) -> int:
        try:
            return await super().entry(runtime, argv)
        except asyncio.CancelledError:
            runtime.hold()
            return 0


@pytest.mark.parametrize("resumed", [True, False])
def test_one_that_stops_in_its_last_step_ends_when_it_goes_on(resumed: bool) -> None:
    async def test(_: SimCluster, n1: Any, n2: Node) -> None:
        ending = asyncio.create_task(n1.terminate())
        await asyncio.sleep(3.0)
        assert (await n1.process()).state is ProcessState.STOPPED
        assert n1.exit_code is None
        if not resumed:
            with pytest.raises(NodeError, match="did not end within 15 s"):
                await ending
        await n1.resume()
        await asyncio.sleep(0.1)
        assert (await n1.process()).state is ProcessState.DEAD
        assert n1.exit_code == 0
        if resumed:
            await ending

    simulate(test, HoldsLast())


def test_a_rejected_connection_is_refused_at_once_and_an_established_one_breaks() -> None:
    async def test(_: SimCluster, n1: Any, n2: Any) -> None:
        ended: list[str] = []

        async def talk() -> None:
            reader, writer = await asyncio.open_connection(n1.address, PORT)
            try:
                while True:
                    writer.write(b"add\n")
                    await reader.readline()
                    await asyncio.sleep(0.1)
            except ConnectionError as error:
                ended.append(type(error).__name__)
            finally:
                writer.close()

        task = n2._process.spawn(talk(), "talk")
        await asyncio.sleep(1)
        await n1.reject_from([n2])
        await n2.reject_from([n1])
        cut = now()
        await task
        assert ended == ["ConnectionResetError"]
        assert now() - cut < 0.3
        for near, far in ((n1, n2), (n2, n1)):
            what, seconds = await from_node(near, far)
            assert (what, seconds < 0.01) == ("refused", True)
        assert (await n1.dropped())["n2"] > 1
        assert await ask(n1, "members") == "n1 n2", "the harness is never cut off"
        await n1.accept_all()
        await n2.accept_all()
        assert (await from_node(n2, n1))[0] == "open"

    simulate(test)


def test_a_drop_goes_before_a_reject_on_the_same_link() -> None:
    async def test(_: SimCluster, n1: Any, n2: Any) -> None:
        await n1.drop_from([n2])
        await n1.reject_from([n2])
        assert (await from_node(n2, n1))[0] == "silence"

    simulate(test)


def test_a_frozen_machine_acknowledges_nothing_and_goes_on_where_it_was() -> None:
    async def test(_: SimCluster, n1: Any, n2: Any) -> None:
        assert [await ask(n1, "add") for _ in range(2)] == ["1", "2"]
        before = await n1.process()
        reader, writer = await asyncio.open_connection(n1.address, PORT)
        assert not await n1.frozen()
        await n1.freeze()
        assert await n1.frozen()
        assert (await from_node(n2, n1))[0] == "silence"
        writer.write(b"add\n")
        await asyncio.sleep(1)
        for call in (n1.process, n1.kill, n1.start, n1.stop, n1.resume, n1.dropped, n1.terminate, n1.freeze):
            with pytest.raises(NodeError, match="n1 is frozen; thaw it first"):
                await call()
        assert "n1" not in (await ask(n2, "members")).split(), "its session has expired meanwhile"
        await n1.thaw()
        assert await n1.process() == before
        assert await reader.readline() == b"3\n", "sent again once it answers"
        writer.close()
        await n1.thaw()

    simulate(test)


def test_a_stopped_process_is_still_stopped_after_a_freeze_and_rules_stay() -> None:
    async def test(_: SimCluster, n1: Any, n2: Any) -> None:
        await n1.drop_from([n2])
        await n1.stop()
        await n1.freeze()
        await n1.thaw()
        assert (await n1.process()).state is ProcessState.STOPPED
        assert list(await n1.dropped()) == ["n2"]
        await n1.resume()
        await n1.accept_all()
        assert (await from_node(n2, n1))[0] == "open"

    simulate(test)


def test_a_cluster_with_a_frozen_machine_can_be_closed() -> None:
    async def test(_: SimCluster, n1: Any, n2: Any) -> None:
        await n1.freeze()

    simulate(test)


def test_files_of_a_dead_process_are_damaged_durably() -> None:
    async def test(_: SimCluster, n1: Any, n2: Node) -> None:
        await n1.write_file("/data/t-0/00.log", b"0123456789")
        await n1.write_file("/data/t-1/00.log", b"")
        with pytest.raises(NodeError, match="kill it first"):
            await n1.write_range("/data/t-0/00.log", 0, b"x")
        with pytest.raises(NodeError, match="kill it first"):
            await n1.truncate_file("/data/t-0/00.log", 0)
        await n1.kill()
        assert await n1.find_files("/data/*/*.log") == {"/data/t-0/00.log": 10, "/data/t-1/00.log": 0}
        assert await n1.find_files("/data/*") == {}, "a star stays within one folder"
        await n1.write_range("/data/t-0/00.log", 3, b"xyz")
        await n1.write_range("/data/t-0/00.log", 10, b"tail")
        assert await n1.read_range("/data/t-0/00.log", 9, 100) == b"9tail"
        await n1.truncate_file("/data/t-0/00.log", 5)
        await n1.cut_power()
        assert await n1.read_file("/data/t-0/00.log") == b"012xy"
        with pytest.raises(NodeError, match="none at 9"):
            await n1.write_range("/data/t-0/00.log", 9, b"x")
        with pytest.raises(FileNotFoundError):
            await n1.read_range("/data/none", 0, 1)

    simulate(test)


def test_a_process_that_ends_of_what_its_disk_rejects_has_a_reason() -> None:
    async def test(cluster: SimCluster, node: Any, other: Any) -> None:
        await node.kill()
        await node.break_disk((DiskChange.FSYNC,), 1, 1)
        await node.start()
        await asyncio.sleep(1.0)
        (crash,) = cluster.crashes
        assert (await node.process()).state is ProcessState.DEAD
        assert crash.expected, "it may"
        assert "Input/output error" in crash.traceback
        assert (await node.read_disk_errors()).errors == 1
        await node.start()
        await asyncio.sleep(1.0)
        assert await ask(node, "add") == "1"

    simulate(test)


def test_a_process_ends_just_before_a_change_to_its_disk(caplog: pytest.LogCaptureFixture) -> None:
    """The counter writes its number beside, and renames it."""

    async def test(_: SimCluster, node: Any, other: Any) -> None:
        assert await ask(node, "add") == "1"
        await node.break_disk((DiskChange.NAME, DiskChange.CUT), 0, 0)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask(node, "add")
        assert (await node.process()).state is ProcessState.DEAD
        assert (await node.read_disk_errors()).ends == 1
        assert await node.read_file("/var/counter/n") == b"1"
        await node.start()
        await asyncio.sleep(4.0)
        assert await ask(node, "add") == "2", "its next process has its disk as it was"

    simulate(test)
    assert not caplog.records, "the step in which it ended leaves nothing behind"
