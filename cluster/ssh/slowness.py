"""The disk of a node's main process, slow while it runs: by a library that is preloaded, through a file.

The library (``cluster/docker/slowness.c``) maps the file when a process starts, lets calls about files in one folder
take longer by what stands in there, and counts those. Programs that ask the kernel by themselves (Go, static ones),
map their files or queue their calls (io_uring) do not notice, and then are not counted.
"""

from assay.cluster.node import Slowed
from assay.cluster.ssh import mapped

PLACE = "/opt/assay-slowness"
LIBRARY = f"{PLACE}/slowness.so"
FILE = f"{PLACE}/slowness"
FOLDER = "ASSAY_SLOW_FOLDER"
"""The variable of the environment that names the folder of the files that are slow."""
ZERO = bytes(6 * mapped.SIZE)
"""What is in the file at first: microseconds of an fsync and of other calls, the halt, and the three counts."""
MICROSECONDS = 1_000_000
HALT = 2
COUNTS = 3

READ = mapped.read(FILE)


def slow(fsync: float, call: float) -> str:
    """The shell command that makes these calls take so many seconds more."""
    return mapped.write(FILE, 0, round(fsync * MICROSECONDS), round(call * MICROSECONDS))


def halt(after: float) -> str:
    """The one that has the process stop itself when so many seconds of a slow fsync are over; 0: not."""
    return mapped.write(FILE, HALT, round(after * MICROSECONDS))


UNDO = ("sh", "-c", mapped.write(FILE, 0, 0, 0, 0))


def so_far(output: str) -> Slowed:
    """What :data:`READ` printed."""
    return Slowed(*mapped.words(output)[COUNTS:])
