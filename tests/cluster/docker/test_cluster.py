"""Containers do what a node promises: processes, cuts, files, events. Each fault is seen to have happened."""

from __future__ import annotations

import asyncio
import json
import platform
import re
from pathlib import Path
from typing import Any

import pytest

from assay.cluster import zookeeper
from assay.cluster.docker.engine import open_docker, undo_action
from assay.cluster.journal import RunInContainer, read_journal
from assay.cluster.node import CommandResult, Node, NodeError, ProcessState

from helpers.echo_system import PORT, echoes, until

pytestmark = pytest.mark.docker


async def running(node: Node) -> None:
    if (await node.process()).state is ProcessState.DEAD:
        await node.start()
    await until(lambda: echoes(node), f"{node.name} echoes")


async def reaches(source: Any, target: Node) -> bool:
    """From inside ``source``: is there a connection to ``target`` within a second?"""
    try:
        await source.shell(f"timeout 1 bash -c 'echo > /dev/tcp/{target.address}/{PORT}'")
    except NodeError:
        return False
    return True


async def children(node: Any) -> int:
    return len((await node.shell("pgrep -x sleep || true")).split())


def test_nodes_have_stable_names_their_files_and_see_each_other_by_name(live: Any) -> None:
    assert [(node.name, node.role, node.index) for node in live.cluster.nodes] == [
        ("zk1", "zookeeper", 1),
        ("n1", "broker", 1),
        ("n2", "broker", 2),
    ]
    n1, n2 = live.node("n1"), live.node("n2")
    assert live.run(n1.read_file("/etc/echo/peers")).decode().split() == [node.address for node in live.cluster.nodes]
    assert n2.address in live.run(n1.shell("getent hosts n2"))
    assert set(live.cluster.description) >= {"image", "image digest", "kernel", "engine", "base"}


def test_clocks_of_containers_on_this_kernel_are_not_corrected(live: Any) -> None:
    if live.cluster.worker_command is not None:
        pytest.skip("the engine is elsewhere, so its containers may have another kernel")
    if live.cluster.description["kernel"] != platform.release():
        pytest.skip("the engine runs on another kernel")
    assert re.fullmatch(r"engine [+-]0\.\d{3} s \(within 0\.\d{3} s\)", live.cluster.description["clocks"])
    nodes = (*live.cluster.nodes, *live.cluster.spares)
    assert {(node.wall_ahead, node.monotonic_ahead) for node in nodes} == {(0.0, 0.0)}


def test_a_spare_is_a_machine_like_the_others_on_which_nothing_runs_until_it_joins(live: Any) -> None:
    (spare,) = live.cluster.spares
    assert (spare.name, spare.role, spare.index) == ("n3", "broker", 3)
    assert spare not in live.cluster.nodes

    async def body() -> None:
        assert (await spare.process()).state is ProcessState.DEAD
        assert not await reaches(live.node("n1"), spare)
        await running(spare)
        assert await reaches(live.node("n1"), spare)
        await spare.kill()

    live.run(body())


def test_a_real_zookeeper_serves(live: Any) -> None:
    async def body() -> None:
        node = live.node("zk1")
        assert not await zookeeper.is_ready(node)
        await node.start()
        await until(lambda: zookeeper.is_ready(node), "ZooKeeper serves")
        await node.kill()
        assert not await zookeeper.is_ready(node)

    live.run(body())


def test_commands_need_no_network(live: Any) -> None:
    """Commands pass while a node can neither receive nor send a packet, also on a new connection."""

    async def body() -> None:
        node = live.node("n1")
        cut = "iptables -w -I INPUT 1 -j DROP && iptables -w -I OUTPUT 1 -j DROP"
        await node.run(cut, changes=True, undo="iptables -w -D INPUT 1 && iptables -w -D OUTPUT 1")
        try:
            assert not await reaches(node, live.node("n2"))
            assert not await reaches(live.node("n2"), node)
            assert await node.shell("echo here") == "here\n"
            with pytest.raises(NodeError, match="n1"):
                await node.shell("kill $PPID; sleep 5")
            assert await node.shell("echo again") == "again\n"
        finally:
            await node.run("iptables -w -D INPUT 1 && iptables -w -D OUTPUT 1", changes=True)

    live.run(body())


