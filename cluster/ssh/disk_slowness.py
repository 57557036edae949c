"""The disk of a node's main process, slow or failing while it runs: by a library that is preloaded, through a file.

The library (``cluster/docker/slowness.c``) maps the file when a process starts, lets calls about files in one folder
take longer by what stands in there, or fails them, and counts those. Programs that ask the kernel by themselves (Go,
static ones), map their files or queue their calls (io_uring) do not notice, and then are not counted.
"""

from collections.abc import Collection, Mapping
from typing import Final

from assay.cluster.node import Broken, DiskChange, Slowed
from assay.cluster.ssh import mapped_words

PLACE = "/opt/assay-slowness"
LIBRARY = f"{PLACE}/slowness.so"
FILE = f"{PLACE}/slowness"
FOLDER = "ASSAY_SLOW_FOLDER"
"""The variable of the environment that names the folder of the files that are slow."""
ZERO = bytes(12 * mapped_words.SIZE)
"""What is in the file at first: microseconds of an fsync and of other calls, the halt; of changes that fail how many
are as before, how many are then rejected, and the bits of their kinds; the five counts; and who stopped itself last."""
MICROSECONDS = 1_000_000
HALT = 2
AFTER = 3
KINDS = 5
COUNTS = 6
STOPPED = 11
ENDS, ENDS_AFTER = -1, -2
"""In the place of how many are rejected: the process ends before the change, or after it."""
BITS: Final[Mapping[DiskChange, int]] = {
    DiskChange.WRITE: 1,
    DiskChange.FSYNC: 2,
    DiskChange.CUT: 4,
    DiskChange.NAME: 8,
}


def look(file: str = FILE) -> str:
    """The shell command that prints all, and the state of the process that has stopped itself, as proc(5) has it."""
    state = "sed 's/.*) //' /proc/$1/stat 2>/dev/null | cut -c 1"
    return f"set -- $(od -An -v -t d8 -j {STOPPED * mapped_words.SIZE} {file}); {mapped_words.read(file)} && {state}"


READ = look()


def slow(fsync: float, call: float) -> str:
    """The shell command that makes these calls take so many seconds more."""
    return mapped_words.write(FILE, 0, round(fsync * MICROSECONDS), round(call * MICROSECONDS))


def halt(after: float) -> str:
    """The one that has the process stop itself when so many seconds of a slow fsync are over; 0: not."""
    return mapped_words.write(FILE, HALT, round(after * MICROSECONDS))


def fail(changes: Collection[DiskChange], after: int = 0, errors: int = 0, made: bool = False) -> str:
    """The one that has these changes fail; the kinds are written last, by which it is in force."""
    kinds = mapped_words.write(FILE, KINDS, sum(BITS[change] for change in changes))
    if not changes:
        return kinds
    what = errors or (ENDS_AFTER if made else ENDS)
    return f"{mapped_words.write(FILE, AFTER, after, what, 0)} && {kinds}"


UNDO = ("sh", "-c", mapped_words.write(FILE, 0, 0, 0, 0))
UNDO_FAILING = ("sh", "-c", fail(()))


def so_far(output: str) -> Slowed:
    """What :func:`look` printed."""
    *words, last = output.split()
    fsyncs, calls, halts = map(int, words[COUNTS : COUNTS + 3])
    return Slowed(fsyncs, calls, halts, last in ("T", "t"))


def failed(output: str) -> Broken:
    """The same, of what fails."""
    return Broken(*map(int, output.split()[COUNTS + 3 : STOPPED]))
