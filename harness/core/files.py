"""Atomic writes, and reads that reject special files such as FIFOs, because reading those may never end."""

import errno
import os
import re
import secrets
import stat
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_SIZE: Final = 1 << 30
"""Maximum size of a file that is read as a whole: a settings file, a schedule, or a record of a run."""
STREAMS: Final = {"/dev/stdout": 1, "/dev/stderr": 2}
"""Names of the standard streams, with their descriptors."""
DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})")
"""Name of an open descriptor, such as the shell gives to a process substitution."""
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


def open_for_append(path: Path) -> BinaryIO:
    """Opens a file for reading and appending, and creates it if it is missing.

    Raises ``OSError``, and :class:`SpecialFileError` for a symbolic link or anything else but a regular file.
    """
    reject_links(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return open(os.open(path, flags, 0o666), "ab+")


def reject_links(path: Path) -> None:
    """Raises :class:`SpecialFileError` for a symbolic link, a FIFO, a socket or a device.

    A writer would write elsewhere, or wait for ever. It is no error if nothing is there.
    """
    if path.is_symlink():
        raise SpecialFileError(path, "a symbolic link", "what is written would go elsewhere")
    if path.exists():
        require_regular(path)


def find_descriptor(path: Path) -> int | None:
    """Returns the open descriptor that a path such as ``/dev/stdout`` names, or None for any other path."""
    named = DESCRIPTOR.fullmatch(str(path))
    return int(named[1]) if named else STREAMS.get(str(path))


def is_stream(path: Path) -> bool:
    """Returns whether a path names an open descriptor, a device or a FIFO, which is written to and never replaced."""
    return find_descriptor(path) is not None or (path.exists() and not (path.is_file() or path.is_dir()))


def _write_to_stream(path: Path, data: bytes) -> None:
    """Writes to a stream.

    An open descriptor is not opened again, because that would truncate the file behind a redirection of the shell.
    Raises ``OSError``, and :class:`SpecialFileError` for a FIFO that no one reads, because opening it would wait.
    """
    descriptor = find_descriptor(path)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        if descriptor is None:
            opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(opened, True)
        else:
            opened = os.dup(descriptor)
        with open(opened, "wb") as file:
            file.write(data)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise SpecialFileError(path, "a FIFO or a socket", "no process reads it") from error
        if error.errno == errno.EBADF:
            raise SpecialFileError(path, "a descriptor", "it is not open for writing") from error
        raise _name_file(error, path) from error


def _name_file(error: OSError, path: Path) -> OSError:
    """Returns the error with the name of the file that could not be written."""
    return OSError(error.errno, error.strerror, str(path))


@contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """Yields an empty file beside ``path``, which replaces it when the block ends, and is removed if the block raises.

    The file has a random name, and is never opened a second time by its name. Otherwise the owner of the folder could
    put a link there, and the link would redirect the write, or the change of the owner.

    A regular file keeps its mode and its owner, so a private file stays private. The mode of a new file follows the
    umask.
    """
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}")
    old = _find_regular(path)
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777 | stat.S_IWUSR
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(temporary, flags, mode), "wb") as file:
        try:
            yield file
            file.flush()
            if old is not None:
                _keep_access(file.fileno(), old)
            if not os.path.samestat(os.fstat(file.fileno()), temporary.lstat()):
                raise OSError(errno.EBUSY, "another process has replaced the new content of this file", str(path))
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)  # a partial file takes space on a disk that may be full
            raise


def _find_regular(path: Path) -> os.stat_result | None:
    """Returns the attributes of a regular file, or None for anything else, also for a link."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _keep_access(descriptor: int, old: os.stat_result) -> None:
    """Gives a new file the mode and the owner of the one that it replaces, as far as this user may."""
    new, mode = os.fstat(descriptor), stat.S_IMODE(old.st_mode) & 0o777
    if stat.S_IMODE(new.st_mode) != mode:
        os.fchmod(descriptor, mode)  # first, because the owner may be another user afterwards
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):  # only root can give files away, and not to users outside of its namespace
            os.fchown(descriptor, old.st_uid, old.st_gid)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file in one step. If it raises ``OSError``, which names the file, the old file is unchanged."""
    try:
        with replace_atomically(path) as file:
            file.write(data)
    except OSError as error:
        raise _name_file(error, path) from error


def require_own_output(path: Path, own: re.Pattern[bytes]) -> None:
    """Raises ``OSError`` unless a command may write the file that a user named.

    ``own`` matches the content of each file that the command writes. A user may have named a wrong file by mistake, so
    any other file raises :class:`ForeignFileError`, unless it is empty. So does a link or a disk raise
    :class:`SpecialFileError`. ``/dev/stdout``, FIFOs and devices such as ``/dev/null`` are written to.
    """
    if find_descriptor(path) is not None:
        return
    if path.is_symlink():
        raise SpecialFileError(path, "a symbolic link", "what is written would go elsewhere")
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.is_block_device():
        raise SpecialFileError(path, "a disk", "its content would be overwritten")
    if path.is_file() and not _matches(path, own):
        raise ForeignFileError(path)


def _matches(path: Path, own: re.Pattern[bytes]) -> bool:
    """Returns whether a regular file is empty, or ``own`` matches its content."""
    size = path.stat().st_size
    return size == 0 or (size <= MAX_SIZE and own.match(path.read_bytes()) is not None)


def write_output(path: Path, data: bytes, own: re.Pattern[bytes]) -> None:
    """Writes a file that a user names in an option. A regular file is replaced in one step.

    A stream, such as ``/dev/stdout``, is written to and never replaced. ``own`` is that of :func:`require_own_output`,
    and so is the error.
    """
    require_own_output(path, own)
    if is_stream(path):
        _write_to_stream(path, data)
    else:
        write_atomically(path, data)
