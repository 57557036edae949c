"""ZooKeeper as a node's process, whatever its role is called, and who leads an ensemble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.cluster import zookeeper
from assay.cluster.system import DeploymentError, System


@dataclass
class FakeNode:
    name: str
    role: str
    index: int
    address: str


@dataclass
class FakeCluster:
    nodes: list[Any] = field(default_factory=list)


def ensemble(role: str) -> FakeCluster:
    return FakeCluster([FakeNode(f"{role}{index}", role, index, f"10.0.0.{index}") for index in (1, 2, 3)])


def test_an_ensemble_is_the_nodes_of_one_role_whatever_it_is_called() -> None:
    both = FakeCluster([*ensemble("zookeeper").nodes, *ensemble("server").nodes])
    both.nodes[3].address = "10.0.0.9"
    text = zookeeper.server_files(both.nodes[3], both)[zookeeper.CONFIG].decode()  # type: ignore[arg-type]
    members = [line for line in text.splitlines() if line.startswith("server.")]
    assert members == ["server.1=10.0.0.9:2888:3888", "server.2=10.0.0.2:2888:3888", "server.3=10.0.0.3:2888:3888"]


def test_an_ipv6_address_stands_in_brackets_before_a_port_and_is_found_as_it_was_given() -> None:
    text = zookeeper.render_configuration({1: "fd00::1", 2: "fd00::2"})
    assert "server.1=[fd00::1]:2888:3888\n" in text

    async def ask() -> dict[int, tuple[str, float]]:
        said = " /{}:4{}[1](queued=0,recved=1,sent=1,sid=0x{},lop=PING,est=1,to=4000,lcxid=0x0)\n"
        lines = [("[fd00:0:0:0:0:0:0:b]", 1, 1), ("fd00:0:0:0:0:0:0:c", 2, 2), ("10.0.0.3", 3, 3)]
        async with answering("127.98.0.1", "".join(said.format(*line) for line in lines)):
            return await zookeeper.read_connected_sessions([FakeNode("zk1", "zookeeper", 1, "127.98.0.1")])  # type: ignore[list-item]

    assert asyncio.run(ask()) == {1: ("fd00::b", 4.0), 2: ("fd00::c", 4.0), 3: ("10.0.0.3", 4.0)}


PIECES = "|"


@asynccontextmanager
async def answering(host: str, text: str) -> AsyncIterator[None]:
    """A server that answers any four letters with ``text``, in pieces where it says so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        for piece in text.split(PIECES):
            writer.write(piece.encode())
            await writer.drain()
            await asyncio.sleep(0.05 if PIECES in text else 0)
        writer.close()

    server = await asyncio.start_server(serve, host, zookeeper.ZOOKEEPER_PORT)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("modes", "leads"),
    [
        (("follower", "leader"), "server2"),
        (("leader", "leader"), None),
        (("follower", "follower"), None),
        (("leader", None), "server1"),
    ],
)
def test_the_leader_is_the_only_one_that_says_so(modes: tuple[str | None, ...], leads: str | None) -> None:
    async def ask() -> str | None:
        nodes = [FakeNode(f"server{n}", "server", n, f"127.98.0.{n}") for n in (1, 2)]
        said = [f"Zxid: 0x1\nMode: {mode}\n" if mode else "This ZooKeeper instance is not serving" for mode in modes]
        async with answering(nodes[0].address, said[0]), answering(nodes[1].address, said[1]):
            found = await zookeeper.find_leader(nodes)  # type: ignore[arg-type]
        return None if found is None else found.name

    assert asyncio.run(ask()) == leads


def test_a_system_that_says_no_more_than_it_must_cannot_be_simulated_and_says_so() -> None:
    class Least(System):
        name, roles = "least", ("server",)

    least: Any = Least()
    assert (least.defects, least.source, least.keys(), least.logs(None)) == ((), (), (), ())
    assert least.event_log(None) is None
    with pytest.raises(DeploymentError, match="least cannot be simulated"):
        asyncio.run(least.entry(None, []))


CONS = """ /10.0.0.1:41234[1](queued=0,recved=25,sent=25,sid=0x1000437023d0002,lop=PING,est=1763763600000,to=3000)
 /10.0.0.7:55222[0](queued=0,recved=1,sent=0)
 /10.0.0.2:41236[1](queued=0,recved=5,sent=5,sid=0x1000437023d0003,lop=GETD,est=1763763600001,to=10000,lcxid=0x2)

"""
STANDALONE = """SessionTracker dump:
Session Sets (2)/(2):
1 expire at Sat Nov 21 22:27:40 UTC 2026:
\t0x1000437023d0002
1 expire at Sat Nov 21 22:27:42 UTC 2026:
\t0x1000437023d0003
ephemeral nodes dump:
Sessions with Ephemerals (1):
0x1000437023d0003:
\t/brokers/ids/2
Connections dump:
Connections Sets (1)/(1):
1 expire at Sat Nov 21 22:27:43 UTC 2026:
\tip: /10.0.0.9:41234 sessionId: 0x1000437023d0009
"""
FOLLOWER = """SessionTracker dump:
Global Sessions(1):
0x1000437023d0004\t3000ms
ephemeral nodes dump:
Sessions with Ephemerals (0):
Connections dump:
"""


def test_which_sessions_there_are_and_whose() -> None:
    async def ask(*answers: str) -> tuple[object, object]:
        nodes = [FakeNode(f"zk{n}", "zookeeper", n, f"127.98.0.{n}") for n in (1, 2)]
        async with answering(nodes[0].address, answers[0]), answering(nodes[1].address, answers[1]):
            return await zookeeper.read_connected_sessions(nodes), await zookeeper.read_sessions(nodes)  # type: ignore[arg-type]

    first, second, third = (0x1000437023D0000 + number for number in (2, 3, 4))
    held, _ = asyncio.run(ask(CONS, ""))
    assert held == {first: ("10.0.0.1", 3.0), second: ("10.0.0.2", 10.0)}
    assert asyncio.run(ask(STANDALONE, FOLLOWER))[1] == {first, second, third}, (
        "all that any of them knows, no connection"
    )
    not_serving = "This ZooKeeper instance is not currently serving requests\n"
    assert asyncio.run(ask(not_serving, "")) == ({}, None), "no one says that there are none"


@pytest.mark.slow
def test_an_answer_that_comes_in_pieces_is_read_to_its_end_and_half_of_one_says_nothing() -> None:
    """ZooKeeper writes 2048 characters at a time."""

    async def ask(answer: str) -> tuple[object, object]:
        node: Any = FakeNode("zk1", "zookeeper", 1, "127.98.0.1")
        async with answering(node.address, answer):
            return await zookeeper.read_connected_sessions([node]), await zookeeper.read_sessions([node])

    first, second = (0x1000437023D0000 + number for number in (2, 3))
    assert len(asyncio.run(ask(CONS.replace("sent=0)", f"sent=0{PIECES})")))[0]) == 2  # type: ignore[arg-type]
    assert asyncio.run(ask(STANDALONE.replace("1 expire", f"{PIECES}1 expire")))[1] == {first, second}
    assert asyncio.run(ask(STANDALONE.partition("ephemeral")[0]))[1] is None, "it was killed meanwhile"
