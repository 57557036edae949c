"""The wall clock of a node's main process, shifted while it runs: by a library that is preloaded, through a file.

The library (``cluster/docker/clock.c``) maps the file when a process starts, adds the shift in there to the wall clock
that the process reads, and notes what it has shown. So the proof is a clock that was read, by the process
itself. Programs that ask the kernel by themselves (Go, static ones) do not notice, and then show nothing.
"""

from assay.cluster.ssh import mapped_words

FOLDER = "/opt/assay-clock"
LIBRARY = f"{FOLDER}/shift.so"
FILE = f"{FOLDER}/shift"
ZERO = bytes(3 * mapped_words.SIZE)
"""What is in there at first: the shift, the one last shown, and how often one was."""
NANOSECONDS = 1_000_000_000
LOOKS = 30
"""At whether the process has read its clock: some seconds altogether."""
LOOK_EVERY = 0.05

READ = mapped_words.read(FILE)


def shift(seconds: float) -> str:
    """The shell command that shifts the clock to so much ahead."""
    return mapped_words.write(FILE, 0, round(seconds * NANOSECONDS))


UNDO = ("sh", "-c", shift(0.0))


def shown(output: str) -> tuple[float, int]:
    """What :data:`READ` printed: the shift last shown, in seconds, and how often one was."""
    _, last, times = mapped_words.words(output)
    return last / NANOSECONDS, times
