"""Cluster time per second of wall time: test_log in the simulation, at 50 and at 200 operations per second.

The run has three brokers, replication 3, min.insync.replicas 2, partitions and kills. Only the run itself is timed
(cluster, clients, faults, recording), without check and report. A bare echo over the simulated network in the same
process shows the machine's limit; the last column is the cost of an operation in echoes.

    python benchmarks/simulation.py [--seconds 60] [--rates 50,200] [--seed 1] [--json]
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from assay.cluster.sim.loop import SimLoop
from assay.harness.run.attempt import Attempt
from assay.harness.run.experiment import find_experiment
from assay.harness.run.settings import SIM, Settings
from assay.nemesis.schedule.catalogue import NONE
from assay.workloads.test_log import test_log

from figures import Output, make_parser, names, numbers

ECHO_PAIRS = 20_000
MESSAGE = bytes(64)
WARM_UP = 12.0
"""Seconds of cluster time."""


def run(rate: int, seconds: float, seed: int, faults: Sequence[str]) -> tuple[float, float, int]:
    """Returns (cluster seconds, wall seconds, operations) of the main phase with its drain."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            seed=seed,
            cluster=SIM,
            nemesis=tuple(name for name in faults if name != NONE),
            time_limit=seconds,
            rate=rate,
            store=Path(folder),
        )
        experiment = find_experiment(test_log)
        assert experiment is not None
        attempt = Attempt(experiment, settings, test=f"benchmark-{rate}", command="")
        attempt.set_up()
        try:
            world, trial = attempt._world, attempt._trial
            assert world is not None
            assert trial is not None
            began, virtual = time.perf_counter(), world.loop.time()
            ended = world.loop.run_until_complete(trial.run())
            wall, virtual = time.perf_counter() - began, world.loop.time() - virtual
            assert not ended.notes, ended.notes
            return virtual, wall, trial.tally.operations
        finally:
            attempt.tear_down()


def echo() -> float:
    """Returns pairs per second of a bare request and response over the simulated network."""

    async def talk() -> float:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(len(MESSAGE)):
                writer.write(data)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 9000)
        reader, writer = await asyncio.open_connection("127.0.0.1", 9000)
        began = time.perf_counter()
        for _ in range(ECHO_PAIRS):
            writer.write(MESSAGE)
            await reader.readexactly(len(MESSAGE))
        taken = time.perf_counter() - began
        writer.close()
        server.close()
        await asyncio.sleep(0.1)  # lets the server's end notice the close
        return ECHO_PAIRS / taken

    return _on_a_loop(talk())


def _on_a_loop(coroutine: Coroutine[Any, Any, float]) -> float:
    loop = SimLoop(1)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of the main phase")
    parser.add_argument("--rates", type=numbers, default=[50, 200], help="operations a second, each a run of its own")
    parser.add_argument("--faults", type=names, default=["kill", "partition"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    out = Output(options.json)
    run(options.rates[0], min(WARM_UP, options.seconds), options.seed, options.faults)
    limit = echo()
    out.text(f"bare echo on the simulated network: {limit:,.0f} pairs/s")
    runs = []
    for rate in options.rates:
        virtual, wall, operations = run(rate, options.seconds, options.seed, options.faults)
        echoes = limit * wall / operations
        out.text(
            f"{rate:4} operations/s: {virtual:.1f} s of cluster time in {wall:.2f} s of wall time: "
            f"{virtual / wall:.1f} s/s, {operations / wall:,.0f} operations/s; "
            f"one operation costs as much as {echoes:.0f} echoes"
        )
        runs.append(
            {
                "rate": rate,
                "cluster_seconds": virtual,
                "wall_seconds": wall,
                "operations": operations,
                "echoes_per_operation": echoes,
            }
        )
    out.figures({"echo_pairs_per_second": limit, "runs": runs})


if __name__ == "__main__":
    main()
