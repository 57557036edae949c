"""Interpreter: runs generators against clients and records what happens.

It has one scheduler, and one task per worker. Each turn of the scheduler takes two steps:

1. It records all completions. So an operation that ended earlier is never recorded as concurrent with a later one.
2. It invokes operations as long as the generator has one and a worker is free.

Every stamp (``timestamps``) is unique, also within one turn.

A worker keeps its name (``w3``, or ``w3@client1`` on a client node) and its endpoint: worker *i* has endpoint *i*
modulo the number of endpoints. After an ``info`` outcome its process may still be executing the operation. A new
process then takes over, with a client of its own. Its id is that of the former process plus the number of workers.

The design follows Jepsen's (jepsen.generator.interpreter), with coroutines instead of threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.effect_recording import EffectRecorder, Recorder
from assay.harness.core.generator.base import Generator, Source, as_generator, remaining_phases
from assay.harness.core.generator.context import Exhausted, Invoke, OperationEvent, Roster, iterate_bits
from assay.harness.core.history.data_sets import OPS
from assay.harness.core.history.plain_rows import RowChecker
from assay.harness.core.interpreter_status import InterpreterStatus
from assay.harness.core.operation import Completed, Completion, Effect, Outcome, Phase
from assay.harness.core.printable import represent
from assay.harness.core.timestamps import NANOSECONDS, Stamps
from assay.harness.core.worker import TIMEOUT, Worker, WorkerEnvironment, abandon_task


class Alarm:
    """Lets the scheduler sleep until another task wakes it, or until a given time.

    Waking the scheduler while it is awake has no effect, because it checks everything before it sleeps again.
    """

    __slots__ = ("_loop", "_sleeping", "_stamps", "_timer", "_wake_at")

    def __init__(self, stamps: Stamps) -> None:
        self._loop = asyncio.get_running_loop()
        self._stamps = stamps
        self._sleeping: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0

    async def sleep(self) -> None:
        self._sleeping = self._loop.create_future()
        await self._sleeping

    def wake(self) -> None:
        sleeping = self._sleeping
        if sleeping is not None and not sleeping.done():
            sleeping.set_result(None)

    def wake_by(self, stamp: int) -> None:
        """Wakes at ``stamp`` at the latest. An earlier timer is kept, because it costs only one idle turn."""
        if self._timer is not None:
            if self._wake_at <= stamp:
                return
            self._timer.cancel()
        self._wake_at = stamp
        self._timer = self._loop.call_at(self._stamps.to_loop_time(stamp), self._on_timer)

    def clear(self) -> None:
        """Cancels the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()


INTERRUPTED = Completion(Outcome.INFO, error="interrupted")
"""Completion of an operation that is in progress when the run ends."""
CANCEL_GRACE = 1.0
"""Seconds that an expired operation has to react to its cancellation before it is abandoned."""
CANCEL_GRACE_NS = int(CANCEL_GRACE * NANOSECONDS)


class GeneratorError(Exception):
    """A generator violated the protocol; the message says how."""


def _has_plain_columns(answer: Invoke) -> bool:
    """Returns quickly whether the history can store the operation. False: ``_require_plain_columns`` decides."""
    operation, scheduled = answer.operation, answer.scheduled
    f, key = operation.f, operation.key
    return (
        type(f) is str
        and f.isascii()
        and (key is None or (type(key) is str and key.isascii()))
        and type(operation.phase) is Phase
        and (scheduled is None or (type(scheduled) is int and 0 <= scheduled < 2**63))
    )


def _require_plain_columns(answer: Invoke) -> None:
    """Raises ``GeneratorError`` for an operation that the history cannot store."""
    operation = answer.operation
    what = f"the operation {represent(operation)}"
    try:
        _CHECKER.find_conversions((operation.f, operation.key, operation.phase, answer.scheduled), what)
    except (TypeError, ValueError) as error:
        remedy = "" if isinstance(operation.key, str | None) else "; convert the key, as with str(key)"
        raise GeneratorError(f"{error}{remedy}") from error
    if operation.phase not in tuple(Phase):
        raise GeneratorError(f"phase of {what} is {operation.phase!r}, none of {', '.join(Phase)}")


