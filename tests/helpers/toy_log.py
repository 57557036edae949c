"""A log of one node, small enough to read at a glance: what the application's own tests drive.

A TCP server answers JSON lines; every append is fsynced before it is acknowledged. With the defect ``forgetful`` it
acknowledges every fifth message set without keeping it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.cluster.node import Cluster, Node
from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.workloads.broker import log_operations

PORT = 7000


@dataclass(frozen=True)
class ToySystem:
    """Satisfies ``assay.cluster.system.System``; ``broken`` never becomes ready."""

    broken: bool = False
    name: str = "toy"
    roles: Sequence[str] = ("broker",)
    defects: Sequence[str] = ("forgetful",)
    source: Sequence[str] = ()
    defect: str | None = None

    def with_defect(self, name: str) -> ToySystem:
        return replace(self, defect=name)

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return ["toy", node.address, self.defect or "none"]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    def event_log(self, node: Node) -> str:
        return "/var/log/events.jsonl"

    def logs(self, node: Node) -> Sequence[str]:
        return []

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        server = Server(runtime, argv[2])
        listening = await asyncio.start_server(server.serve, argv[1], PORT)
        try:
            server.event("became-leader", key="orders-0", epoch=0)
            await asyncio.Event().wait()
        finally:
            listening.close()
        return 0

    async def ready(self, node: Node) -> bool:
        if self.broken:
            return False
        try:
            _, writer = await asyncio.open_connection(node.address, PORT)
        except OSError:
            return False
        writer.close()
        return True

    async def set_up(self, cluster: Cluster) -> None: ...

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        return cluster.nodes[0] if what == "leader" else None

    def keys(self) -> Sequence[str]:
        return ["orders-0", "orders-1"]


class Server:
    def __init__(self, runtime: Any, defect: str) -> None:
        self.runtime = runtime
        self.defect = defect
        self.file = runtime.storage.open("log")
        self.logs: dict[str, list[int]] = {}
        self.sets = 0
        self.seq = 0
        for line in self.file.read(0, self.file.size).splitlines():
            key, values = json.loads(line)
            self.logs.setdefault(key, []).extend(values)

    def event(self, event: str, **columns: Any) -> None:
        self.seq += 1
        line = {"time": 0.0, "broker": 1, "incarnation": 1, "seq": self.seq, "event": event, "detail": {}, **columns}
        self.runtime.event_log(json.dumps(line))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps(await self.answer(json.loads(line))).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        log = self.logs.setdefault(request["key"], [])
        match request["f"]:
            case "send":
                self.sets += 1
                offset = len(log)
                if self.defect == "forgetful" and self.sets % 5 == 0:
                    return {"offset": offset}
                log.extend(request["values"])
                self.file.append(json.dumps([request["key"], request["values"]]).encode() + b"\n")
                await self.file.fsync()
                return {"offset": offset}
            case "poll":
                begin = request["position"]
                records = [[begin + i, value] for i, value in enumerate(log[begin : begin + 100])]
                return {"records": records, "end": len(log)}
            case _:
                return {"end": len(log)}


class ToyClient:
    """A connection; operations as in ``assay.workloads.broker.log_operations``."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.assignments: dict[str, int] = {}

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        host, _, port = endpoint.address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))

    async def close(self) -> None:
        self.writer.close()

    async def ask(self, **request: Any) -> dict[str, Any]:
        self.writer.write(json.dumps(request).encode() + b"\n")
        line = await self.reader.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def invoke(self, operation: Operation) -> Completion:
        assert operation.key is not None
        try:
            return Completion(Outcome.OK, await self.result(operation.f, operation.key, operation.argument))
        except OSError as error:
            return Completion(Outcome.INFO, error=f"connection: {error}")

    async def result(self, f: str, key: str, argument: Any) -> dict[str, Any]:
        if f == "send":
            return {"offset": (await self.ask(f=f, key=key, values=argument))["offset"]}
        if f == "end":
            return {"offset": (await self.ask(f=f, key=key))["end"], "epoch": 0}
        sought = argument.get("seek", False) or key not in self.positions
        if sought:
            end = (await self.ask(f="end", key=key))["end"]
            self.positions[key] = 0 if argument["start"] == "earliest" else end
            self.assignments[key] = self.assignments.get(key, 0) + 1
        begin = self.positions[key]
        records = (await self.ask(f=f, key=key, position=begin))["records"]
        self.positions[key] = begin + len(records)
        return {
            "begin": begin,
            "records": records,
            "end": self.positions[key],
            "assignment": self.assignments[key],
            "sought": sought,
        }

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return log_operations.effects(completed)
