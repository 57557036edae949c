"""A simulation is the same on every Python: the order of wake-ups, and the number of loop turns before each.

asyncio's own code changes between versions of Python. Each scenario here notes what happens and in which turn of the
loop; the expected notes stand beside it and hold for Python 3.11 to 3.14. ``asyncio.wait_for`` has no scenario, because
it made a task of its own until Python 3.11 and takes other turns since. Simulated code uses ``asyncio.timeout``, which
``tests/test_architecture.py`` enforces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.process import Process

Note = Callable[[str], None]
Scenario = Callable[[Note], Coroutine[Any, Any, None]]


def notes(scenario: Scenario) -> list[str]:
    """Returns the notes of the scenario, each with the number of turns of the loop while nothing waited for time."""
    turn = 0
    made: list[str] = []

    async def count() -> None:
        nonlocal turn
        while scenario not in TIMED:
            turn += 1
            await asyncio.sleep(0)

    async def main() -> None:
        counting = asyncio.create_task(count())
        await scenario(lambda what: made.append(f"{turn} {what}"))
        counting.cancel()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:
        runner.run(main())
    return made


async def pause(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def locks(note: Note) -> None:
    lock = asyncio.Lock()

    async def holder(name: str, turns: int) -> None:
        try:
            async with lock:
                note(f"{name} has the lock")
                await pause(turns)
        except asyncio.CancelledError:
            note(f"{name} gives up")

    tasks = [asyncio.create_task(holder(name, turns)) for name, turns in (("a", 3), ("b", 1), ("c", 2), ("d", 0))]
    await pause(2)
    tasks[2].cancel()
    await asyncio.wait(tasks)
    note("all are done")


async def semaphores_and_conditions(note: Note) -> None:
    semaphore, condition, opened = asyncio.Semaphore(2), asyncio.Condition(), asyncio.Event()

    async def enter(name: str) -> None:
        async with semaphore:
            note(f"{name} is in")
            await pause(2)

    async def notified(name: str) -> None:
        async with condition:
            await condition.wait()
            note(f"{name} was notified")

    async def wait_until_open() -> None:
        await opened.wait()
        note("it is open")

    entered = [asyncio.create_task(enter(name)) for name in "abcde"]
    waiting = [asyncio.create_task(notified(name)) for name in "fgh"]
    last = asyncio.create_task(wait_until_open())
    await asyncio.wait(entered)
    async with condition:
        condition.notify(2)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    async with condition:
        condition.notify_all()
    await asyncio.wait(waiting)
    opened.set()
    await last


async def queues(note: Note) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(2)

    async def take(name: str) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                note(f"{name} takes {await queue.get()}")
                queue.task_done()

    takers = [asyncio.create_task(take(name)) for name in "ab"]
    for number in range(5):
        await queue.put(number)
        note(f"{number} is put")
    await queue.join()
    note("all are taken")
    for taker in takers:
        taker.cancel()
    await asyncio.gather(*takers)


async def timeouts(note: Note) -> None:
    future = asyncio.get_running_loop().create_future()
    try:
        async with asyncio.timeout(0):
            await future
    except TimeoutError:
        note(f"in vain, cancelled: {future.cancelled()}")
    try:
        async with asyncio.timeout(60):
            try:
                async with asyncio.timeout(-1):
                    await asyncio.sleep(60)
            except TimeoutError:
                note("the inner one")
            await pause(1)
            note("the outer one goes on")
    except TimeoutError:
        note("never")
    async with asyncio.timeout(0.5):
        await pause(2)
        note("in time")


async def task_groups(note: Note) -> None:
    async def bystand(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            note(f"{number} is cancelled")

    async def fail() -> None:
        await pause(2)
        raise ValueError

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(bystand(number))
            group.create_task(fail())
    except* ValueError:
        note("the group has failed")

    async def outer() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bystand(5))
            group.create_task(pause(1))

    task = asyncio.create_task(outer())
    await pause(3)
    task.cancel()
    await asyncio.wait([task])
    note(f"cancelled from outside: {task.cancelled()}")


async def futures_and_tasks(note: Note) -> None:
    loop = asyncio.get_running_loop()

    async def come_to(number: int) -> int:
        await pause(number)
        return number

    assert await asyncio.gather(*map(come_to, (2, 0, 1))) == [2, 0, 1]
    note("gathered")
    pending = {asyncio.create_task(come_to(number), name=str(number)) for number in (3, 1, 4, 1, 5)}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        note(f"{[task.get_name() for task in done]}; left: {[task.get_name() for task in pending]}")
    futures = {loop.create_future() for _ in range(9)}
    for number, future in enumerate(futures):
        future.set_result(number)
    note(f"{[future.result() for future in (await asyncio.wait(futures))[0]]}")
    shielded = asyncio.create_task(come_to(2))
    outer = asyncio.ensure_future(asyncio.shield(shielded))
    await pause(1)
    outer.cancel()
    note(f"{await shielded} behind the shield; cancelled before it: {outer.cancelled()}")


async def generators(note: Note) -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await pause(1)
            note("the generator is closed")

    async def first() -> int:
        async for number in numbers():
            return number
        return 0

    note(f"{await first()}")
    await pause(4)
    note("later")


async def a_killed_process(note: Note) -> None:
    """Its tasks are unwound in the order in which they were made, whichever of them was in a set first."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    process = Process(loop, loop.network.add_host("n1", "198.18.0.1"), "n1", "n1.1")

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            note(f"{number} is unwound")

    tasks = [process.spawn(work(number), str(number)) for number in range(8)]
    assert len({tasks[5], tasks[2], tasks[7]}) == 3
    await pause(1)
    process.kill()
    note("killed")


