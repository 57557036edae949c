"""A run that is judged while it goes on (``--watch``), and ended at the first forbidden anomaly (``--fail-fast``).

``assay watch`` does it, in a process of its own that yields to the cluster: judging in the harness's process would hold
up its event loop, and so delay the very operations that are to be judged. What it finds comes back line by line.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from assay.harness.run.interrupt import Interrupt
from assay.harness.run.progress import Progress, Tally

FAILED_FAST: Final = "the run was ended at the first forbidden anomaly, by --fail-fast"
NO_MORE: Final = (
    "found while the run went on, and not in its whole history; this is an error of assay, please report it"
)
NICE: Final = 10
END_SECONDS: Final = 5.0
"""For the process to end once it has been asked to."""
MOST_BYTES: Final = 1 << 20
"""Of one line."""


class Seen(msgspec.Struct, frozen=True):
    """One judgement of what there was of a run: a line that ``assay watch --json`` prints.

    ``until``: seconds of the run that were judged; ``taken``: seconds that it took; ``found``: each forbidden anomaly
    with its number of instances; ``text``: the judgement in words; ``ended``: it is of the whole run.
    """

    until: float
    taken: float
    operations: int
    found: dict[str, int]
    text: str
    ended: bool


def encode(seen: Seen) -> str:
    return msgspec.json.encode(seen).decode()


@dataclass
class Watched:
    """``start``, then ``stop`` in every case. ``found`` holds what was found, ``problems`` why it ended before the run.

    ``fail_fast``: the first forbidden anomaly interrupts the run.
    """

    run: Path
    progress: Progress
    tally: Tally
    interrupt: Interrupt
    fail_fast: bool = False
    found: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    process: Process | None = None
    _following: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    async def start(self) -> None:
        command = [sys.executable, "-c", "import sys; from assay.harness.cli.main import main; sys.exit(main())"]
        given = ["watch", str(self.run), "--json"]
        self.process = await asyncio.create_subprocess_exec(
            *command,
            *given,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            limit=MOST_BYTES,
            start_new_session=True,  # Ctrl-C is for the run, which ends this
            preexec_fn=functools.partial(os.nice, NICE),
        )
        self._following = asyncio.get_running_loop().create_task(self._follow(self.process), name="watch")

    async def stop(self) -> None:
        """Ends it, and keeps in ``problems`` why it had ended before. Idempotent."""
        process, self.process = self.process, None
        if process is None:
            return
        assert self._following is not None
        ended = process.returncode
        if ended is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        if ended is not None:
            assert process.stderr is not None
            said = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
            self.problems.append(f"--watch ended early: assay watch exited with {ended}: {said[-1] if said else ''}")

    async def _follow(self, process: Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._take(msgspec.json.decode(line, type=Seen))

    def _take(self, seen: Seen) -> None:
        self.tally.watched = seen.until
        if seen.found.keys() <= self.found:
            return
        self.found |= seen.found.keys()
        first = seen.text.partition("\n")[0]
        self.progress.alarm(f"at {self.tally.elapsed:.1f} s, while the run goes on: {first}")
        if self.fail_fast:
            self.interrupt.end(FAILED_FAST)
