"""Operations per second of the interpreter on one core, with clients that do nothing.

    python benchmarks/interpreter.py [--operations 200000] [--workers 10] [--json]

The generator is composed (mix, keys, unique values, time limit), and every operation and effect is recorded to Parquet.
Machines differ, so the run also measures bare asyncio: two tasks that pass a token through queues. The ratio is the
number of these exchanges per operation of the interpreter. On a busy machine, compare the figures per second of
processor time.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.harness.core.client import Endpoint
from assay.harness.core.generator import Context, Generator, limit, mix, time_limit, unfold
from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.interpreter import Interpreter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome

from figures import Output, make_parser

KEYS = ("orders-0", "orders-1", "orders-2", "orders-3")


class Idle:
    """Client that answers at once."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Does nothing."""

    async def invoke(self, operation: Operation) -> Completion:
        return Completion(Outcome.OK, result=operation.argument)

    async def close(self) -> None:
        """Does nothing."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        key = completed.operation.key or ""
        return (Effect("append", key, position=completed.index, value=completed.operation.argument),)


def _send(state: int, context: Context) -> tuple[Operation, int]:
    return Operation("send", context.choose(KEYS), state), state + 1


def _poll(state: None, context: Context) -> tuple[Operation, None]:
    return Operation("poll", context.choose(KEYS)), None


def build_generator(operations: int) -> Generator:
    """Returns a generator like a workload's."""
    return time_limit(3600.0, limit(operations, mix(unfold(_send, 0), unfold(_poll, None), weights=(2, 1))))


class Rate:
    """Measures counts per second of wall time, and per second of this process's processor time."""

    def __init__(self) -> None:
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def of(self, count: int) -> tuple[float, float]:
        return count / (time.perf_counter() - self._clock), count / (time.process_time() - self._processor)


async def drive(folder: Path, operations: int, workers: int) -> tuple[float, float]:
    """Returns operations per second, from the first invocation to the closed history."""
    endpoints = [Endpoint(f"n{i}", f"10.0.0.{i}:9092", ()) for i in range(1, 6)]
    with HistoryWriter(folder, loop=asyncio.get_running_loop()) as history:
        async with Interpreter(endpoints=endpoints, client=Idle, recorder=history, concurrency=workers) as interpreter:
            rate = Rate()
            await interpreter.run(build_generator(operations))
        history.close()
    return rate.of(operations)


async def measure_asyncio(exchanges: int) -> tuple[float, float]:
    """Returns exchanges per second between two tasks through two asyncio queues."""
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def echo() -> None:
        for _ in range(exchanges):
            back.put_nowait(await there.get())

    task = asyncio.create_task(echo())
    rate = Rate()
    for number in range(exchanges):
        there.put_nowait(number)
        await back.get()
    await task
    return rate.of(exchanges)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=10)
    options = parser.parse_args()
    out = Output(options.json)
    exchanged = asyncio.run(measure_asyncio(options.operations // 2))
    with tempfile.TemporaryDirectory() as folder:
        driven = asyncio.run(drive(Path(folder) / "history", options.operations, options.workers))
        rows = HistoryReader(Path(folder) / "history").rows("ops")
    ratio = exchanged[1] / driven[1]
    out.text(f"{rows:,} operations recorded, {options.workers} workers")
    out.text(f"interpreter:       {driven[0]:>9,.0f} operations/s  ({driven[1]:,.0f} per second of processor time)")
    out.text(
        f"bare asyncio:      {exchanged[0]:>9,.0f} exchanges/s   ({exchanged[1]:,.0f} per second of processor time)"
    )
    out.text(f"ratio: {ratio:.2f} exchanges per operation")
    out.figures(
        {
            "operations": rows,
            "operations_per_second": driven[0],
            "operations_per_processor_second": driven[1],
            "exchanges_per_second": exchanged[0],
            "exchanges_per_processor_second": exchanged[1],
            "ratio": ratio,
        }
    )


if __name__ == "__main__":
    main()
