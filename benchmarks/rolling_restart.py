"""Latency of sends during a rolling restart of all brokers, in the simulation or in Docker.

1. There are three brokers. Producers send to each partition without a pause, each message until all in-sync replicas
   have acknowledged it.
2. Each broker is stopped cleanly and restarted. The next one is stopped as soon as it serves.
3. For comparison, the run is repeated with brokers that stop without handing over their leadership.

Times are in milliseconds, virtual ones in the simulation.

If a send reaches a former leader, the client must find the new leader: it waits for its back-off, asks a broker for
metadata, and sends again. The run also measures such metadata requests, without the back-off. The longest one is the
"refresh" of the figures.

    python benchmarks/rolling_restart.py [--cluster sim] [--seeds 1,2,3,4,5] [--partitions 6] [--producers 4] [--json]
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from dataclasses import asdict, dataclass, field

from assay.cluster.deploy import start_system
from assay.cluster.node import by_role
from assay.harness.run.environments import World, open_world
from assay.harness.run.settings import DOCKER, SIM, Settings
from assay.nemesis.faults.restart import wait_until_serving
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.errors import SendFailed
from assay.system_under_test.client.metadata import BACK_OFF, Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.client.producer import Producer
from assay.system_under_test.deployment import Broker

from figures import Output, make_parser, numbers

PRODUCERS = 4
"""Per partition."""
PATIENCE = 30.0
SETTLED = 3.0
"""Seconds before the first restart and after the last one."""
PAUSE = 0.002
POLL_SECONDS = 0.02
MS = 1000


@dataclass
class Measured:
    """Milliseconds of each send, metadata request and stop during the restarts."""

    sends: list[float] = field(default_factory=list)
    refreshes: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)


async def measure(world: World, system: Broker, per_partition: int) -> Measured:
    cluster = await world.open(lambda _: None)
    await start_system(system, cluster, 60.0, lambda _: None)
    brokers = by_role(cluster, "broker")
    bootstrap = [f"{node.address}:9092" for node in brokers]
    loop, runtime, measured = asyncio.get_running_loop(), world.runtime(), Measured()
    config = ProducerConfig(timeout=PATIENCE, retries=1000, repeat_unknown=True, request_timeout=2.0)
    producers = [Producer(bootstrap, config, runtime=runtime) for _ in range(per_partition)]
    pool = Pool("looking")
    metadata = Metadata(bootstrap, pool, runtime.random)

    async def send(producer: Producer, partition: int) -> None:
        for number in itertools.count():
            began = loop.time()
            try:
                await producer.send_set("orders", partition, [(None, b"%d" % number)])
            except SendFailed:
                return  # the measurement has ended
            measured.sends.append((loop.time() - began) * MS)
            await asyncio.sleep(PAUSE)

    async def look() -> None:
        while True:
            began = loop.time()
            await metadata.refresh("orders", began + PATIENCE)
            measured.refreshes.append((loop.time() - began) * MS)
            await asyncio.sleep(POLL_SECONDS)

    load = [loop.create_task(send(producer, p)) for producer in producers for p in range(system.partitions)]
    load.append(loop.create_task(look()))
    try:
        await asyncio.sleep(SETTLED)
        for node in brokers:
            began = loop.time()
            await node.terminate()
            measured.stops.append((loop.time() - began) * MS)
            await node.start()
            await wait_until_serving(system, node)
        await asyncio.sleep(SETTLED)
        return measured
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        for producer in producers:
            await producer.close()
        await pool.close()
        await world.close(keep=False)


def measure_run(where: str, seed: int, partitions: int, shutdown_ms: int, per_partition: int = PRODUCERS) -> Measured:
    """Measures one run. ``where``: ``sim`` or ``docker``. ``per_partition``: producers per partition."""
    system = Broker(partitions=partitions).with_setting("controlled.shutdown.max.ms", str(shutdown_ms))
    world = open_world(system, Settings(seed, cluster=where), run_id=f"rolling-{seed}-{shutdown_ms}")
    try:
        return world.loop.run_until_complete(measure(world, system, per_partition))
    finally:
        world.loop.close()


@dataclass(frozen=True)
class Row:
    """Figures in milliseconds; ``allowed``: the client's back-off plus the longest metadata request."""

    mode: str
    sends: int
    median: float
    percentile_999: float
    longest: float
    refresh: float
    allowed: float
    longest_stop: float


def summarize(mode: str, found: list[Measured]) -> Row:
    sends = sorted(time for one in found for time in one.sends)
    refresh = max(time for one in found for time in one.refreshes)
    return Row(
        mode,
        len(sends),
        statistics.median(sends),
        sends[int(0.999 * len(sends))],
        sends[-1],
        refresh,
        BACK_OFF * MS + refresh,
        max(time for one in found for time in one.stops),
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3, 4, 5])
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--producers", type=int, default=PRODUCERS, help="number of producers per partition")
    parser.add_argument("--cluster", choices=(SIM, DOCKER), default=SIM)
    options = parser.parse_args()
    out, rows = Output(options.json), []
    for mode, shutdown_ms in (("handed over", 5_000), ("not handed over", 1)):
        where = (options.partitions, shutdown_ms, options.producers)
        rows.append(summarize(mode, [measure_run(options.cluster, seed, *where) for seed in options.seeds]))
        one = rows[-1]
        out.text(
            f"{one.mode:16} {one.sends} sends  p50 {one.median:.1f}  p99.9 {one.percentile_999:.1f}  "
            f"longest {one.longest:.1f} ms; a refresh at most {one.refresh:.1f} (with back-off {one.allowed:.1f}); "
            f"a stop at most {one.longest_stop:.0f}"
        )
    out.figures({"rows": [asdict(one) for one in rows]})


if __name__ == "__main__":
    main()