def test_start_kill_and_start_give_two_incarnations_and_leave_no_child(live: Any) -> None:
    async def body() -> None:
        node = live.node("n1")
        assert (await node.process()).state is ProcessState.DEAD
        await running(node)
        first = await node.process()
        assert first.state is ProcessState.RUNNING
        assert await children(node) == 1
        with pytest.raises(NodeError, match=r"n1: .*alive already"):
            await node.start()
        await node.kill()
        assert await node.process() == await node.process()
        assert (await node.process()).state is ProcessState.DEAD
        assert not await echoes(node)
        assert await children(node) == 0
        with pytest.raises(NodeError, match="not running"):
            await node.kill()
        await running(node)
        assert (await node.process()).incarnation != first.incarnation

    live.run(body())


def test_a_stopped_process_accepts_but_does_not_answer_until_resumed(live: Any) -> None:
    async def body() -> None:
        node = live.node("n1")
        await running(node)
        before = await node.process()
        await node.stop()
        assert (await node.process()).state is ProcessState.STOPPED
        assert await reaches(live.node("n2"), node), "the kernel goes on acknowledging"
        assert not await echoes(node)
        await node.resume()
        assert await node.process() == before
        assert await echoes(node, timeout=5)

    live.run(body())


def test_a_stopped_process_can_be_killed(live: Any) -> None:
    async def body() -> None:
        node = live.node("n1")
        await running(node)
        await node.stop()
        await node.kill()
        assert (await node.process()).state is ProcessState.DEAD

    live.run(body())


def test_a_cut_is_one_way_counted_survives_the_process_and_heals(live: Any) -> None:
    async def body() -> None:
        n1, n2 = live.node("n1"), live.node("n2")
        await asyncio.gather(running(n1), running(n2))
        assert await reaches(n2, n1)
        await n1.drop_from([n2, live.node("zk1")])
        before = await n1.dropped()  # the last packets of the connection that was there are counted, too
        assert before.keys() == {"n2", "zk1"}
        assert not await reaches(n2, n1)
        counted = await n1.dropped()
        assert counted["n2"] > before["n2"]
        assert counted["zk1"] == 0
        assert await echoes(n1), "the harness itself is never cut off"
        await n1.kill()
        await running(n1)
        assert not await reaches(n2, n1)
        await n1.accept_all()
        assert await n1.dropped() == {}
        assert await reaches(n2, n1)

    live.run(body())


def test_events_stream_over_a_kill_from_the_first_line(live: Any) -> None:
    async def body() -> None:
        node = live.node("n2")
        if (await node.process()).state is not ProcessState.DEAD:
            await node.kill()
        await node.write_file("/var/lib/echo/events.jsonl", b"")
        await running(node)
        seen: list[dict[str, Any]] = []

        async def follow() -> None:
            async for line in node.events():
                seen.append(json.loads(line))

        async def started(times: int) -> bool:
            return [event["event"] for event in seen].count("listening") == times

        follower = asyncio.create_task(follow())
        await until(lambda: started(1), "the first incarnation's events, written before anybody asked")
        await node.kill()
        await running(node)
        await until(lambda: started(2), "the second incarnation's events")
        assert len({event["pid"] for event in seen}) == 2
        follower.cancel()
        with pytest.raises(asyncio.CancelledError):
            await follower

    live.run(body())


