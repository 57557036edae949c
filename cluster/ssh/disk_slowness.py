"""Slows or fails the disk of a node's running main process, by a preloaded library and a mapped file.

When a process starts, the library (``cluster/docker/slowness.c``) maps the file. It delays or fails calls on files in
one folder as the file's words say, and counts them. Programs with direct system calls (Go, static ones), memory-mapped
files or queued calls (io_uring) are not affected and not counted.
"""

from collections.abc import Collection, Mapping
from typing import Final

from assay.cluster.node import DiskChange, DiskErrorEffects, Slowed
from assay.cluster.ssh import mapped_words

PLACE = "/opt/assay-slowness"
LIBRARY = f"{PLACE}/slowness.so"
FILE = f"{PLACE}/slowness"
FOLDER = "ASSAY_SLOW_FOLDER"
"""Environment variable that names the folder whose files are slow."""
ZERO = bytes(12 * mapped_words.SIZE)
"""Initial content of the file, in words:

- microseconds added to an fsync and to other calls, and the microseconds until the halt
- for failing changes: how many succeed first, how many are then rejected, and the bits of their kinds
- the five counts, and the id of the process that stopped itself last
"""
MICROSECONDS = 1_000_000
HALT = 2
AFTER = 3
KINDS = 5
COUNTS = 6
STOPPED = 11
ENDS, ENDS_AFTER = -1, -2
"""Values in place of the number of rejected changes: the process ends before the change, or after it."""
BITS: Final[Mapping[DiskChange, int]] = {
    DiskChange.WRITE: 1,
    DiskChange.FSYNC: 2,
    DiskChange.CUT: 4,
    DiskChange.NAME: 8,
}


def look_command(file: str = FILE) -> str:
    """Prints all words, and the state (proc(5)) of the process that has stopped itself."""
    state = "sed 's/.*) //' /proc/$1/stat 2>/dev/null | cut -c 1"
    words = mapped_words.read_command(file)
    return f"set -- $(od -An -v -t d8 -j {STOPPED * mapped_words.SIZE} {file}); {words} && {state}"


READ = look_command()


def slow_command(fsync: float, call: float) -> str:
    """Returns the shell command that adds ``fsync`` and ``call`` seconds to the calls."""
    return mapped_words.write_command(FILE, 0, round(fsync * MICROSECONDS), round(call * MICROSECONDS))


def halt_command(after: float) -> str:
    """Returns the command that makes the process stop itself ``after`` seconds into a slow fsync; 0 cancels it."""
    return mapped_words.write_command(FILE, HALT, round(after * MICROSECONDS))


def fail_command(changes: Collection[DiskChange], after: int = 0, errors: int = 0, after_change: bool = False) -> str:
    """Returns the command that makes these changes fail. The kinds are written last, because they arm the failure."""
    kinds = mapped_words.write_command(FILE, KINDS, sum(BITS[change] for change in changes))
    if not changes:
        return kinds
    what = errors or (ENDS_AFTER if after_change else ENDS)
    return f"{mapped_words.write_command(FILE, AFTER, after, what, 0)} && {kinds}"


UNDO = ("sh", "-c", mapped_words.write_command(FILE, 0, 0, 0, 0))
UNDO_FAILING = ("sh", "-c", fail_command(()))


def parse_slowed(output: str) -> Slowed:
    """Parses the slowness in the output of :func:`look`."""
    *words, last = output.split()
    fsyncs, calls, halts = map(int, words[COUNTS : COUNTS + 3])
    return Slowed(fsyncs, calls, halts, last in ("T", "t"))


def parse_failures(output: str) -> DiskErrorEffects:
    """Parses the failures in the output of :func:`look`."""
    return DiskErrorEffects(*map(int, output.split()[COUNTS + 3 : STOPPED]))
