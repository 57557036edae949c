"""Speed of the simulation loop: request-response pairs per second of an echo, compared with asyncio on loopback.

Both loops run one program in one process, one after the other, three times each; the best of each counts. Compare the
ratio between machines.

    python benchmarks/simulation_loop.py [--pairs 40000] [--json]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from assay.cluster.sim.loop import SimLoop

from figures import Output, make_parser

MESSAGE = bytes(64)
ROUNDS = 3


async def measure_echo(pairs: int) -> float:
    """Returns pairs per second of a connection with one request in flight at a time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(len(MESSAGE)):
                writer.write(data)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    began = time.perf_counter()
    for _ in range(pairs):
        writer.write(MESSAGE)
        await reader.readexactly(len(MESSAGE))
    taken = time.perf_counter() - began
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0.01)
    return pairs / taken


def measure_best(pairs: int, factory: Callable[[], asyncio.AbstractEventLoop]) -> float:
    """Returns the best of several runs, which was disturbed least."""
    rates = []
    for _ in range(ROUNDS):
        with asyncio.Runner(loop_factory=factory) as runner:
            rates.append(runner.run(measure_echo(pairs)))
    return max(rates)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=40_000)
    options = parser.parse_args()
    out = Output(options.json)
    simulated = measure_best(options.pairs, SimLoop)
    loopback = measure_best(options.pairs // 4, asyncio.new_event_loop)  # fewer, because they take longer
    out.text(f"simulation: {simulated:>9,.0f} pairs/s")
    out.text(f"loopback:   {loopback:>9,.0f} pairs/s")
    out.text(f"ratio: {simulated / loopback:.2f}")
    out.figures(
        {
            "simulated_pairs_per_second": simulated,
            "loopback_pairs_per_second": loopback,
            "ratio": simulated / loopback,
        }
    )


if __name__ == "__main__":
    main()