_COLUMNS: Final = {column.name: column for column in OPS}
_CHECKER: Final = RowChecker([_COLUMNS[name] for name in ("f", "key", "phase", "scheduled")])


class Interpreter:
    """Workers with their clients, which run one generator after another.

    A trial enters the interpreter and runs the workload under faults. Then it heals the faults. In the same processes
    it runs the last writes (sentinel), and the reads up to them (drain). For example::

        async with Interpreter(endpoints=..., client=LogClient, recorder=history, concurrency=10) as interpreter:
            await interpreter.run(time_limit(60, main), stop=interrupted)
            ...
            await interpreter.run(drain)

    Leaving it records operations in progress as ``info`` and closes the clients. The recorder stays open.
    """

    def __init__(
        self,
        *,
        endpoints: Sequence[Endpoint],
        client: Callable[[], Any],
        recorder: Recorder,
        concurrency: int,
        runtime: Any = None,
        operation_timeout: float = 5.0,
        seed: int = 0,
        stamps: Stamps | None = None,
        on_completion: Sequence[Callable[[Completed], None]] = (),
        backs_off: bool = False,
    ) -> None:
        """Creates the interpreter; needs a running loop. Raises ``ValueError`` without an endpoint or a worker.

        - ``client``: a client class, or a function that returns an unopened :class:`Client`.
        - ``operation_timeout``: seconds, also for opening and closing.
        - ``backs_off``: whether workers back off if their operations fail at once repeatedly.
        """
        if not endpoints or concurrency < 1:
            raise ValueError(f"a run takes endpoints and workers: {len(endpoints)} endpoints, {concurrency} workers")
        self._endpoints = tuple(endpoints)
        self._concurrency = concurrency
        self._timeout = int(operation_timeout * NANOSECONDS)
        self._hooks = tuple(on_completion)
        self.stamps = stamps or Stamps()
        self.status = InterpreterStatus(invoked={endpoint.node: 0 for endpoint in endpoints})
        self._recorder = EffectRecorder(recorder, self.status)
        self._environment = WorkerEnvironment(
            client, runtime, self.stamps, self.status, operation_timeout, self._on_ended, self._on_opened, backs_off
        )
        self._loop = asyncio.get_running_loop()
        self._workers: list[Worker] = []
        self._abandoned_workers: list[Worker] = []
        self._roster = Roster(concurrency, seed, free=False)
        self._index = 0
        self._ended: deque[Worker] = deque()
        self._opened: deque[Worker] = deque()
        self._alarm = Alarm(self.stamps)
        self._expiry_at: int | None = None
        self._crash: BaseException | None = None
        self._closing = False
        self._generator_listens = False
        """Whether the generator reacts to events (``Generator.listens``)."""
        self._generator: Generator = as_generator(None)
        self._pending_without_time = False
        """Whether the generator's last answer was ``Pending`` without a time, so that it waits for an event."""

    @property
    def phases(self) -> tuple[Generator, ...]:
        """Returns the rest of the running generator: the rest of its present phase, and all later phases."""
        return remaining_phases(self._generator)

    @property
    def unopened_nodes(self) -> list[str]:
        """The nodes whose clients must open before the generator can go on; empty while it can go on."""
        roster = self._roster
        if roster.busy or (roster.free and not self._pending_without_time):
            return []
        closed = [self._workers[number] for number in iterate_bits(roster.everyone & ~roster.free)]
        return sorted({worker.endpoint.node for worker in closed})

    def iterate_unfinished_operations(self) -> Iterator[tuple[Completed, Sequence[Effect]]]:
        """Yields the operations in progress and their effects, each as if its time limit had just passed."""
        for number in iterate_bits(self._roster.busy):
            worker = self._workers[number]
            completed = self._make_completed(worker, INTERRUPTED)
            yield completed, self._recorder.effects(completed, worker.effects)

    def reseed(self, seed: int) -> None:
        """Restarts the random numbers of the generators from ``seed``."""
        self._roster.reseed(seed)

    async def __aenter__(self) -> Interpreter:
        """Starts to open all clients at once. A worker is free when its client is open."""
        self._workers = [self._start_worker(number, number) for number in range(self._concurrency)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(
        self, generator: Source, *, stop: asyncio.Event | None = None, until: asyncio.Event | None = None
    ) -> InterpreterStatus:
        """Runs ``generator`` until it is exhausted and all its operations have ended.

        Once ``until`` or ``stop`` is set, nothing more is invoked, and operations in progress may run up to their time
        limit. ``stop`` is an interruption, which the status records. Returns the status over all runs of this
        interpreter. Raises the exceptions of generators, recorders and hooks.
        """
        if self._closing or not self._workers:
            raise RuntimeError("enter the interpreter first: async with Interpreter(...) as interpreter")
        self._generator = as_generator(generator)
        self._generator_listens = self._generator.listens
        watchers = [self._loop.create_task(self._watch(event)) for event in (stop, until) if event is not None]
        try:
            await self._schedule(stop, until)
        finally:
            for watcher in watchers:
                watcher.cancel()
            self._alarm.clear()
        return self.status

    async def close(self) -> None:
        """Records operations in progress as ``info``, ends the workers and closes the clients. Idempotent."""
        if self._closing:
            return
        self._closing = True
        self._alarm.clear()
        self._generator_listens = False
        workers = [*self._workers, *self._abandoned_workers]
        try:
            self._process_completions()
            for worker in self._workers:
                if self._roster.busy >> worker.number & 1:
                    self._record_completion(worker, INTERRUPTED)
        finally:
            for worker in workers:
                worker.task.cancel()
            if workers:
                await self._end_workers(workers)

    async def _end_workers(self, workers: Sequence[Worker]) -> None:
        """Waits for cancelled tasks, then closes the clients. Each step has a time limit."""
        await asyncio.wait([worker.task for worker in workers], timeout=CANCEL_GRACE)
        for worker in workers:
            if not worker.task.done():
                self._give_up(worker.task, worker.client_method, worker)
        closing = {self._loop.create_task(worker.close_client()): worker for worker in workers}
        _, hanging = await asyncio.wait(closing, timeout=self._environment.time_limit + CANCEL_GRACE)
        for task in hanging:
            self._give_up(task, "close", closing[task])

    def _give_up(self, task: asyncio.Task[None], method: str, worker: Worker) -> None:
        abandon_task(task)
        self.status.add_hanging_client(method, worker.endpoint.node)

    async def _schedule(self, stop: asyncio.Event | None, until: asyncio.Event | None) -> None:
        exhausted = False
        while True:
            self._process_completions()
            if self._crash is not None:
                raise self._crash
            if stop is not None and stop.is_set() and not exhausted:
                self.status.stopped = exhausted = True
            exhausted = exhausted or (until is not None and until.is_set())
            if not exhausted:
                exhausted = self._invoke_available()
            if exhausted and not self._roster.busy:
                return
            if self._expiry_at is not None:
                self._expire(self.stamps.now())
            await self._alarm.sleep()

    def _invoke_available(self) -> bool:
        """Invokes all operations that the generator has now. Returns True if it is exhausted."""
        generator = self._generator
        while True:
            now = self.stamps.now()
            answer, generator = generator.op(self._roster.context(now))
            if not isinstance(answer, Invoke):
                self._generator = generator
                if isinstance(answer, Exhausted):
                    return True
                self._pending_without_time = answer.until is None
                if answer.until is not None:
                    self._alarm.wake_by(answer.until)
                elif self._roster.free == self._roster.everyone:
                    raise GeneratorError(
                        f"generator waits for ever: no operation is running and it names no time: {generator}"
                    )
                return False
            self._invoke(answer, now)
            if self._generator_listens:
                worker = answer.worker
                event = OperationEvent(worker, self._roster.processes[worker], answer.operation, now)
                generator = generator.update(self._roster.context(now), event)

    def _invoke(self, answer: Invoke, now: int) -> None:
        number = answer.worker
        if not _has_plain_columns(answer):
            _require_plain_columns(answer)
        if not self._roster.occupy(number):
            raise GeneratorError(f"a generator answered {answer.operation} for worker {number}, which is not free")
        worker = self._workers[number]
        worker.assign(answer.operation, self._index, now, answer.scheduled)
        self._index += 1
        due = now + self._timeout
        # The end of an expired operation's grace may be later than this operation's end.
        if self._expiry_at is None or due < self._expiry_at:
            self._expiry_at = due
        self.status.invoked[worker.endpoint.node] += 1

    def _process_completions(self) -> None:
        """Records all completions. Then marks the workers as free whose clients have been opened."""
        ended, opened = self._ended, self._opened
        while ended:
            worker = ended.popleft()
            if not worker.abandoned:
                self._record_completion(worker, worker.completion)
        while opened:
            worker = opened.popleft()
            if not worker.abandoned:
                self._roster.mark_free(worker.number)

    def _make_completed(self, worker: Worker, completion: Completion) -> Completed:
        return Completed(
            worker.index,
            self._roster.processes[worker.number],
            worker.name,
            worker.operation,
            completion,
            worker.call,
            None if completion.outcome is Outcome.INFO else worker.ret,
            worker.scheduled,
        )

    def _record_completion(self, worker: Worker, completion: Completion) -> None:
        """Records how an operation ended. Unless the outcome is ``info``, the worker is free again."""
        number = worker.number
        process = self._roster.processes[number]
        completed = self._make_completed(worker, completion)
        if completion.outcome is Outcome.INFO:
            self._roster.retire(number)
        else:
            self._roster.release(number)
        self.status.count(completion.outcome)
        self._recorder.record(completed, worker.effects)
        for hook in self._hooks:
            hook(completed)
        if self._generator_listens:
            event = OperationEvent(number, process, worker.operation, worker.ret, completed)
            self._generator = self._generator.update(self._roster.context(self.stamps.now()), event)

    def _expire(self, now: int) -> None:
        """Ends operations that are past their time limit, and sets the alarm for the next expiry.

        All operations have the same limit. It is enough to check every worker when the oldest operation expires,
        without a timer per operation. ``_expiry_at`` is a lower bound, or None if no operation is in progress.
        """
        assert self._expiry_at is not None
        if now >= self._expiry_at:
            self._expiry_at = None
            for number in iterate_bits(self._roster.busy):
                due = self._expire_one(self._workers[number], now)
                if due is not None and (self._expiry_at is None or due < self._expiry_at):
                    self._expiry_at = due
        if self._expiry_at is not None:
            self._alarm.wake_by(self._expiry_at)

    def _expire_one(self, worker: Worker, now: int) -> int | None:
        """Returns when to check a busy worker again; None if its operation has now been abandoned."""
        if worker.expired_at is None:
            due = worker.call + self._timeout
            if now < due:
                return due
            worker.expire(now)
            return now + CANCEL_GRACE_NS
        due = worker.expired_at + CANCEL_GRACE_NS
        if now < due:
            return due
        self._abandon(worker)
        return None

    def _abandon(self, worker: Worker) -> None:
        """Abandons an operation that ignores its cancellation: its worker gets a new task and a new client."""
        worker.abandoned = True
        self._abandoned_workers.append(worker)
        self.status.stuck += 1
        self._record_completion(worker, TIMEOUT)
        self._workers[worker.number] = self._start_worker(worker.number, self._roster.processes[worker.number])

    def _start_worker(self, number: int, process: int) -> Worker:
        endpoint = self._endpoints[number % len(self._endpoints)]
        worker = Worker(number, process, self._concurrency, endpoint, self._environment)
        worker.task.add_done_callback(lambda task: self._on_task_done(worker, task))
        return worker

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._alarm.wake()

    def _on_ended(self, worker: Worker) -> None:
        self._ended.append(worker)
        self._alarm.wake()

    def _on_opened(self, worker: Worker) -> None:
        self._opened.append(worker)
        self._alarm.wake()

    def _on_task_done(self, worker: Worker, task: asyncio.Task[None]) -> None:
        error = RuntimeError(f"a client cancelled the task of {worker.name}") if task.cancelled() else task.exception()
        if self._closing or worker.abandoned:
            return
        self._crash = error
        self._alarm.wake()
