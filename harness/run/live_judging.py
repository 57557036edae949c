"""Judges a run while it goes on (``--watch``), and ends it at the first forbidden anomaly (``--fail-fast``).

``assay watch`` does this in a process of its own with a low priority. Judging in the harness's process would block its
event loop, and so delay the operations under test. The findings come back line by line.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from assay.cluster.temporary_folders import create_temporary_folder
from assay.harness.core.printable import to_printable
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.progress import Progress, RunTally

FAILED_FAST: Final = "the run was ended at the first forbidden anomaly, by --fail-fast"
FOUND_LIVE_ONLY: Final = (
    "found while the run went on, and not in its whole history; this is an error of assay, please report it"
)
NICE: Final = 10
UNWATCHED: Final = "the run goes on unwatched, and is judged at its end"
END_SECONDS: Final = 5.0
"""Seconds that the watching process may take to end after SIGTERM."""
TAIL_BYTES: Final = 4096
"""Number of last bytes of its error output that are kept."""
MAX_LINE: Final = 1 << 20
"""Maximum length of one line of its output."""


class LiveJudgement(msgspec.Struct, frozen=True):
    """A judgement of a growing history: a line that ``assay watch --json`` prints.

    - ``until``: seconds of the run that were judged.
    - ``taken``: seconds that the judgement took.
    - ``found``: the number of instances of each forbidden anomaly.
    - ``text``: the judgement in words.
    - ``ended``: whether the judgement covers the whole run.
    """

    until: float
    taken: float
    operations: int
    found: dict[str, int]
    text: str
    ended: bool


def encode_judgement(judgement: LiveJudgement) -> str:
    return msgspec.json.encode(judgement).decode()


def make_watch_command(run: Path) -> list[str]:
    """Returns the command that watches ``run`` and prints a :class:`LiveJudgement` per line.

    SIGTERM ends it like Ctrl-C, so that it removes its temporary files. Modules of the current folder do not replace
    installed ones.
    """
    main = (
        "import signal; signal.signal(signal.SIGTERM, signal.default_int_handler); "
        "import sys; from assay.harness.cli.main import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", main, "watch", str(run), "--json", "--trust-run"]


@dataclass
class LiveJudge:
    """The watching process: call ``start``, and ``stop`` in every case.

    - ``found``: the forbidden anomalies so far.
    - ``problems``: why watching ended before the run, which is also reported at once.
    - ``fail_fast``: whether the first forbidden anomaly interrupts the run.
    """

    run: Path
    progress: Progress
    tally: RunTally
    interrupt: Interrupt
    fail_fast: bool = False
    found: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    process: Process | None = None
    _temporary: Path | None = None
    """Temporary files of the process. They are removed here, because a process may die at any point."""
    _following: asyncio.Task[None] | None = None
    _stopping: bool = False

    async def start(self) -> None:
        self._temporary = create_temporary_folder("live")
        self.process = await asyncio.create_subprocess_exec(
            *make_watch_command(self.run),
            env={**os.environ, "TMPDIR": str(self._temporary)},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            limit=MAX_LINE,
            start_new_session=True,  # Ctrl-C must reach only the run, which then ends this process
            preexec_fn=functools.partial(os.nice, NICE),
        )
        self._following = asyncio.get_running_loop().create_task(self._follow(self.process), name="watch")

    async def stop(self) -> None:
        """Ends the process. If it has ended by itself, ``problems`` says why. Idempotent."""
        process, self.process = self.process, None
        if process is None:
            return
        assert self._following is not None
        if process.returncode is None:
            self._stopping = True
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        # A child of the process may hold its pipes open, so this wait is bounded, too.
        await asyncio.wait([self._following], timeout=END_SECONDS)
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    async def _follow(self, process: Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        error_tail = asyncio.get_running_loop().create_task(_read_tail(process.stderr), name="errors of watch")
        try:
            try:
                while line := await process.stdout.readline():
                    if not self._stopping:
                        self._handle_judgement(msgspec.json.decode(line, type=LiveJudgement))
            except (ValueError, msgspec.MsgspecError) as error:
                # Later output could not be parsed either.
                process.kill()
                why = f"assay watch printed what is no judgement: {error}"
            else:
                why = f"assay watch exited with {await process.wait()}"
            errors = (await error_tail).strip().splitlines()
        finally:
            error_tail.cancel()
        if not self._stopping:
            last = f": {to_printable(errors[-1])}" if errors else ""
            self._report_early_end(f"--watch ended early: {why}{last}")

    def _report_early_end(self, problem: str) -> None:
        self.problems.append(problem)
        fast = ", so --fail-fast cannot end it" if self.fail_fast else ""
        self.progress.alarm(f"at {self.tally.elapsed:.1f} s: {problem}; {UNWATCHED}{fast}")

    def _handle_judgement(self, judgement: LiveJudgement) -> None:
        self.tally.judged_until = judgement.until
        if judgement.found.keys() <= self.found:
            return
        self.found |= judgement.found.keys()
        first = judgement.text.partition("\n")[0]
        self.progress.alarm(f"at {self.tally.elapsed:.1f} s, while the run goes on: {first}")
        if self.fail_fast:
            self.interrupt.end(FAILED_FAST)


async def _read_tail(stream: asyncio.StreamReader) -> str:
    """Reads a stream to its end, so that a full pipe never blocks the writer, and returns its last part."""
    tail = b""
    while chunk := await stream.read(1 << 16):
        tail = (tail + chunk)[-TAIL_BYTES:]
    return tail.decode(errors="replace")
