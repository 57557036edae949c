"""Compiles C sources for the processors of a node's image: the libraries that the servers' processes preload.

``target_container`` compiles its program with the same functions. This machine's compiler does it in a fraction of a
second, if this machine is a Linux with the same processors. Otherwise a container of the engine does it. The image of
that container is the node image with a compiler, and is built once. The result is kept in the state folder, so that
later runs need no container.
"""

import functools
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assay.cluster.docker import code_archive, image, image_contents, layer, tools
from assay.cluster.docker.layer import BuildStep, ImageError, Progress
from assay.cluster.journal import state_folder
from assay.cluster.ssh import preloaded
from assay.cluster.temporary_folders import temporary_folder

COMPILER = "cc"
IMAGE = "assay-compiler"
"""Name of the image with a compiler."""
DOCKERFILE = f"""\
ARG NODE
FROM $NODE
LABEL assay=compiler {tools.NODE_IMAGE_LABEL}=@REFERENCE@
{tools.APT.format(packages="gcc libc6-dev")}"""
SECONDS = 120.0
"""Time limit of a compilation in a container."""


class PreloadError(OSError):
    """A library cannot be compiled. The message has the reason and the remedy."""


@dataclass(frozen=True)
class CSource:
    """A C source next to this module. ``name``: of the file, without ``.c``."""

    name: str

    @property
    def source(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.c")

    def command(self, compiler: str, source: str, target: str) -> list[str]:
        """Returns the compiler's command."""
        raise NotImplementedError


@dataclass(frozen=True)
class StaticProgram(CSource):
    """A program that needs no library of its image."""

    def command(self, compiler: str, source: str, target: str) -> list[str]:
        return [compiler, "-O2", "-static", "-o", target, source]


@dataclass(frozen=True)
class PreloadLibrary(CSource):
    """A preloaded library.

    - ``path``: of the library on a node
    - ``file``: of the file on a node that controls the library
    - ``macro``: the preprocessor macro with the path of ``file``
    - ``zero``: the initial content of ``file``
    - ``effect``: the possible effects, for messages
    """

    path: str
    macro: str
    file: str
    zero: bytes
    effect: str = ""

    def archive(self, architecture: str, progress: Progress) -> bytes:
        """Returns the archive of files for a node. Raises :class:`PreloadError`."""
        compiled = compile_library(self, architecture, progress)
        return code_archive.archive_files({self.path: (0o755, compiled), self.file: (0o666, self.zero)})

    def command(self, compiler: str, source: str, target: str) -> list[str]:
        options = ["-O2", "-shared", "-fPIC", f'-D{self.macro}="{self.file}"']
        return [compiler, *options, "-o", target, source, "-ldl"]


CLOCK = PreloadLibrary(
    "clock", preloaded.CLOCK_LIBRARY, "SHIFT_FILE", preloaded.CLOCK_FILE, preloaded.CLOCK_ZERO, "wrong clocks"
)
SLOWNESS = PreloadLibrary(
    "slowness",
    preloaded.DISK_LIBRARY,
    "SLOWNESS_FILE",
    preloaded.DISK_FILE,
    preloaded.DISK_ZERO,
    "slow and failing disks",
)


def compile_library(library: CSource, architecture: str, progress: Progress) -> bytes:
    """Returns the content of the shared object for these processors. Raises :class:`PreloadError`.

    ``architecture``: the processors of the nodes' image, as Docker names them. The library uses little of the C
    library, so that it usually runs with a node's C library, too.
    """
    if compiles_here(architecture):
        return compile_here(library)
    return compile_in_container(library, architecture, progress)


def compiles_here(architecture: str) -> bool:
    """Returns whether this machine's compiler makes programs for these processors and Linux."""
    return _has_processors(architecture) and shutil.which(COMPILER) is not None


def _has_processors(architecture: str) -> bool:
    return sys.platform == "linux" and platform.machine() == image_contents.MACHINES.get(architecture, architecture)


@functools.cache
def compile_here(library: CSource, compiler: str = COMPILER) -> bytes:
    """Returns the library or program, made by a compiler of this machine. Raises :class:`PreloadError`."""
    if shutil.which(compiler) is None:
        raise PreloadError(f"there is no C compiler ({compiler}): `apt install gcc libc6-dev`")
    with temporary_folder("preload") as folder:
        target = folder / "library.so"
        argv = library.command(compiler, str(library.source), str(target))
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            output = (done.stdout + done.stderr).strip()
            raise PreloadError(f"`{' '.join(argv)}` exited {done.returncode} (`apt install libc6-dev`): {output}")
        return target.read_bytes()


def compiler_reference() -> str:
    """Returns the tag of the image with a compiler."""
    return f"{IMAGE}:{hashlib.sha256(_dockerfile().encode()).hexdigest()[:12]}"


def is_ready(architecture: str) -> bool:
    """Returns whether no image must be built for the libraries. Raises :class:`ImageError`."""
    cached = all(cached_path(library, architecture).exists() for library in (CLOCK, SLOWNESS))
    return cached or layer.exists(compiler_reference())


def cached_path(library: CSource, architecture: str) -> Path:
    """Returns the path of a library or program that a container has compiled, or will compile."""
    parts = (*library.command("gcc", "", ""), architecture, compiler_reference(), library.source.read_text())
    return state_folder() / "preloads" / f"{library.name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.so"


def _dockerfile() -> str:
    return DOCKERFILE.replace("@REFERENCE@", image.image_reference())


def compile_in_container(library: CSource, architecture: str, progress: Progress) -> bytes:
    """Returns the library or program, made by a container. Raises :class:`PreloadError`."""
    cached = cached_path(library, architecture)
    if cached.exists():
        return cached.read_bytes()
    try:
        _ensure_compiler(architecture, progress)
        compiled = _run_compiler(library)
    except ImageError as error:
        remedy = "; or on this machine: `apt install gcc libc6-dev`" if _has_processors(architecture) else ""
        raise PreloadError(f"no container of the engine could compile {library.name}.c: {error}{remedy}") from error
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=cached.parent, delete=False) as file:
        file.write(compiled)
    Path(file.name).replace(cached)
    return compiled


