"""Worker processes that search keys in parallel on this machine.

Workers are new processes, not forks, because this process has threads of Arrow and perhaps of DuckDB. Unlike workers of
``multiprocessing``, they do not import the main module again, which may be a script without a guard, or pytest. Each
worker has one connection to the pool. When one side ends, the connection is closed, so the other side notices it. If a
process dies, the result of the key that it was searching is unknown, and another process replaces it.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Final, Protocol, Self

from assay.checkers.linearizability.encode import KeyHistory
from assay.checkers.linearizability.key_result import KeyResult, to_lost_result
from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.model import Model

WORKER: Final = "assay.checkers.linearizability.worker"

Chunk = tuple[int, ...]
"""Numbers of keys that are sent together."""


class SupportsHistories(Protocol):
    """Source of a key's history, by its number."""

    def history(self, number: int) -> KeyHistory: ...


class NotPortableError(Exception):
    """Another process cannot load the model, or actions of the model. The message says why."""


class _Worker:
    """A process, and the numbers of the keys that it has yet to answer, in order."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()  # `theirs`: the end for the new process
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", WORKER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                process_group=0,  # a terminal sends Ctrl-C to the pool only
            )
        self.ready = False
        """Whether the process has loaded the model."""
        self.unanswered: deque[int] = deque()

    def send(self, message: object) -> bool:
        """Returns False if the process is gone. Raises ``NotPortableError`` for a message that cannot be pickled."""
        try:
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise NotPortableError(f"{type(error).__name__}: {error}") from error
        try:
            self.connection.send_bytes(data)
        except OSError:
            return False
        return True

    def receive(self) -> Any:
        """Returns the next message. Raises ``EOFError`` if the process is gone."""
        try:
            return self.connection.recv()
        except (OSError, pickle.UnpicklingError) as error:
            raise EOFError from error

    def end(self) -> int:
        """Ends the process. Returns its exit code, or the negative signal that ended it."""
        self.connection.close()
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()


class WorkerPool:
    """At most ``workers`` processes, started when there is work. A context manager, which ends all processes."""

    def __init__(self, model: Model, workers: int) -> None:
        self._model = model
        self.max_workers = workers
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._workers:
            self._workers.pop().end()

    def search(
        self, encoded: SupportsHistories, chunks: Iterable[Chunk], limits: Limits, workers: int | None = None
    ) -> Generator[tuple[int, KeyResult]]:
        """Yields each key's result, in order of arrival. ``workers``: maximum number of processes that work at once.

        Raises ``NotPortableError`` before the first result if another process cannot load the model, and at any time if
        a key's actions cannot be sent.
        """
        waiting = deque(chunks)
        while waiting or any(worker.unanswered for worker in self._workers):
            busy = sum(bool(worker.unanswered) for worker in self._workers)
            self._start(min(workers or self.max_workers, len(waiting) + busy))
            for worker in self._workers:
                if worker.ready and not worker.unanswered and waiting:
                    worker.unanswered.extend(waiting.popleft())
                    histories = [(number, encoded.history(number)) for number in worker.unanswered]
                    worker.send((histories, limits))  # a dead process is noticed next
            for worker in self._wait_for_messages():
                try:
                    message = worker.receive()
                except EOFError:
                    yield from self._handle_death(worker, encoded, waiting)
                    continue
                if worker.ready:
                    number, result = message
                    worker.unanswered.remove(number)
                    yield number, result
                elif message is None:
                    worker.ready = True
                else:
                    raise NotPortableError(message)

    def _start(self, wanted: int) -> None:
        while len(self._workers) < wanted:
            worker = _Worker()
            self._workers.append(worker)
            worker.send(self._model)

    def _wait_for_messages(self) -> list[_Worker]:
        """Returns the workers with a message, or whose process is gone."""
        readable = wait([worker.connection for worker in self._workers])
        return [worker for worker in self._workers if worker.connection in readable]

    def _handle_death(
        self, worker: _Worker, encoded: SupportsHistories, waiting: deque[Chunk]
    ) -> Iterator[tuple[int, KeyResult]]:
        """Handles a dead process: the key that it was searching is unknown, and another process gets its other keys."""
        self._workers.remove(worker)
        code = worker.end()
        if not worker.ready:
            raise NotPortableError(f"a process ended with code {code} before it began")
        if worker.unanswered:
            number = worker.unanswered.popleft()
            if worker.unanswered:
                waiting.appendleft(tuple(worker.unanswered))
            history = encoded.history(number)
            yield number, to_lost_result(history.key, len(history), _describe_exit(code))


def _describe_exit(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed, as the kernel does if memory runs out"
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