def test_files_go_and_come_back_whole_and_a_missing_one_is_said_to_be_missing(live: Any) -> None:
    async def body() -> None:
        node = live.node("n1")
        data = bytes(range(256)) * 5000
        await node.write_file("/tmp/some/new/folder/file", data)
        assert await node.read_file("/tmp/some/new/folder/file") == data
        await node.write_file("/tmp/some/new/folder/file", b"")
        assert await node.read_file("/tmp/some/new/folder/file") == b""
        with pytest.raises(FileNotFoundError):
            await node.read_file("/tmp/none")

    live.run(body())


def test_a_failed_command_names_node_command_code_and_last_output(live: Any) -> None:
    with pytest.raises(NodeError, match=r"n2: `echo oh no; exit 7`: exit code 7; last output: oh no"):
        live.run(live.node("n2").shell("echo oh no; exit 7"))


def test_a_command_of_the_user_runs_as_root_and_any_end_of_it_is_an_answer(live: Any) -> None:
    async def body() -> None:
        node = live.node("n2")
        assert await node.run("id -un; echo warned >&2; exit 3") == CommandResult(3, "root\n", "warned\n")
        assert await node.run(["printf", "%s|", "a b", "$HOME"]) == CommandResult(0, "a b|$HOME|")
        assert await node.run("cat", stdin=b"in") == CommandResult(0, "in")
        with pytest.raises(NodeError, match="n2"):
            await node.run("exec tail -f /dev/null", timeout=0.5)

    live.run(body())


def test_a_node_has_no_folder_and_no_device_of_this_machine(live: Any) -> None:
    """The engine may be on another machine. Only power loss needs a device (``disk.container_options``)."""
    with open_docker() as client:
        found = [client.containers.get(f"assay-{live.cluster.run_id}-{node.name}").attrs for node in live.cluster.nodes]
    for one in found:
        settings = one["HostConfig"]
        assert not any(settings.get(name) for name in ("Binds", "Mounts", "Devices", "VolumesFrom"))
        assert one["Mounts"] == []


def test_a_change_of_the_user_is_taken_back_by_its_undo_or_else_from_the_journal(live: Any) -> None:
    def noted() -> list[Any]:
        (path,) = (live.state / "journals").glob(f"*{live.cluster.run_id}*.jsonl")
        return [
            one
            for _, one in read_journal(path).actions
            if isinstance(one, RunInContainer) and "/tmp/changed" in str(one)
        ]

    def undo() -> None:
        with open_docker() as client:
            for action in noted():
                assert undo_action(client, action), action

    async def body() -> None:
        node = live.node("n2")
        for take_back in (lambda: node.run("rm -f /tmp/changed"), lambda: asyncio.to_thread(undo)):
            await node.run("touch /tmp/changed", undo="rm -f /tmp/changed")
            assert len(noted()) == 1
            await take_back()
            assert (await node.run("test -e /tmp/changed")).status == 1
        assert [line.partition(" ")[2] for line in node.changes] == [
            "exit status 0: touch /tmp/changed",
            "exit status 0: rm -f /tmp/changed",
            "exit status 0: touch /tmp/changed",
        ]

    live.run(body())


def test_a_broken_connection_is_made_again(live: Any) -> None:
    async def body() -> None:
        node = live.node("n2")
        with pytest.raises(NodeError, match="n2"):
            await node.shell("kill $PPID; sleep 5")
        assert await node.shell("echo back") == "back\n"
        await node.write_file("/tmp/again", b"again")
        assert await node.read_file("/tmp/again") == b"again"

    live.run(body())


def test_logs_are_collected_per_node(live: Any, tmp_path: Path) -> None:
    async def body() -> list[str]:
        await running(live.node("n1"))
        return list(await live.cluster.collect_logs(tmp_path))

    missing = live.run(body())
    assert "echo of n1" in (tmp_path / "n1" / "process.log").read_text()
    assert "listening" in (tmp_path / "n1" / "events.jsonl").read_text()
    assert (tmp_path / "n1" / "peers").exists()
    assert not [line for line in missing if "n1" in line]
