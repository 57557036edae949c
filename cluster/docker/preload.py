"""Compiles the libraries that the servers' processes preload, on this machine, once per session."""

import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assay.cluster.docker import code_archive
from assay.cluster.ssh import preloaded

COMPILER = "cc"


class PreloadError(OSError):
    """A library cannot be compiled here. The message has the reason and the remedy."""


@dataclass(frozen=True)
class PreloadLibrary:
    """A preloaded library. Its source is next to this module.

    - ``name``: of the source file, without ``.c``
    - ``path``: of the library on a node
    - ``file``: of the file on a node that controls the library
    - ``macro``: the preprocessor macro with the path of ``file``
    - ``zero``: the initial content of ``file``
    """

    name: str
    path: str
    macro: str
    file: str
    zero: bytes

    def archive(self) -> bytes:
        """Returns the archive of files for a node. Raises :class:`PreloadError`."""
        return code_archive.archive_files({self.path: (0o755, compile_library(self)), self.file: (0o666, self.zero)})


CLOCK = PreloadLibrary("clock", preloaded.CLOCK_LIBRARY, "SHIFT_FILE", preloaded.CLOCK_FILE, preloaded.CLOCK_ZERO)
SLOWNESS = PreloadLibrary("slowness", preloaded.DISK_LIBRARY, "SLOWNESS_FILE", preloaded.DISK_FILE, preloaded.DISK_ZERO)


@functools.cache
def compile_library(library: PreloadLibrary, compiler: str = COMPILER) -> bytes:
    """Returns the content of the shared object. Raises :class:`PreloadError`.

    The library uses little of the C library, so that it usually runs with a node's C library, too.
    """
    if shutil.which(compiler) is None:
        raise PreloadError(f"there is no C compiler ({compiler}): `apt install gcc libc6-dev`")
    source = Path(__file__).with_name(f"{library.name}.c")
    with tempfile.TemporaryDirectory(prefix="assay-preload-") as folder:
        target = Path(folder) / "library.so"
        argv = [
            compiler,
            "-O2",
            "-shared",
            "-fPIC",
            f'-D{library.macro}="{library.file}"',
            "-o",
            str(target),
            str(source),
            "-ldl",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            output = (done.stdout + done.stderr).strip()
            raise PreloadError(f"`{' '.join(argv)}` exited {done.returncode} (`apt install libc6-dev`): {output}")
        return target.read_bytes()
