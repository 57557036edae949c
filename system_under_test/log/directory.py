"""A broker's log directory: the names of partitions' folders, and the small files next to the logs.

- ``T-P``: the folder of partition P of topic T
- ``.kafka_cleanshutdown``: the last process stopped cleanly
- ``meta.properties``: the broker to which the directory belongs
- ``T-P/topic-incarnation``: the czxid of the topic's znode, so that a topic created again under its old name does not
  get old data
- ``.lock``: locked by the process that uses the directory; never removed. Its content is only informative
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.log.checkpoints import format_crc_line
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import write_atomic

LOCK = ".lock"
CLEAN_MARKER = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
INCARNATION = "topic-incarnation"
DELETED_SUFFIX = ".deleted"
"""Suffix of the folder of a log that is being deleted."""
STRAY_SUFFIX = ".stray"
"""Suffix of the folder of a log that was set aside."""
MAX_NAME_BYTES = 255
"""Maximum bytes of a file's name. A topic's name may have 249, so a suffix can make it too long."""


class DirectoryError(Exception):
    """A file of the log directory cannot be used; the message names it and says what to do."""


class DirectoryMovedError(OSError):
    """The log directory is no longer at its path; the message is one line for the user who moved it."""


def lock(storage: Storage, root: str) -> None:
    """Locks the log directory for this process until it ends, and creates the directory if missing.

    Must be called before anything in the directory is read. Raises :class:`DirectoryError`, and changes nothing, if
    another process holds the lock, or if one of two brokers' directories lies inside the other.
    """
    _reject_nested(storage, root)
    storage.mkdir(root)
    try:
        storage.lock(_join(root, LOCK))
    except BlockingIOError as error:
        raise DirectoryError(
            f"data_dir {root} is in use: {error.strerror} of {_join(root, LOCK)}; end that process first, or give this "
            "broker a directory of its own"
        ) from error


def require_in_place(storage: Storage, root: str) -> None:
    """Raises :class:`DirectoryMovedError` if the file that this process locked is no longer at its path.

    If the directory was moved, open logs continue in the moved directory. But files that are opened by path, such as
    checkpoints, would be written to the directory that has taken its place.
    """
    path = _join(root, LOCK)
    if storage.has_lost_lock(path):
        raise DirectoryMovedError(
            f"data_dir {root} was moved, or {path} was replaced, while the broker ran; move it back and start the "
            "broker again"
        )


def _reject_nested(storage: Storage, root: str) -> None:
    """Raises :class:`DirectoryError` if another broker's directory contains or is contained in this one.

    Only nesting in a folder with a partition's name is rejected: the outer broker would treat that folder as a log.
    Symbolic links are resolved, but a bind mount can hide the outer directory.
    """
    real = storage.resolve(root)
    parts = real.split("/")
    above = [("/".join(parts[:depth]), "/".join(parts[: depth + 1])) for depth in range(len(parts))]
    below = [_join(root, name) for name in storage.listdir(root)]
    # Each candidate: the other broker's directory, the outer directory, its folder on the way, the inner directory.
    candidates = [(outer, outer, folder, real) for outer, folder in above] + [(one, root, one, one) for one in below]
    for other, outer, folder, inner in candidates:
        if parse_directory_name(folder.rpartition("/")[2]) is None:
            continue
        if any(storage.exists(_join(other, file)) for file in (LOCK, META_PROPERTIES)):
            raise DirectoryError(
                f"data_dir {root}: {inner} and {outer} would be two brokers' directories, and {folder} has the name of "
                "a partition's folder; give this broker a directory of its own"
            )


async def make_root(storage: Storage, root: str) -> None:
    """Creates the log directory, and fsyncs all its parents, because a power loss can undo the creation of any.

    An existing directory needs this, too: the process that created it may have been killed before the fsync.
    """
    storage.mkdir(root)
    top = "/" * root.startswith("/")
    names = root.strip("/").split("/")
    for depth in range(len(names)):
        await storage.fsync_directory(top + "/".join(names[:depth]))


def format_directory_name(topic: str, partition: int) -> str:
    """Returns ``T-P``."""
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """Parses the name of a log's folder into topic and partition.

    Returns None for any other name. Logs that were set aside or are being deleted have other names.
    """
    topic, _, partition = name.rpartition("-")
    if (
        not topic
        or not partition.isascii()
        or not partition.isdigit()
        or format_directory_name(topic, int(partition)) != name
    ):
        return None
    return topic, int(partition)


def add_suffix(directory: str, suffix: str) -> str:
    """Returns the path of a log's folder with a suffix. Shortens the topic name if the whole name is too long.

    Two logs can get the same shortened name, so the caller must expect that this folder exists.
    """
    parent, _, name = directory.rpartition("/")
    topic, _, partition = name.rpartition("-")
    tail = f"-{partition}{suffix}"
    return _join(parent, topic[: MAX_NAME_BYTES - len(tail)] + tail)


def list_partition_directories(storage: Storage, root: str = "") -> list[tuple[str, int]]:
    """Returns topic and partition of every folder of a log below ``root``, in the order of the folders' names."""
    parsed = ((name, parse_directory_name(name)) for name in storage.listdir(root))
    return [found for name, found in parsed if found is not None and is_folder(storage, _join(root, name))]


