"""The simulation loop: virtual time, order, determinism, processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.loop import DeadlockError, SimLoop
from assay.cluster.sim.process import Process

ROOT = Path(__file__).resolve().parents[3]


def run(main: Callable[[], Coroutine[Any, Any, Any]], seed: int = 0) -> Any:
    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        return runner.run(main())


def process(name: str = "n1", address: str = "198.18.0.1") -> Process:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return Process(loop, loop.network.add_host(name, address), name, f"{name}.1")


def test_time_starts_at_zero_and_jumps_to_the_next_timer() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        await asyncio.sleep(1000.1)
        times.append(loop.time())
        return times

    assert run(main) == [0.0, 1000.1]


@given(st.lists(st.floats(min_value=0, max_value=1e6, allow_nan=False), max_size=30))
def test_timers_fire_at_their_exact_time_in_order_and_ties_in_order_of_creation(delays: list[float]) -> None:
    fired: list[tuple[float, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number, delay in enumerate(delays):
            loop.call_at(delay, lambda number=number: fired.append((loop.time(), number)))
        await asyncio.sleep(1e6 + 1)

    run(main)
    assert fired == sorted((delay, number) for number, delay in enumerate(delays))


def test_cancelled_timers_never_fire_and_are_swept_out() -> None:
    async def main() -> int:
        loop: Any = asyncio.get_running_loop()
        for _ in range(5000):
            loop.call_later(10, pytest.fail, "cancelled").cancel()
        kept = len(loop._timers)
        await asyncio.sleep(11)
        return kept

    assert run(main) < 2000


def test_a_busy_loop_with_a_deadline_ends() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        while loop.time() < 0.01:  # noqa: ASYNC110 - the busy loop is what is tested
            await asyncio.sleep(0)
        return loop.time()

    assert 0.01 <= run(main) < 0.02


def test_a_deadlock_names_the_tasks_that_wait() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    loop = SimLoop()
    task = loop.create_task(wait_for_nothing(), name="the sleeper")
    with pytest.raises(DeadlockError, match=r"deadlock at 0\.0(.|\n)*the sleeper of the harness"):
        loop.run_until_complete(task)
    loop.call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_an_executor_is_refused_with_the_reason() -> None:
    async def main() -> None:
        await asyncio.to_thread(len, "")

    with pytest.raises(RuntimeError, match="no threads"):
        run(main)


def test_exceptions_in_callbacks_reach_the_handler_and_the_loop_goes_on() -> None:
    seen: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    run(main)
    assert [type(error) for error in seen] == [ZeroDivisionError]


PROGRAM = textwrap.dedent(
    """
    import asyncio, random, sys
    from assay.cluster.sim.loop import SimLoop
    from assay.cluster.sim.process import Process

    trace = []

    def note(*what):
        trace.append((round(asyncio.get_running_loop().time(), 9), *what))

    async def node(name, peers, rng):
        async def serve(reader, writer):
            try:
                while line := await reader.readline():
                    note(name, "got", line.decode().strip())
                    writer.write(b"re:" + line)
                    await asyncio.sleep(rng.random() / 100)
            except ConnectionError as error:
                note(name, type(error).__name__)
            finally:
                writer.close()

        async def talk(peer):
            reader, writer = await asyncio.open_connection(peer, 9000)
            try:
                for number in range(4):
                    writer.write(f"{name}>{peer} {number}\\n".encode())
                    try:
                        async with asyncio.timeout(0.01):
                            note(name, "answer", (await reader.readline()).decode().strip())
                    except TimeoutError:
                        note(name, "timeout", peer)
            finally:
                writer.close()

        await asyncio.start_server(serve, "0.0.0.0", 9000)
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(talk(peer)) for peer in peers * 3]
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                note(name, "done", tasks.index(task))

        async def bystander(number):
            try:
                await asyncio.sleep(100)
            finally:
                note(name, "cancelled", number)

        async def fail():
            await asyncio.sleep(rng.random())
            raise RuntimeError

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(7):
                    group.create_task(bystander(number))
                group.create_task(fail())
        except* RuntimeError:
            note(name, "group over")
        futures = {asyncio.get_running_loop().create_future() for _ in range(9)}
        for number, future in enumerate(futures):
            future.set_result(number)
        for future in (await asyncio.wait(futures))[0]:
            note(name, "future", future.result())

    async def main(seed):
        loop = asyncio.get_running_loop()
        names = ["a", "b", "c"]
        for number, name in enumerate(names):
            host = loop.network.add_host(name, f"198.18.0.{number + 1}")
            peers = [other for other in names if other != name]
            process = Process(loop, host, name, name + ".1")
            process.spawn(node(name, peers, random.Random(f"{seed} {name}")), name)
        await asyncio.sleep(3)

    seed = int(sys.argv[1])
    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        runner.run(main(seed))
    for line in trace:
        print(*line)
    """
)


def trace(seed: int, hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", PROGRAM, str(seed)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_a_seed_gives_the_same_trace_in_any_process_and_another_seed_another() -> None:
    first = trace(seed=1, hash_seed=1)
    assert first.count("\n") > 100
    assert trace(seed=1, hash_seed=2) == first
    assert trace(seed=2, hash_seed=1) != first


def test_what_a_killed_process_was_doing_ends_at_once_and_its_finally_blocks_reach_nothing() -> None:
    async def main() -> tuple[list[str], bytes]:
        loop: Any = asyncio.get_running_loop()
        seen: list[str] = []
        received = bytearray()

        async def observe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(100):
                    received.extend(data)
            except ConnectionResetError:
                seen.append("reset")
            finally:
                writer.close()

        observer = await asyncio.start_server(observe, "0.0.0.0", 1)
        victim = process()

        async def stubborn() -> None:
            _, writer = await asyncio.open_connection("harness", 1)
            writer.write(b"alive")
            try:
                await asyncio.sleep(100)
            finally:
                seen.append("unwound")
                writer.write(b"from the grave")
                loop.call_soon(seen.append, "called back")
                loop.create_task(write_later())  # noqa: RUF006
                await asyncio.sleep(1)
                seen.append("woke up again")

        async def write_later() -> None:
            seen.append("ran a new task")

        async def timer() -> None:
            loop.call_later(2, seen.append, "timer fired")
            await asyncio.sleep(2)
            seen.append("slept")

        victim.spawn(stubborn(), "stubborn")
        victim.spawn(timer(), "timer")
        await asyncio.sleep(1)
        victim.kill()
        assert seen == ["unwound"]
        await asyncio.sleep(5)
        observer.close()
        assert loop.tasks_of(victim) == []
        return seen, bytes(received)

    assert run(main) == (["unwound", "reset"], b"alive")


def test_an_asynchronous_generator_of_a_killed_process_is_not_finished_by_anyone() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(0)
                seen.append("generator closed")

        async def consume() -> None:
            async for _ in numbers():
                await asyncio.sleep(100)

        victim = process()
        victim.spawn(consume(), "consume")
        await asyncio.sleep(1)
        victim.kill()
        await asyncio.sleep(1)
        return seen

    assert run(main) == []


def test_a_stopped_process_does_nothing_and_then_everything_in_order() -> None:
    async def main() -> list[tuple[float, str]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[float, str]] = []

        async def tick(name: str, period: float) -> None:
            for _ in range(3):
                await asyncio.sleep(period)
                seen.append((loop.time(), name))

        worker = process()
        worker.spawn(tick("a", 1.0), "a")
        worker.spawn(tick("b", 1.5), "b")
        await asyncio.sleep(1.2)
        worker.stop()
        await asyncio.sleep(8.8)
        assert seen == [(1.0, "a")]
        worker.resume()
        await asyncio.sleep(10)
        return seen

    assert run(main) == [(1.0, "a"), (10.0, "b"), (10.0, "a"), (11.0, "a"), (11.5, "b"), (13.0, "b")]


def test_a_process_killed_while_stopped_stays_dead() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def work() -> None:
            await asyncio.sleep(1)
            seen.append("worked")

        worker = process()
        worker.spawn(work(), "work")
        await asyncio.sleep(0.5)
        worker.stop()
        await asyncio.sleep(1)
        worker.kill()
        worker.resume()
        await asyncio.sleep(1)
        return seen

    assert run(main) == []


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3]), min_size=1, max_size=8),
    st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.25]), max_size=4),
)
def test_a_call_between_events_comes_last_at_its_moment_and_leaves_all_timers_as_they_are(
    delays: list[float], breaks: list[float]
) -> None:
    def steps(breaks: list[float]) -> list[tuple[float, str]]:
        seen: list[tuple[float, str]] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimLoop)
            for when in breaks:
                loop.call_between_events(when, lambda when=when: seen.append((when, "between")))  # type: ignore[misc]

            def fire(number: int) -> None:
                seen.append((loop.time(), f"timer {number}"))
                loop.call_soon(lambda: seen.append((loop.time(), f"soon {number}")))

            for number, delay in enumerate(delays):
                loop.call_at(delay, fire, number)
            await asyncio.sleep(1.0)

        run(main)
        return seen

    found = steps(breaks)
    assert [step for step in found if step[1] != "between"] == steps([])
    assert found == sorted(found, key=lambda step: step[0]), "after all that is due by then, before all that is later"
    assert len(found) == 2 * len(delays) + len(breaks)
    for earlier, later in itertools.pairwise(found):
        assert not (earlier[1] == "between" and later[1] != "between" and later[0] <= earlier[0])
