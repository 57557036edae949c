"""The smallest system with traffic: all its nodes ping all servers, hold a ZooKeeper session and write files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from assay.cluster.node import Cluster, Node, ProcessState, by_role
from assay.cluster.system import zookeeper_servers
from assay.system_under_test.broker_rpc import ReplicaPlacement

PORT = 7000
HOLD = "/etc/hold"
PING_EVERY = 0.2
ANSWER_WITHIN = 1.0


class PingPong:
    """``cluster`` is given once it is there: who the peers are goes into ``argv``."""

    name = "ping-pong"
    roles: Sequence[str] = ("zookeeper", "broker", "client")
    groups: Sequence[str] = ("members",)
    client_sessions = True
    defects: Sequence[str] = ()
    source: Sequence[str] = ()
    cluster: Cluster
    placed: Sequence[Node] | None = None
    """Whatever it is asked about replicas; it has none."""

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        peers = [peer.address for peer in by_role(self.cluster, "broker") if peer.name != node.name]
        return [node.address, zookeeper_servers(self.cluster), *peers]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    def event_log(self, node: Node) -> str:
        return "/var/log/events.jsonl"

    def logs(self, node: Node) -> Sequence[str]:
        return []

    start_events = ("started", "listening")

    def hold_file(self, node: Node) -> str:
        return HOLD

    def data_folder(self, node: Node) -> str:
        return "/data"

    def data_files(self, node: Node) -> Sequence[str]:
        return ["/data/*/*.log"]

    async def durable_size(self, node: Node, path: str) -> int:
        return 10

    async def replicas_of(self, cluster: Cluster, key: str) -> Sequence[Node] | None:
        return self.placed if self.placed is not None else by_role(cluster, "broker")[:3]

    async def move(self, cluster: Cluster, key: str, nodes: Sequence[Node]) -> str | None:
        self.placed = nodes
        return None

    async def standing(self, cluster: Cluster) -> ReplicaPlacement:
        brokers = by_role(cluster, "broker")
        everyone = (*brokers, *cluster.spares)
        members = [node.index for node in everyone if (await node.process()).state is ProcessState.RUNNING]
        placed = self.placed if self.placed is not None else brokers[:3]
        return ReplicaPlacement(members, {"orders-0": [node.index for node in placed]}, {})

    def moved(self, line: Mapping[str, Any]) -> None:
        return None

    def handed_over(self, line: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
        return (0, {}) if line["event"] == "ended" else None

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        address, zookeepers, *peers = argv
        say(runtime, "started")
        for folder in ("data/a", "data/b", "data/c"):
            runtime.storage.mkdir(folder)
            runtime.storage.open(f"{folder}/1.log").append(b"." * 100)
        zookeeper = runtime.zookeeper(zookeepers, 3.0)
        server = await asyncio.start_server(serve, address, PORT)
        say(runtime, "listening")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(note_for_ever(runtime))
                for peer in peers:
                    tasks.create_task(ping_for_ever(peer))
                await zookeeper.connect(60.0)
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            say(runtime, "ended")
            raise
        finally:
            server.close()  # and no wait for its connections, which the peers keep open
        return 0

    async def ready(self, node: Node) -> bool:
        if node.role == "zookeeper":
            return True
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                reader, writer = await asyncio.open_connection(node.address, PORT)
                try:
                    writer.write(b"ping\n")
                    return await reader.readline() == b"pong\n"
                finally:
                    writer.close()
        except OSError:  # TimeoutError is one
            return False

    async def set_up(self, cluster: Cluster) -> None: ...

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        return by_role(cluster, "broker")[1 if what == "leader" else 2]

    def keys(self) -> Sequence[str]:
        return ["orders-0"]


def say(runtime: Any, event: str) -> None:
    runtime.event_log(f'{{"event": "{event}", "seq": 1, "time": {asyncio.get_running_loop().time()}}}')
    try:
        orders = runtime.read_file(HOLD).decode().splitlines()
    except FileNotFoundError:
        return
    if event in orders:
        runtime.hold()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.readline():
            writer.write(b"pong\n")
            await writer.drain()
    except OSError:
        pass  # the peer is gone
    finally:
        writer.close()


async def note_for_ever(runtime: Any) -> None:
    runtime.storage.mkdir("data/notes")
    file = runtime.storage.open("data/notes/1")
    while True:
        file.append(b"x")
        await file.fsync()
        await asyncio.sleep(5 * PING_EVERY)


async def ping_for_ever(peer: str) -> None:
    while True:
        try:
            async with asyncio.timeout(2 * ANSWER_WITHIN):
                reader, writer = await asyncio.open_connection(peer, PORT)
            try:
                while True:
                    writer.write(b"ping\n")
                    async with asyncio.timeout(2 * ANSWER_WITHIN):
                        if not await reader.readline():
                            break
                    await asyncio.sleep(PING_EVERY)
            finally:
                writer.close()
        except OSError:
            await asyncio.sleep(PING_EVERY)