def is_folder(storage: Storage, path: str) -> bool:
    """Returns whether the existing ``path`` is a folder, or a link to one."""
    try:
        storage.listdir(path)
    except NotADirectoryError:
        return False
    return True


async def take_clean_marker(storage: Storage, root: str = "") -> tuple[int, ...]:
    """Removes the marker of a clean stop, and returns the registrations in it; none if there is no marker.

    :func:`write_clean_marker` explains the registrations.

    The marker is durably gone when this returns. Until then the caller must not write anything, because a crash would
    look like a clean stop. An unreadable marker is ignored.
    """
    path = _join(root, CLEAN_MARKER)
    if not storage.exists(path):
        return ()
    words = storage.read_bytes(path).decode("ascii", "replace").split()
    storage.remove(path)
    await storage.fsync_directory(root)
    return tuple(map(int, words)) if all(word.isdigit() for word in words) else ()


async def write_clean_marker(storage: Storage, registrations: Sequence[int], root: str = "") -> None:
    """Writes the marker of a clean stop. Must be called last, when every log is closed and every checkpoint written.

    ``registrations``: the czxids of the broker's latest registrations, up to the current one, each of which ended with
    a clean stop. The directory has all records that the broker had under any of them. Under any other registration it
    may have had more, for example if an older copy of the directory was restored.
    """
    await write_atomic(storage, _join(root, CLEAN_MARKER), f"{' '.join(map(str, registrations))}\n".encode())


@dataclass(frozen=True)
class MetaProperties:
    """The broker and the cluster to which the directory belongs; ``cluster_id`` is None if not recorded."""

    broker_id: int
    cluster_id: str | None = None


def read_meta_properties(storage: Storage, root: str = "") -> MetaProperties | None:
    """Reads the file; returns None if it is missing. Raises :class:`DirectoryError` if it cannot be parsed."""
    path = _join(root, META_PROPERTIES)
    if not storage.exists(path):
        return None
    values: dict[str, str] = {}
    for line in storage.read_bytes(path).decode("utf-8", "replace").splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    try:
        return MetaProperties(int(values["broker.id"]), values.get("cluster.id"))
    except (KeyError, ValueError) as error:
        raise DirectoryError(f"{path}: no usable broker.id in {values}; restore it or set the broker's id") from error


async def write_meta_properties(storage: Storage, properties: MetaProperties, root: str = "") -> None:
    """Durably writes the file, in the format of Java's properties."""
    lines = ["version=0", f"broker.id={properties.broker_id}"]
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    await write_atomic(storage, _join(root, META_PROPERTIES), ("\n".join(lines) + "\n").encode())


def read_incarnation(storage: Storage, directory: str) -> int | None:
    """Returns the czxid of the topic to which the log's folder belongs; None if not recorded.

    Raises :class:`DirectoryError`.
    """
    path = f"{directory}/{INCARNATION}"
    if not storage.exists(path):
        return None
    return parse_incarnation(path, storage.read_bytes(path))


def parse_incarnation(path: str, data: bytes) -> int:
    """Parses the file's content.

    Raises :class:`DirectoryError`. Content without a checksum, the old format, is accepted.
    """
    body = data[len(format_crc_line(b"")) :] if data.startswith(b"crc") else data
    try:
        if data in (body, format_crc_line(body) + body):
            return int(body)
        problem = "the checksum is wrong"
    except ValueError:
        problem = "it is not a czxid"
    raise DirectoryError(f"{path}: {data!r}: {problem}; set the folder aside and let it be refetched")


async def write_incarnation(storage: Storage, directory: str, czxid: int) -> None:
    """Durably writes the czxid into an existing folder, after a checksum.

    A wrong digit would assign the log to another topic.
    """
    body = b"%d\n" % czxid
    await write_atomic(storage, f"{directory}/{INCARNATION}", format_crc_line(body) + body)


async def set_aside(storage: Storage, directory: str) -> str:
    """Durably renames a log's folder, which must not be open, and returns its new path.

    The log is kept, but never served again.
    """
    number = 0
    while storage.exists(path := add_suffix(directory, f".{number}{STRAY_SUFFIX}")):
        number += 1
    storage.rename(directory, path)
    await storage.fsync_directory(directory.rpartition("/")[0])
    return path


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if root else name
