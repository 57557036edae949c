"""A small system for the simulated cluster: every node counts on its disk and registers in ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import WatchedEvent

from assay.cluster.node import Cluster, Node
from assay.cluster.system import zookeeper_servers

PORT = 7000
CONFIG = "/etc/counter.json"


class Counter:
    """Speaks lines: ``add`` answers the new count once it is durable, ``members`` the registered nodes, ``crash``."""

    name = "counter"
    roles = ("zookeeper", "broker")
    defects: Sequence[str] = ()
    source: Sequence[str] = ()

    def __init__(self) -> None:
        self.was_set_up = 0

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return ["counter", CONFIG]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        settings = {"name": node.name, "zookeeper": zookeeper_servers(cluster)}
        return {CONFIG: json.dumps(settings).encode()}

    def event_log(self, node: Node) -> str:
        return "/var/log/events.jsonl"

    def logs(self, node: Node) -> Sequence[str]:
        return ()

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        settings = json.loads(runtime.read_file(argv[1]))
        storage = runtime.storage
        storage.mkdir("var/counter")
        await storage.fsync_directory("var")
        await storage.fsync_directory("")
        count = int(storage.read_bytes("var/counter/n")) if storage.exists("var/counter/n") else 0
        zk = runtime.zookeeper(settings["zookeeper"], 2.0)
        zk.add_listener(lambda state: runtime.event_log(json.dumps({"session": state})))
        await zk.connect(5.0)
        runtime.event_log(json.dumps({"started": settings["name"], "draw": runtime.random.random()}))
        stopping = asyncio.Event()
        path = f"/members/{settings['name']}"

        async def register() -> None:
            """Waits for an earlier incarnation's ephemeral to go."""
            gone = asyncio.Event()

            def changed(_: WatchedEvent) -> None:
                gone.set()

            while await zk.exists(path, changed) is not None:
                await gone.wait()
                gone.clear()
            await zk.create(path, ephemeral=True, makepath=True)
            runtime.event_log(json.dumps({"registered": settings["name"]}))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            try:
                while line := (await reader.readline()).decode().strip():
                    if line == "add":
                        count += 1
                        storage.write_bytes("var/counter/n.new", str(count).encode())
                        await storage.fsync("var/counter/n.new")
                        storage.rename("var/counter/n.new", "var/counter/n")
                        await storage.fsync_directory("var/counter")
                        answer = str(count)
                    elif line == "hold":
                        runtime.event_log(json.dumps({"holding": count}))
                        runtime.hold()
                        runtime.event_log(json.dumps({"went on": count}))
                        answer = "held"
                    elif line == "members":
                        answer = " ".join(await zk.get_children("/members"))
                    else:
                        stopping.set()
                        answer = "stopping"
                    writer.write(f"{answer}\n".encode())
            except (ConnectionError, ConnectionLoss):
                pass  # the client is gone, or gets no answer
            finally:
                writer.close()

        await register()
        server = await asyncio.start_server(serve, "0.0.0.0", PORT)
        await stopping.wait()
        server.close()
        if "crash" in argv:
            raise RuntimeError("crashed as asked")
        await zk.close()
        return 3

    async def ready(self, node: Node) -> bool:
        _, writer = await asyncio.open_connection(node.address, PORT)
        writer.close()
        return True

    async def set_up(self, cluster: Cluster) -> None:
        self.was_set_up += 1

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        return None

    def keys(self) -> Sequence[str]:
        return ()


async def ask(node: Node, line: str) -> str:
    """Sends a request on a new connection. Returns an empty answer if the connection ended."""
    reader, writer = await asyncio.open_connection(node.address, PORT)
    try:
        writer.write(f"{line}\n".encode())
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()
