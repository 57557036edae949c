"""Faults by libraries preloaded into a node's main process: a shifted clock, a slow or failing disk.

When a process starts, each library (``cluster/docker/clock.c``, ``slowness.c``) maps a file of int64 words. The harness
writes some words, and they take effect in the running process at once. The library counts its effects in the remaining
words, which proves that the process was affected. The files are never truncated, because processes that have them
mapped would die of SIGBUS.

- Clock: the file's shift is added to the wall clock that the process reads.
- Disk: calls on files in one folder are delayed, or fail.

The libraries do not affect or count programs with direct system calls (Go, static programs), memory-mapped files, and
queued calls (io_uring).
"""

import asyncio
import shlex
import struct
from collections.abc import Collection, Mapping
from typing import Final

from assay.cluster.node import DiskChange, DiskErrorEffects, NodeError, Slowed
from assay.cluster.ssh import process
from assay.cluster.ssh.node_processes import CommandMethods

WORD_SIZE = 8
"""Bytes."""


def write_words_command(file: str, first: int, *words: int) -> str:
    """Returns the shell command that overwrites words from index ``first`` on, and no others."""
    octal = "".join(f"\\{byte:03o}" for byte in struct.pack(f"<{len(words)}q", *words))
    return f"printf '{octal}' | dd of={file} bs={WORD_SIZE} seek={first} conv=notrunc status=none"


def read_words_command(file: str) -> str:
    """Returns the shell command that prints all words."""
    return f"od -An -v -t d8 {file}"


# The clock

CLOCK_FOLDER = "/opt/assay-clock"
CLOCK_LIBRARY = f"{CLOCK_FOLDER}/shift.so"
CLOCK_FILE = f"{CLOCK_FOLDER}/shift"
CLOCK_ZERO = bytes(3 * WORD_SIZE)
"""Initial content: the shift, the shift of the latest clock read, and the number of clock reads."""
NANOSECONDS = 1_000_000_000
"""Nanoseconds per second."""
CLOCK_READ_ATTEMPTS = 30
"""Maximum number of checks whether the process has read its clock."""
CLOCK_READ_INTERVAL = 0.05
"""Seconds between two of these checks."""


def shift_command(seconds: float, file: str = CLOCK_FILE) -> str:
    """Returns the shell command that sets the clock ahead by this many seconds."""
    return write_words_command(file, 0, round(seconds * NANOSECONDS))


def parse_shown(output: str) -> tuple[float, int]:
    """Parses the words of the clock's file: the latest shift that was read (seconds), and the count of reads."""
    _, last, times = map(int, output.split())
    return last / NANOSECONDS, times


# The disk

DISK_FOLDER = "/opt/assay-slowness"
DISK_LIBRARY = f"{DISK_FOLDER}/slowness.so"
DISK_FILE = f"{DISK_FOLDER}/slowness"
DISK_VARIABLE = "ASSAY_SLOW_FOLDER"
"""Environment variable that names the folder whose files are slow."""
DISK_ZERO = bytes(12 * WORD_SIZE)
"""Initial content of the file, in words:

- microseconds added to an fsync and to other calls, and the microseconds until the halt
- for failing changes: how many succeed first, how many are then rejected, and the bits of their kinds
- the five counts of :func:`parse_slowed` and :func:`parse_failures`, and the id of the process that stopped itself last
"""
MICROSECONDS = 1_000_000
"""Microseconds per second."""
HALT = 2
AFTER = 3
KINDS = 5
COUNTS = 6
STOPPED = 11
"""``HALT`` to ``STOPPED`` are indexes of these words."""
ENDS, ENDS_AFTER = -1, -2
"""Special values of the number of rejected changes: the process ends before the change, or after it."""
BITS: Final[Mapping[DiskChange, int]] = {
    DiskChange.WRITE: 1,
    DiskChange.FSYNC: 2,
    DiskChange.CUT: 4,
    DiskChange.NAME: 8,
}


def read_disk_command(file: str = DISK_FILE) -> str:
    """Returns the command that prints all words, and the state (proc(5)) of the process that has stopped itself."""
    state = "sed 's/.*) //' /proc/$1/stat 2>/dev/null | cut -c 1"
    words = read_words_command(file)
    return f"set -- $(od -An -v -t d8 -j {STOPPED * WORD_SIZE} {file}); {words} && {state}"


def slow_command(file: str, fsync: float, call: float) -> str:
    """Returns the shell command that adds ``fsync`` and ``call`` seconds to the calls."""
    return write_words_command(file, 0, round(fsync * MICROSECONDS), round(call * MICROSECONDS))


