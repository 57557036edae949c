"""The wall clock of a node's main process, shifted while it runs: by a library that is preloaded, through a file.

The library (``cluster/docker/clock.c``) maps the file when a process starts, adds the shift in there to the wall clock
that the process reads, and notes what it has shown. So the proof is a clock that was read, by the process
itself. Programs that ask the kernel by themselves (Go, static ones) do not notice, and then show nothing.
"""

import struct

FOLDER = "/opt/assay-clock"
LIBRARY = f"{FOLDER}/shift.so"
FILE = f"{FOLDER}/shift"
"""Never made shorter: a process that has it mapped would die of SIGBUS."""
ZERO = bytes(24)
"""What is in there at first: the shift, the one last shown, and how often one was; int64 each."""
NANOSECONDS = 1_000_000_000
LOOKS = 30
"""At whether the process has read its clock: some seconds altogether."""
LOOK_EVERY = 0.05

READ = f"od -An -t d8 {FILE}"


def shift(seconds: float) -> str:
    """The shell command that shifts the clock to so much ahead."""
    octal = "".join(f"\\{byte:03o}" for byte in struct.pack("<q", round(seconds * NANOSECONDS)))
    return f"printf '{octal}' | dd of={FILE} bs=8 count=1 conv=notrunc status=none"


UNDO = ("sh", "-c", shift(0.0))


def shown(output: str) -> tuple[float, int]:
    """What :data:`READ` printed: the shift last shown, in seconds, and how often one was."""
    _, last, times = output.split()
    return int(last) / NANOSECONDS, int(times)
