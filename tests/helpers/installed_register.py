"""A register on one node, and its test, as a user writes them: nothing of the project is imported but ``assay``.

``tests/test_wheel.py`` copies this file into a project of its own, next to folders that are named like ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from assay import (
    Cluster,
    Completed,
    Completion,
    Context,
    Contract,
    Effect,
    Endpoint,
    Generator,
    Node,
    Operation,
    Outcome,
    Phase,
    Settings,
    System,
    experiment,
    unfold,
)

PORT = 7000


class Register(System):
    """A process that keeps a number; every write is answered with its version."""

    name, roles = "register", ("server",)

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return ["register", node.address]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    async def ready(self, node: Node) -> bool:
        _, writer = await asyncio.open_connection(node.address, PORT)
        writer.close()
        return True

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        state = [0, 0]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                if line != b"\n":
                    state[:] = [int(line), state[1] + 1]
                writer.write(f"{state[0]} {state[1]}\n".encode())
            writer.close()

        server = await asyncio.start_server(serve, argv[1], PORT)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
        return 0

    def keys(self) -> Sequence[str]:
        return ["r"]


class RegisterClient:
    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        host, _, port = endpoint.all[0].rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))

    async def invoke(self, operation: Operation) -> Completion:
        try:
            self.writer.write(b"\n" if operation.f == "read" else f"{operation.argument}\n".encode())
            value, version = (await self.reader.readline()).split()
        except (OSError, ValueError) as error:
            return Completion(Outcome.INFO, error=type(error).__name__)
        return Completion(Outcome.OK, {"value": int(value) or None, "version": int(version)})

    async def close(self) -> None:
        self.writer.close()

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        operation, result = completed.operation, completed.completion.result
        kind = f"register-{operation.f}"
        if result is None:
            return [Effect(kind, "r", value=operation.argument)]
        return [Effect(kind, "r", result["version"], result["value"])]


def step(value: int, context: Context) -> tuple[Operation, int]:
    f = context.choose(("read", "write"), salt=1)
    return Operation(f, "r", None if f == "read" else value), value + 1


@experiment(system=Register(), client=RegisterClient, contract=Contract(may_stall=("stop",)))
def test_register(settings: Settings) -> Generator:
    """A read sees the latest write."""
    return unfold(step, 1) | [Operation("read", "r", phase=Phase.DRAIN)]