def _ensure_compiler(architecture: str, progress: Progress) -> None:
    reference, node = compiler_reference(), image.image_reference()
    own = layer.image_architecture(node)
    if own != architecture:
        raise ImageError(
            f"the image is for {architecture}, and the node image for {own}: build the image for linux/{own}"
        )
    if layer.exists(reference):
        return
    with image.hold_build_lock():
        if not layer.exists(reference):
            BuildStep(progress)(
                "image with a C compiler, for wrong clocks, slow disks and images without a shell",
                lambda: layer.build(_dockerfile(), reference, {"NODE": node}, network="host"),
            )


def _run_compiler(library: CSource) -> bytes:
    """Compiles a source in a container, which gets the source on its standard input."""
    script = 'cat > /tmp/source.c && "$@" >&2 && cat /tmp/library.so'
    argv = ["docker", "run", "--rm", "-i", "--network=none", "--entrypoint=/bin/sh", compiler_reference()]
    argv += ["-c", script, "sh", *library.command("gcc", "/tmp/source.c", "/tmp/library.so")]
    try:
        done = subprocess.run(
            argv,
            input=library.source.read_bytes(),
            capture_output=True,
            check=False,
            timeout=SECONDS,
            env=layer.command_environment(),
        )
    except (*layer.NO_PROGRAM, subprocess.TimeoutExpired) as error:
        raise ImageError(str(error)) from error
    if done.returncode != 0:
        raise ImageError(f"gcc exited {done.returncode}: {layer.last_lines(done.stderr.decode(errors='replace'))}")
    return done.stdout
