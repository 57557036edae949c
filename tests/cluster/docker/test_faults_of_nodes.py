"""Tests what faults need of a container beyond kill, stop and cut: terminate, reject, freeze, damage."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from assay.cluster.docker import cluster as cluster_module
from assay.cluster.docker.engine import DockerEngineError, open_docker, undo_action
from assay.cluster.journal import RunInContainer, Unpause, read_journal
from assay.cluster.node import Node, NodeError, ProcessState, Traffic

from helpers.echo_system import EVENTS, PORT, echoes, until

pytestmark = pytest.mark.docker


async def running(node: Node) -> None:
    if (await node.process()).state is ProcessState.DEAD:
        await node.start()
    await until(lambda: echoes(node), f"{node.name} echoes")


async def connecting(source: Any, target: Node) -> str:
    """Returns what a connection from ``source`` to ``target`` comes to within a second."""
    command = f"timeout 1 bash -c 'echo > /dev/tcp/{target.address}/{PORT}' 2>&1; echo code=$?"
    said: str = await source.shell(command)
    if "code=0" in said:
        return "open"
    return "refused" if "refused" in said else "silence"


def pending(live: Any) -> list[Any]:
    """Returns what the undo journal would take back now, containers and network apart."""
    (path,) = (live.state / "journals").glob("*.jsonl")
    return [action for _, action in read_journal(path).actions if isinstance(action, RunInContainer | Unpause)]


def test_a_process_ends_on_sigterm_and_one_that_is_gone_cannot_be_asked(live: Any) -> None:
    async def body() -> None:
        node = live.node("n1")
        await running(node)
        await node.terminate()
        assert (await node.process()).state is ProcessState.DEAD
        with pytest.raises(NodeError, match="not running"):
            await node.terminate()

    live.run(body())


def test_a_rejected_peer_is_refused_at_once_and_the_packets_are_counted(live: Any) -> None:
    async def body() -> None:
        n1, n2 = live.node("n1"), live.node("n2")
        await asyncio.gather(running(n1), running(n2))
        await n1.reject_from([n2])
        await n2.reject_from([n1])
        assert await connecting(n2, n1) == "refused"
        assert await connecting(n1, n2) == "refused", "resets pass, although both reject"
        assert (await n1.dropped())["n2"] > 0
        await n1.accept_all()
        await n2.accept_all()
        assert await connecting(n2, n1) == "open"

    live.run(body())


def test_an_established_connection_breaks_at_once_behind_a_rejecting_rule(live: Any) -> None:
    async def body() -> None:
        n1, n2 = live.node("n1"), live.node("n2")
        await running(n1)
        script = (
            f"import os,socket,time\ns=socket.create_connection(('{n1.address}',{PORT}))\ns.settimeout(3)\n"
            "print('up',flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)\n"
            "try:\n for _ in range(2): s.sendall(b'x'); s.recv(1)\n print('alive')\n"
            "except OSError as e: print(type(e).__name__)\n"
        )
        await n2.write_file("/tmp/talk.py", script.encode())
        # It reads and writes files, so that no pipe of it holds the SSH channel open.
        await n2.shell("rm -f /tmp/go /tmp/said; python3 /tmp/talk.py </dev/null >/tmp/said 2>&1 &")
        await n2.shell("until grep -q up /tmp/said; do sleep 0.02; done")
        await n1.reject_from([n2])
        await n2.shell("touch /tmp/go; for i in $(seq 100); do grep -q Error /tmp/said && break; sleep 0.02; done")
        assert b"ConnectionResetError" in await n2.read_file("/tmp/said")
        await n1.accept_all()

    live.run(body())


def test_a_frozen_machine_acknowledges_nothing_and_goes_on_where_it_was(live: Any) -> None:
    async def body() -> None:
        n1, n2 = live.node("n1"), live.node("n2")
        await running(n1)
        before = await n1.process()
        assert not await n1.frozen()
        await n1.freeze()
        try:
            assert await n1.frozen()
            assert len(pending(live)) == 2, "unpause and unsilence are in the journal"
            assert await connecting(n2, n1) == "silence", "a stopped process's kernel would answer"
            assert not await echoes(n1)
            with pytest.raises(NodeError, match="n1 is frozen; thaw it first"):
                await n1.process()
        finally:
            await n1.thaw()
        assert await n1.process() == before
        assert await connecting(n2, n1) == "open"
        assert await echoes(n1, timeout=5)
        assert pending(live) == []
        await n1.thaw()

    live.run(body())


def test_a_trial_says_that_a_machine_can_be_frozen_and_leaves_it_running(live: Any) -> None:
    async def body() -> None:
        n1 = live.node("n1")
        await running(n1)
        before = await n1.process()
        assert await n1.freezing_unavailable() is None
        assert not await n1.frozen()
        assert await n1.process() == before
        assert pending(live) == []

    live.run(body())


def test_an_engine_whose_containers_do_not_reach_each_other_is_named_with_the_remedy(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        near, far = live.cluster._all_nodes[:2]
        await live.cluster._require_links()
        await near.drop_from([far])
        try:
            with pytest.raises(
                DockerEngineError, match=f"{near.name} does not reach {far.name}.*iptables -I DOCKER-USER"
            ):
                await live.cluster._require_links()
        finally:
            await near.accept_all()

    monkeypatch.setattr(cluster_module, "REACH_SECONDS", 0.5)
    live.run(body())


def test_a_machine_left_frozen_is_thawed_from_its_journal(live: Any) -> None:
    async def body() -> None:
        n1, n2 = live.node("n1"), live.node("n2")
        await running(n1)
        await n1.freeze()

        def undo() -> None:
            with open_docker() as client:
                for action in pending(live):
                    assert undo_action(client, action), action

        await asyncio.to_thread(undo)
        assert not await n1.frozen()
        assert await connecting(n2, n1) == "open"
        await n1.thaw()

    live.run(body())


TALK = """import os,socket,sys,time
s=socket.create_connection((sys.argv[1],int(sys.argv[2])))
s.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1)
took=[]
for _ in range(20):
    began=time.monotonic(); s.sendall(b"x"*100); got=0
    while got<100: got+=len(s.recv(100))
    took.append(time.monotonic()-began)
