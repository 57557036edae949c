"""Gain of sendfile for a consumer that reads a log from the beginning.

The broker's own server sends ranges of a log, through the log, the codec and the session. A client process requests one
range after another and discards them, so no consumer can be faster. Copying and sendfile alternate in one run. Figures
are the best of ``--rounds``. Quote the ratios.

    python benchmarks/sendfile.py [--megabytes 512] [--rounds 5] [--sizes 64,256,1024,2048,4096,8192] [--json]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import struct
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.log import Log
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.network.server import Server
from assay.system_under_test.protocol.api import APIS
from assay.system_under_test.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from assay.system_under_test.protocol.header import encode_request
from assay.system_under_test.protocol.schema import get_request_info
from assay.system_under_test.records import message_set
from assay.system_under_test.records.produced import validate
from assay.system_under_test.storage import local
from assay.system_under_test.storage.local import LocalStorage

from figures import Output, make_parser, numbers

KB = 1024
SIZES = [64, 256, 1024, 2048, 4096, 8192]
"""Records per answer in KB; clients request 1 MB by default."""
LOG_BYTES = 64 * KB * KB
MESSAGE = 1000
MODES = {"copied": sys.maxsize, "sendfile": 0}
"""Size in bytes from which sendfile is used."""


@dataclass(frozen=True)
class Figures:
    """Figures of a measurement: MB per second, and the server's processor time in microseconds per answer."""

    speed: float
    cpu: float


def consume(port: int, size: int, count: int, result: Connection) -> None:
    """Reads ``count`` answers in a separate process, and sends the seconds that this took."""
    wanted = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, offset=0, max_bytes=size)])]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=size, topics=wanted)
    sent, buffer = encode_request(request, 3, 1, "benchmark"), memoryview(bytearray(1024 * KB))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.perf_counter()
        for _ in range(count):
            connection.sendall(sent)
            left = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
            while left:
                left -= connection.recv_into(buffer[: min(left, len(buffer))])
        result.send(time.perf_counter() - began)


async def fill_log(folder: str) -> Log:
    log, _ = await Log.open(
        LocalStorage(folder), "t-0", LogConfig(), clean=False, recovery_point=0, wall_clock=time.time
    )
    batch = validate(message_set.build([(None, bytes(MESSAGE), 1)] * 100), LOG_BYTES)
    while log.end_offset * MESSAGE < LOG_BYTES:
        log.append(batch)
    return log


async def measure(log: Log, size: int, total: int, sendfile_from: int) -> Figures:
    local.SENDFILE_MIN_BYTES = sendfile_from
    offset, count = 0, max(20, min(5_000, total // size))

    async def fetch(request: FetchRequest, _: RequestContext) -> FetchResponse:
        nonlocal offset
        found = log.read(offset, size, limit=log.end_offset)
        offset += found.size // MESSAGE - size // (20 * MESSAGE)  # approximately the next record
        if (offset + size // MESSAGE + 1) * MESSAGE > LOG_BYTES:
            offset = 0
        part = FetchPartitionResponse(partition=0, error_code=0, high_watermark=log.end_offset, records=found)
        return FetchResponse(topics=[FetchTopicResponse(topic="t", partitions=[part])])

    server = Server({get_request_info(FetchRequest).key: fetch}, APIS)
    await server.start("127.0.0.1", 0)
    here, there = multiprocessing.Pipe()
    consumer = multiprocessing.Process(target=consume, args=(server.port, size, count, there))
    cpu = time.process_time()
    consumer.start()
    while not here.poll():  # noqa: ASYNC110 (what is waited for is another process)
        await asyncio.sleep(0.02)
    cpu = time.process_time() - cpu
    seconds = here.recv()
    consumer.join()
    await server.close()
    return Figures(size * count / seconds / 1e6, cpu / count * 1e6)


def pick_best(figures: list[Figures]) -> Figures:
    return Figures(max(one.speed for one in figures), min(one.cpu for one in figures))


async def run(megabytes: int, rounds: int, sizes: list[int], out: Output) -> None:
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        log = await fill_log(folder)
        out.text("answer of  " + "".join(f"{mode:>26}" for mode in MODES) + "   ratio of speed, of processor time")
        for size in sizes:
            found: dict[str, list[Figures]] = {mode: [] for mode in MODES}
            for _ in range(rounds):
                for mode, threshold in MODES.items():
                    found[mode].append(await measure(log, size * KB, megabytes * KB * KB, threshold))
            copied, sent = (pick_best(found[mode]) for mode in MODES)
            both = "".join(f"{one.speed:10,.0f} MB/s {one.cpu:8,.0f} us" for one in (copied, sent))
            out.text(f"{size:6} KB  {both}   {sent.speed / copied.speed:8.2f} {copied.cpu / sent.cpu:8.2f}")
            answers.append({"kilobytes": size, "copied": asdict(copied), "sendfile": asdict(sent)})
        await log.close()
    out.figures({"answers": answers})


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=512, help="read in each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="KB of an answer")
    options = parser.parse_args()
    multiprocessing.set_start_method("fork")
    asyncio.run(run(options.megabytes, options.rounds, options.sizes, Output(options.json)))


if __name__ == "__main__":
    main()