def halt_command(file: str, after: float) -> str:
    """Returns the command that makes the process stop itself ``after`` seconds into a slow fsync; 0 cancels it."""
    return write_words_command(file, HALT, round(after * MICROSECONDS))


def fail_command(
    file: str, changes: Collection[DiskChange], after: int = 0, errors: int = 0, after_change: bool = False
) -> str:
    """Returns the command that makes these changes fail. The kinds are written last, because they arm the failure."""
    kinds = write_words_command(file, KINDS, sum(BITS[change] for change in changes))
    if not changes:
        return kinds
    failure = errors or (ENDS_AFTER if after_change else ENDS)
    return f"{write_words_command(file, AFTER, after, failure, 0)} && {kinds}"


def parse_slowed(output: str) -> Slowed:
    """Parses the slowness in the output of :func:`read_disk_command`."""
    *words, last = output.split()
    fsyncs, calls, halts = map(int, words[COUNTS : COUNTS + 3])
    return Slowed(fsyncs, calls, halts, last in ("T", "t"))


def parse_failures(output: str) -> DiskErrorEffects:
    """Parses the failures in the output of :func:`read_disk_command`."""
    return DiskErrorEffects(*map(int, output.split()[COUNTS + 3 : STOPPED]))


class PreloadMethods(CommandMethods):
    """Mixin of :class:`assay.cluster.ssh.node.SshNode` for shifted clocks, and slow and failing disks."""

    @property
    def _root(self) -> str:
        """The root folder of the main process's files; empty if they are the node's own."""
        raise NotImplementedError

    @property
    def _clock_file(self) -> str:
        return f"{self._root}{CLOCK_FILE}"

    @property
    def _disk_file(self) -> str:
        return f"{self._root}{DISK_FILE}"

    def __init__(self) -> None:
        self._clock_missing: str | None = "its processes were started without the library that shifts clocks"
        self._slowness_missing: str | None = "its processes were started without the library that slows disks"
        self._clock_reads_before = 0

    def set_missing_preloads(self, *, clock: str | None, slowness: str | None) -> None:
        """Sets why the processes lack each preloaded library; None means that they have it."""
        self._clock_missing, self._slowness_missing = clock, slowness

    async def shift_clock(self, seconds: float) -> None:
        self._require_clock()
        if seconds:
            await self._record_undo("clock", ("sh", "-c", shift_command(0.0, self._clock_file)))
        await self.shell(shift_command(seconds, self._clock_file))
        self._clock_reads_before = parse_shown(await self.shell(read_words_command(self._clock_file)))[1]
        if not seconds:
            await self._mark_undone("clock")

    async def clock_shift(self) -> float:
        """Returns the shift that the main process has read since the last change; 0 if it has not read the clock."""
        self._require_clock()
        for _ in range(CLOCK_READ_ATTEMPTS):
            seconds, reads = parse_shown(await self.shell(read_words_command(self._clock_file)))
            if reads > self._clock_reads_before:
                return seconds
            await asyncio.sleep(CLOCK_READ_INTERVAL)
        return 0.0

    def _require_clock(self) -> None:
        if self._clock_missing is not None:
            raise NodeError(f"the clock of {self.name} cannot be shifted: {self._clock_missing}")

    def slowness_unavailable(self) -> str | None:
        return self._slowness_missing

    async def slow_disk(self, fsync: float, call: float = 0.0) -> None:
        self._require_slowness()
        if fsync or call:
            await self._record_undo("slow", ("sh", "-c", write_words_command(self._disk_file, 0, 0, 0, 0)))
        await self.shell(slow_command(self._disk_file, fsync, call))
        if not fsync and not call:
            await self._mark_undone("slow")

    async def halt_in_fsync(self, after: float) -> None:
        self._require_slowness()
        if after:
            await self._record_undo("halt", process.UNDO_STOP)
        await self.shell(halt_command(self._disk_file, after))
        if not after:
            await self.shell(shlex.join(process.UNDO_STOP))
            await self._mark_undone("halt")

    async def read_disk_delays(self) -> Slowed:
        self._require_slowness()
        return parse_slowed(await self.shell(read_disk_command(self._disk_file)))

    async def break_disk(
        self, changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        self._require_slowness()
        if changes:
            await self._record_undo("break", ("sh", "-c", fail_command(self._disk_file, ())))
        await self.shell(fail_command(self._disk_file, changes, after, errors, after_change))
        if not changes:
            await self._mark_undone("break")

    async def read_disk_errors(self) -> DiskErrorEffects:
        self._require_slowness()
        return parse_failures(await self.shell(read_disk_command(self._disk_file)))

    def _require_slowness(self) -> None:
        if self._slowness_missing is not None:
            raise NodeError(f"the disk of {self.name} cannot be made slow, or to fail: {self._slowness_missing}")