print(*took)
"""


@pytest.mark.parametrize(
    ("traffic", "counted", "least"),
    [
        (Traffic(delay=0.1), "late", 0.05),
        (Traffic(loss=0.3), "lost", 0.0),
        (Traffic(copies=0.5), "doubled", 0.0),
        (Traffic(delay=0.1, late=0.5, overtaking=True), "late", 0.0),
        (Traffic(rate=5000.0), "late", 0.02),
    ],
    ids=["late", "lost", "doubled", "overtaken", "rationed"],
)
def test_packets_suffer_until_they_go_as_before(live: Any, traffic: Traffic, counted: str, least: float) -> None:
    async def body() -> None:
        n1, n2 = live.node("n1"), live.node("n2")
        await running(n1)
        await n2.write_file("/tmp/talk.py", TALK.encode())

        async def talk() -> list[float]:
            said: str = await n2.shell(f"timeout 20 python3 /tmp/talk.py {n1.address} {PORT}")
            return [float(word) for word in said.split()]

        assert await n1.shaping_unavailable() is None
        assert await n1.shaped() == {}
        await n1.shape(traffic, [n2])
        try:
            assert len(pending(live)) == 1, "how to undo it is in the journal"
            took = await talk()
            counts = await n1.shaped()
            assert counts[counted] > 0
            assert counts["seen"] >= 20
            assert min(took) >= least
        finally:
            await n1.shape(None)
        assert await n1.shaped() == {}
        assert pending(live) == []
        left = await n1.shell("iptables -w -S; ip6tables -w -S; ps ax")
        assert "NFQUEUE" not in left
        assert "ASSAY-PACKETS" not in left, "no rule and no program is in the way of a packet"

        async def as_fast_as_never_before() -> bool:
            """The fastest of many echoes: a busy machine delays some of them, and the fault delayed all."""
            return min(await talk()) < (least or float("inf"))

        await until(as_fast_as_never_before, "an echo is faster than the fault let any be", seconds=50)

    live.run(body())


def test_packets_of_no_interest_pass_and_a_journal_that_is_replayed_lets_all_pass(live: Any) -> None:
    async def body() -> None:
        n1, n2 = live.node("n1"), live.node("n2")
        await running(n1)
        await n1.shape(Traffic(loss=1.0), [live.node("zk1")])
        assert await connecting(n2, n1) == "open"
        await n1.shape(Traffic(loss=1.0))
        assert await connecting(n2, n1) == "silence"

        def undo() -> None:
            with open_docker() as client:
                for action in pending(live):
                    assert undo_action(client, action), action

        await asyncio.to_thread(undo)
        assert await connecting(n2, n1) == "open"
        await n1.shape(None)

    live.run(body())


def test_files_of_a_dead_process_are_found_read_damaged_and_cut(live: Any) -> None:
    async def body() -> None:
        node = live.node("n2")
        await running(node)
        await node.write_file("/var/lib/echo/t-0/00.log", b"0123456789")
        await node.write_file("/var/lib/echo/t-1/00.log", b"")
        with pytest.raises(NodeError, match="kill it first"):
            await node.write_range("/var/lib/echo/t-0/00.log", 0, b"x")
        await node.kill()
        assert await node.find_files("/var/lib/echo/t-*/*.log") == {
            "/var/lib/echo/t-0/00.log": 10,
            "/var/lib/echo/t-1/00.log": 0,
        }
        assert await node.find_files("/var/lib/echo/none/*") == {}
        assert await node.find_files(EVENTS)
        await node.write_range("/var/lib/echo/t-0/00.log", 3, b"xyz")
        await node.write_range("/var/lib/echo/t-0/00.log", 10, b"tail")
        assert await node.read_file("/var/lib/echo/t-0/00.log") == b"012xyz6789tail"
        assert await node.read_range("/var/lib/echo/t-0/00.log", 9, 100) == b"9tail"
        await node.truncate_file("/var/lib/echo/t-0/00.log", 5)
        assert await node.read_file("/var/lib/echo/t-0/00.log") == b"012xy"
        with pytest.raises(NodeError, match="no byte at 9"):
            await node.write_range("/var/lib/echo/t-0/00.log", 9, b"x")
        with pytest.raises(FileNotFoundError):
            await node.read_range("/var/lib/echo/none", 0, 1)
        with pytest.raises(ValueError, match="not a pattern"):
            await node.find_files("/tmp/$(reboot)")

    live.run(body())


def test_data_are_copied_removed_and_put_back(live: Any) -> None:
    folder = "/var/lib/echo-data"
    old = {f"{folder}/a/1": b"one", f"{folder}/two words": b"two"}

    async def body() -> None:
        node = live.node("n2")
        await running(node)
        assert await node.contents(folder) == {}
        for path, content in old.items():
            await node.write_file(path, content)
        before = await node.save(folder)
        assert (await node.process()).state is ProcessState.RUNNING
        assert list(before) == sorted(old)
        assert await node.contents(folder) == before
        await node.write_file(f"{folder}/a/1", b"another")
        await node.write_file(f"{folder}/b/3", b"three")
        for call in (node.remove_contents, node.restore):
            with pytest.raises(NodeError, match="kill it first"):
                await call(folder)
        await node.kill()
        after = await node.contents(folder)
        assert {path for path in after if after[path] != before.get(path)} == {f"{folder}/a/1", f"{folder}/b/3"}
        await node.remove_contents(folder)
        assert await node.contents(folder) == {}
        await node.restore(folder)
        assert await node.contents(folder) == before
        assert {path: await node.read_file(path) for path in before} == old
        assert pending(live), "a copy that is left by a crash is taken away"
        await node.discard(folder)
        assert pending(live) == []
        await node.discard(folder)
        with pytest.raises(NodeError):
            await node.restore(folder)
        assert await node.contents(folder) == before, "without a copy nothing is removed"

    live.run(body())


def test_a_frozen_machine_does_not_keep_its_cluster_from_being_taken_away(live: Any) -> None:
    """The last of the module: the fixture's own end fails when a container or an undo is left."""
    live.run(live.node("n2").freeze())
    live.run(live.cluster.close())
    assert not list((live.state / "journals").glob("*.jsonl"))
