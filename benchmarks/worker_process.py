"""Processor time of an operation's way to a worker process and back, without Docker and without a system.

    python benchmarks/worker_process.py [--operations 5000] [--clients 6] [--rounds 10] [--delay 0] [--json]

Clients in a worker process answer each operation after ``--delay`` seconds. The carriers are the standard streams of
the process, and a shared Unix socket. The figures are microseconds per operation: processor time of the harness and of
the worker process, and wall time. Each figure is the lowest of all rounds, because other processes only make it higher.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from assay.cluster.ssh.command_stream import SharedSocket, StreamCommand, listen_at
from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completion, Operation, Outcome
from assay.harness.remote import RemoteClient
from assay.harness.remote.network_worker import NetworkWorker
from assay.harness.remote.server import make_worker_command

from figures import Output, make_parser

FIGURES: Final = ("harness", "worker", "wall")
OPERATION: Final = Operation("send", "orders-3", [981, 982, 983])
RESULT: Final = {"timestamp": 1796071944676, "offset": 214, "node": "n1"}
CLIENT: Final = "worker_process:Answering"
DELAY: Final = "ASSAY_BENCHMARK_DELAY"


class Answering:
    """Client that gives every operation the same result."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self._delay = float(os.environ[DELAY])

    async def invoke(self, operation: Operation) -> Completion:
        if self._delay:
            await asyncio.sleep(self._delay)
        return Completion(Outcome.OK, RESULT)

    async def close(self) -> None:
        """Does nothing."""


def read_processor_seconds(process: int) -> float:
    """Returns the processor time of a process's main thread."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


async def measure(options: Any, socket: SharedSocket | None) -> dict[str, float]:
    """Returns the figures of one carrier."""
    argv = (sys.executable, *make_worker_command(CLIENT, None, streams=True)[1:])
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, DELAY: str(options.delay)}
    worker = NetworkWorker(StreamCommand(argv, environment, shared_socket=socket))

    async def connect(endpoint: Endpoint) -> Any:
        return worker.open_connection()

    async def invoke(client: RemoteClient, number: int) -> None:
        for _ in range(number):
            await client.invoke(OPERATION)

    try:
        await worker.start()
        clients = [RemoteClient(Answering, 5.0, connect) for _ in range(options.clients)]
        for client in clients:
            await client.open(Endpoint("n1", "10.0.0.1:1", ()), None)
        each = max(1, options.operations // options.clients)
        assert worker.process_id is not None
        processes, rounds = (os.getpid(), worker.process_id), []
        for _ in range(options.rounds):
            before = [*map(read_processor_seconds, processes), time.perf_counter()]
            await asyncio.gather(*(invoke(client, each) for client in clients))
            after = [*map(read_processor_seconds, processes), time.perf_counter()]
            rounds.append([(y - x) / (each * len(clients)) * 1e6 for x, y in zip(before, after, strict=True)])
        return {name: round(min(values), 1) for name, values in zip(FIGURES, zip(*rounds, strict=True), strict=True)}
    finally:
        await worker.close()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--operations", type=int, default=5000, help="of each round (5000)")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="of each operation (0)")
    options = parser.parse_args()
    out, found = Output(options.json), {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "socket"
        found["streams"] = asyncio.run(measure(options, None))
        found["socket"] = asyncio.run(measure(options, SharedSocket(listen_at(file), str(file))))
    for carrier, figures in found.items():
        out.text(f"{carrier}: " + ", ".join(f"{name} {value:.1f} µs" for name, value in figures.items()))
    out.figures(found)


if __name__ == "__main__":
    main()
