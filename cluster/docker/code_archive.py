"""The system's code as a tar archive that containers get before they start.

Compiled modules are included if this machine and the nodes have the same Python, because three brokers that compile a
hundred modules each take seconds on a small machine. A stale compiled module is harmless: it contains the size and time
of its source, and Python compiles the source again if they differ.
"""

import importlib.util
import io
import stat
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from assay.cluster.docker.image import PYTHON
from assay.cluster.system import DeploymentError

ROOT = "opt/assay"
INIT = "__init__.py"

_NODES_CACHE = f".cpython-{PYTHON.replace('.', '')}.pyc"
"""End of the names of compiled modules that the nodes' Python can load."""


def archive_code(folders: Sequence[str]) -> bytes:
    """Packs folders or one-file modules of the Python path below ``/opt/assay`` under the same name.

    Examples are ``bank`` and ``assay/system_under_test``. A folder given by absolute path is packed under its own name
    alone. For the packages around a folder, only ``__init__.py`` is included. Links are resolved, because in a checkout
    the parts of ``assay`` are links to other folders.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        around: dict[str, Path] = {}
        for name in folders:
            found = locate(name)
            place = found.name if Path(name).is_absolute() or found.is_file() else name
            if place == name:
                around |= _packages_around(name, found)
            tar.add(found.resolve(), arcname=f"{ROOT}/{place}", filter=_filter_member)
        for place, file in around.items():
            tar.add(file.resolve(), arcname=f"{ROOT}/{place}", filter=_filter_member)
    return buffer.getvalue()


def _packages_around(name: str, found: Path) -> dict[str, Path]:
    """Returns the ``__init__.py`` of each package around the folder ``name``, by its place in the archive."""
    outer = list(zip(Path(name).parents, found.parents, strict=False))[:-1]
    return {f"{place}/{INIT}": folder / INIT for place, folder in outer if (folder / INIT).is_file()}


def archive_files(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """Returns an archive of files owned by root: absolute path to (mode, content)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (mode, content) in files.items():
            info = tarfile.TarInfo(path.lstrip("/"))
            info.mode, info.size = mode, len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


MAX_COPY: Final = 256 << 20
"""Maximum bytes of the files that a container gets from one path of this machine."""


def archive_path(place: str, source: Path | bytes) -> bytes:
    """Returns an archive of a file or folder of this machine, with its owners and modes, for the path ``place``.

    The source may also be the contents of a file. Raises :class:`DeploymentError` if it cannot be read or is larger
    than ``MAX_COPY``.
    """
    if isinstance(source, bytes):
        return archive_files({place: (0o444, source)})
    files = [source, *source.rglob("*")] if source.is_dir() else [source]
    buffer = io.BytesIO()
    try:
        size = sum(status.st_size for status in (file.lstat() for file in files) if stat.S_ISREG(status.st_mode))
        if size > MAX_COPY:
            raise DeploymentError(f"{source} has {size} bytes, and at most {MAX_COPY} are copied into a container")
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(source.resolve(), arcname=place.lstrip("/"))
    except OSError as error:
        raise DeploymentError(f"{source} cannot be copied into a container: {error}") from error
    return buffer.getvalue()


def locate(name: str) -> Path:
    """Returns the folder or module. Raises :class:`DeploymentError` if there is none."""
    if Path(name).is_absolute() and Path(name).is_dir():
        return Path(name)
    for entry in sys.path:
        if (found := Path(entry or ".").resolve() / name).is_dir():
            return found  # not resolved: its parents are the packages around it
    # An editable install may have its own finder and no entry in sys.path.
    package, _, inside = name.partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    for place in (spec.submodule_search_locations if spec else None) or []:
        if (found := Path(place) / inside).is_dir():
            return found
    if spec is not None and spec.origin is not None and Path(spec.origin).is_file() and not inside:
        return Path(spec.origin)
    raise DeploymentError(
        f"{name!r} of System.source is not a folder on the Python path; name the package's own folder"
    )


def _filter_member(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(info.name)
    if name.suffix == ".pyc" and not name.name.endswith(_NODES_CACHE):
        return None
    if name.name in {".git", ".mypy_cache", ".ruff_cache"}:
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info
