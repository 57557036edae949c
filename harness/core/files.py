"""Atomic writes, and reads that reject special files such as FIFOs, because reading those may never end."""

import errno
import os
import secrets
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_SIZE: Final = 1 << 30
"""Maximum size of a file that is read as a whole: a settings file, a schedule, or a record of a run."""
MARKED: Final = 1 << 16
"""Bytes at the beginning of a file in which the mark of its command is searched (``require_own_output``)."""
SPECIAL_TYPES: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class SpecialFileError(OSError):
    """A FIFO, a socket or a device was found instead of a file."""

    def __init__(self, path: Path, kind: str, why: str = "reading it may never end") -> None:
        super().__init__(errno.EINVAL, f"this is {kind}, and {why}: put a regular file there", str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class OutsideLinkError(SpecialFileError):
    """A symbolic link to a folder leads out of the folder that is read."""

    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(path, "a link")
        self.strerror = f"this link leads out of {folder}, and is not followed: put the folder itself there"


class ForeignFileError(SpecialFileError):
    """A file that a command would replace was not made by this command."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a file of others")
        self.strerror = "this command did not make this file, and does not replace it: move it, or name another file"


class HugeFileError(SpecialFileError):
    """A file that is read as a whole is larger than ``MAX_SIZE``, and might not fit into memory."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "a huge file")
        self.strerror = f"this file has {size / 1e9:.1f} GB, so it is damaged or no file of assay: remove it"


def read_file(path: Path) -> bytes:
    """Reads a file that a user names.

    Raises ``OSError``, :class:`SpecialFileError` unless it is a regular file, and :class:`HugeFileError`.
    """
    require_regular(path)
    size = path.stat().st_size
    if size > MAX_SIZE:
        raise HugeFileError(path, size)
    return path.read_bytes()


def read_json(path: Path, kind: type[T]) -> T:
    """Reads a JSON file like :func:`read_file`. Raises ``msgspec.DecodeError`` unless it is JSON of this type."""
    return decode_json(read_file(path), kind)


def read_json_if_valid(path: Path, kind: type[T]) -> T | None:
    """Reads a JSON file, or returns None if it is missing, unreadable or damaged: for readers that must not fail."""
    try:
        return read_json(path, kind)
    except (OSError, msgspec.MsgspecError):
        return None


def decode_json(data: bytes, kind: type[T]) -> T:
    """Decodes JSON. Raises ``msgspec.DecodeError`` also for text that is not UTF-8, and for values nested too deep."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def decode_toml(data: bytes) -> dict[str, Any]:
    """Decodes TOML. Raises ``ValueError`` also for text that is not UTF-8, and for values nested too deep."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("its values are nested too deep") from None


def require_regular(path: Path) -> None:
    """Raises :class:`SpecialFileError` for a FIFO, a socket or a device; ``OSError`` if nothing is there."""
    kind = SPECIAL_TYPES.get(stat.S_IFMT(path.stat().st_mode))
    if kind is not None:
        raise SpecialFileError(path, kind)


def require_regular_below(folder: Path) -> None:
    """Raises :class:`SpecialFileError` for the first FIFO, socket or device in a folder or any folder below it.

    Raises :class:`OutsideLinkError` for a link to a folder elsewhere, because a reader would follow it. A link to a
    folder inside is accepted, because that folder is checked anyway.
    """
    resolved = folder.resolve()
    for place, folders, names in os.walk(folder):
        for name in folders:
            path = Path(place) / name
            if path.is_symlink() and not path.resolve().is_relative_to(resolved):
                raise OutsideLinkError(path, folder)
        for name in names:
            path = Path(place) / name
            if path.exists():  # a link may be broken, and a file may have been deleted since it was listed
                require_regular(path)


def leads_outside(path: Path, folder: Path) -> bool:
    """Returns whether symbolic links lead from a path in a folder to a place outside of that folder."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def open_lock(path: Path) -> int:
    """Opens a file for ``flock``, and creates it if it is missing. Its content stays.

    Raises ``OSError``, and :class:`SpecialFileError` for a symbolic link or anything else but a regular file.
    """
    reject_links(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO is not waited for
    return os.open(path, flags, 0o666)


def reject_links(path: Path) -> None:
    """Raises :class:`SpecialFileError` for a symbolic link, a FIFO, a socket or a device.

    A writer would write elsewhere, or wait for ever. It is no error if nothing is there.
    """
    if path.is_symlink():
        raise SpecialFileError(path, "a symbolic link", "what is written would go elsewhere")
    if path.exists():
        require_regular(path)


def write_file(path: Path, data: bytes) -> None:
    """Writes a file that a user names, which may be a device such as ``/dev/stdout``.

    Raises ``OSError``, and :class:`SpecialFileError` for a FIFO that no one reads, because opening it would wait.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise SpecialFileError(path, "a FIFO or a socket", "no process reads it") from error
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        file.write(data)


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Yields an empty file beside ``path``, which replaces it when the block ends, and is removed if the block raises.

    The file has a random name. Otherwise a store from elsewhere could contain a link of that name, and the link would
    redirect the write.
    """
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # a partial file takes space on a disk that may be full
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file in one step. If it raises ``OSError``, the old file is unchanged."""
    with replace_atomically(path) as temporary:
        temporary.write_bytes(data)


def require_own_output(path: Path, mark: bytes) -> None:
    """Raises :class:`ForeignFileError` for a regular file that has content without ``mark`` at its beginning.

    ``mark`` is a text in each file that the command writes. A user may have named a wrong file by mistake.
    """
    begin = _read_beginning(path)
    if begin and mark not in begin:
        raise ForeignFileError(path)


def require_own_beginning(path: Path, beginnings: tuple[bytes, ...]) -> None:
    """Raises :class:`ForeignFileError` for a regular file that has content, and begins with none of ``beginnings``.

    For files in which any mark that a reader may see could also be a text of a user.
    """
    begin = _read_beginning(path)
    if begin and not begin.startswith(beginnings):
        raise ForeignFileError(path)


def _read_beginning(path: Path) -> bytes:
    """Returns the first ``MARKED`` bytes of a regular file; no bytes for anything else."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(MARKED)


def write_output(path: Path, data: bytes, mark: bytes) -> None:
    """Writes a file that a user names. A regular file, even behind a link, is replaced in one step.

    Anything else, such as ``/dev/stdout``, is written to and never replaced. ``mark``, which ``data`` has, is that of
    :func:`require_own_output`, and so is the error.
    """
    require_own_output(path, mark)
    if path.exists() and not path.is_file():
        write_file(path, data)
    else:
        write_atomically(Path(os.path.realpath(path)), data)