async def streams(note: Note) -> None:
    handled: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.append(asyncio.current_task())
        try:
            while line := await reader.readline():
                note(f"asked {line.decode().strip()}")
                writer.write(b"answer to " + line)
                await writer.drain()
            note("the client has ended")
        except ConnectionResetError:
            note("the client has reset")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 9000)
    reader, writer = await asyncio.open_connection("127.0.0.1", 9000)
    for number in range(2):
        writer.write(b"%d\n" % number)
        note((await reader.readline()).decode().strip())
    writer.write_eof()
    note(f"{await reader.read()!r} at the end")
    writer.close()
    await writer.wait_closed()
    note("closed")
    reader, writer = await asyncio.open_connection("127.0.0.1", 9000)
    writer.write(b"2\n")
    await writer.drain()
    await reader.readline()
    server.close()
    closing = asyncio.create_task(server.wait_closed())
    await asyncio.sleep(1)
    note(f"the server waits for its connection: {not closing.done()}")
    writer.transport.abort()
    await closing
    note(f"the server is closed; its handlers are done: {[task is not None and task.done() for task in handled]}")


TIMED = (streams,)
"""Their turns are not counted: a loop that never rests has its time pass by the number of its steps."""
SCENARIOS: dict[Scenario, list[str]] = {
    locks: [
        "1 a has the lock",
        "3 c gives up",
        "5 b has the lock",
        "7 d has the lock",
        "9 all are done",
    ],
    semaphores_and_conditions: [
        "1 a is in",
        "1 b is in",
        "4 c is in",
        "4 d is in",
        "7 e is in",
        "12 f was notified",
        "12 g was notified",
        "15 h was notified",
        "18 it is open",
    ],
    queues: [
        "0 0 is put",
        "0 1 is put",
        "1 a takes 0",
        "1 a takes 1",
        "2 2 is put",
        "2 3 is put",
        "3 a takes 2",
        "3 a takes 3",
        "4 4 is put",
        "5 a takes 4",
        "6 all are taken",
    ],
    timeouts: [
        "2 in vain, cancelled: True",
        "4 the inner one",
        "5 the outer one goes on",
        "7 in time",
    ],
    task_groups: [
        "5 0 is cancelled",
        "5 1 is cancelled",
        "5 2 is cancelled",
        "5 3 is cancelled",
        "5 4 is cancelled",
        "7 the group has failed",
        "12 5 is cancelled",
        "16 cancelled from outside: True",
    ],
    futures_and_tasks: [
        "5 gathered",
        "9 ['1', '3', '1']; left: ['4', '5']",
        "12 ['4', '5']; left: []",
        "14 [0, 1, 2, 3, 4, 5, 6, 7, 8]",
        "18 2 behind the shield; cancelled before it: True",
    ],
    generators: [
        "0 1",
        "2 the generator is closed",
        "4 later",
    ],
    a_killed_process: [
        "1 0 is unwound",
        "1 1 is unwound",
        "1 2 is unwound",
        "1 3 is unwound",
        "1 4 is unwound",
        "1 5 is unwound",
        "1 6 is unwound",
        "1 7 is unwound",
        "1 killed",
    ],
    streams: [
        "0 asked 0",
        "0 answer to 0",
        "0 asked 1",
        "0 answer to 1",
        "0 the client has ended",
        "0 b'' at the end",
        "0 closed",
        "0 asked 2",
        "0 the server waits for its connection: True",
        "0 the client has reset",
        "0 the server is closed; its handlers are done: [True, True]",
    ],
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_wake_ups_come_in_one_order_and_in_the_same_turns_on_every_python(scenario: Scenario) -> None:
    assert notes(scenario) == SCENARIOS[scenario]
