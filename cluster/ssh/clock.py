"""Shifts the wall clock of a node's running main process, by a preloaded library and a mapped file.

When a process starts, the library (``cluster/docker/clock.c``) maps the file. It adds the file's shift to the wall
clock that the process reads, and records the result. So the proof is a clock that the process itself read. Programs
with direct system calls (Go, static ones) are not affected, and nothing is recorded for them.
"""

from assay.cluster.ssh import mapped_words

FOLDER = "/opt/assay-clock"
LIBRARY = f"{FOLDER}/shift.so"
FILE = f"{FOLDER}/shift"
ZERO = bytes(3 * mapped_words.SIZE)
"""Initial content: the shift, the shift shown last, and the number of clock reads."""
NANOSECONDS = 1_000_000_000
READ_ATTEMPTS = 30
"""How often to look whether the process has read its clock: some seconds altogether."""
READ_INTERVAL = 0.05

READ = mapped_words.read_command(FILE)


def shift_command(seconds: float) -> str:
    """Returns the shell command that sets the clock ahead by this many seconds."""
    return mapped_words.write_command(FILE, 0, round(seconds * NANOSECONDS))


UNDO = ("sh", "-c", shift_command(0.0))


def parse_shown(output: str) -> tuple[float, int]:
    """Parses the output of :data:`READ`: the shift shown last, in seconds, and the number of clock reads."""
    _, last, times = mapped_words.parse_words(output)
    return last / NANOSECONDS, times
