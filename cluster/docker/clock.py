"""Compiles the library that shifts the clocks of a container's processes, on this machine, once per session."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from assay.cluster.ssh import clock

SOURCE = Path(__file__).with_name("clock.c")
COMPILER = "cc"


class ClockError(OSError):
    """It cannot be compiled here; the message has the reason and the remedy."""


@functools.cache
def library() -> bytes:
    """The shared object. It needs little of the C library, which the nodes' has, too. Raises ``ClockError``."""
    if shutil.which(COMPILER) is None:
        raise ClockError(f"there is no C compiler ({COMPILER}): `apt install gcc libc6-dev`")
    with tempfile.TemporaryDirectory(prefix="assay-clock-") as folder:
        made = Path(folder) / "shift.so"
        argv = [COMPILER, "-O2", "-shared", "-fPIC", f'-DSHIFT_FILE="{clock.FILE}"', "-o", str(made), str(SOURCE)]
        done = subprocess.run([*argv, "-ldl"], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()
            raise ClockError(f"`{' '.join(argv)}` exited {done.returncode} (`apt install libc6-dev`): {said}")
        return made.read_bytes()
