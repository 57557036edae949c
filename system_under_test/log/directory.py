"""What lies in a broker's log directory next to the logs: names of partitions' folders, and small files about them.

``T-P`` is partition P of topic T. ``.kafka_cleanshutdown`` says that the last process stopped cleanly;
``meta.properties`` whose directory this is; ``T-P/topic-incarnation`` which creation of the topic the folder
belongs to (the czxid of the topic's znode), so that a topic created again under its old name does not get old data.
``.lock`` is locked by the process that uses the directory; it is never removed, and its content is information only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.log.checkpoints import crc_line
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import write_atomic

LOCK = ".lock"
CLEAN_MARKER = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
INCARNATION = "topic-incarnation"
DELETED_SUFFIX = ".deleted"
STRAY_SUFFIX = ".stray"


class DirectoryError(Exception):
    """A file of the log directory cannot be understood; the message names it and says what to do."""


def lock(storage: Storage, root: str) -> None:
    """Reserves the log directory, which is made if it is missing, for this process until it has ended.

    Comes before anything of the directory is read. Raises :class:`DirectoryError` if another process has it; the
    directory is unchanged then.
    """
    storage.mkdir(root)
    try:
        storage.lock(_join(root, LOCK))
    except BlockingIOError as error:
        raise DirectoryError(
            f"data_dir {root} is in use: {error.strerror} of {_join(root, LOCK)}; end that process first, or give this "
            "broker a directory of its own"
        ) from error


async def make_root(storage: Storage, root: str) -> None:
    """Makes the log directory and its parents durable: a folder whose entry in its parent is lost is lost with all in
    it.

    Also when it exists, since the process that made it may have been killed before this.
    """
    storage.mkdir(root)
    names = root.split("/")
    for depth in range(len(names)):
        await storage.fsync_directory("/".join(names[:depth]))


def directory_name(topic: str, partition: int) -> str:
    """``T-P``."""
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """Topic and partition of a folder's name; None for anything else, set-aside and half-deleted logs included."""
    topic, _, partition = name.rpartition("-")
    if not topic or not partition.isascii() or not partition.isdigit() or directory_name(topic, int(partition)) != name:
        return None
    return topic, int(partition)


def partition_directories(storage: Storage, root: str = "") -> list[tuple[str, int]]:
    """Topic and partition of every log below ``root``, in the order of the folders' names."""
    parsed = (parse_directory_name(name) for name in storage.listdir(root))
    return [found for found in parsed if found is not None]


async def remove_deleted(storage: Storage, root: str = "") -> list[str]:
    """Finishes deletions that a crash interrupted; gives the folders' names."""
    names = [name for name in storage.listdir(root) if name.endswith(DELETED_SUFFIX)]
    for name in names:
        storage.remove(_join(root, name))
    if names:
        await storage.fsync_directory(root)
    return names


async def take_clean_marker(storage: Storage, root: str = "") -> tuple[int, ...]:
    """What the last process left when it stopped cleanly (see :func:`write_clean_marker`); empty when it did not.

    The marker is durably gone before this returns. Must be awaited before anything is written, or a crash would be
    taken for a clean stop. A marker that makes no sense counts as none.
    """
    path = _join(root, CLEAN_MARKER)
    if not storage.exists(path):
        return ()
    words = storage.read_bytes(path).decode("ascii", "replace").split()
    storage.remove(path)
    await storage.fsync_directory(root)
    return tuple(map(int, words)) if all(word.isdigit() for word in words) else ()


async def write_clean_marker(storage: Storage, lives: Sequence[int], root: str = "") -> None:
    """Await it last, once every log is closed and every checkpoint written.

    ``lives``: the registrations (czxid) of the unbroken row of lives that all stopped cleanly, up to this one: what any
    of them had, this directory still has. A life that is not among them is none of this directory's, which may be an
    older copy that was put back.
    """
    await write_atomic(storage, _join(root, CLEAN_MARKER), f"{' '.join(map(str, lives))}\n".encode())


@dataclass(frozen=True)
class MetaProperties:
    """Whose directory it is; ``cluster_id`` None when not recorded."""

    broker_id: int
    cluster_id: str | None = None


def read_meta_properties(storage: Storage, root: str = "") -> MetaProperties | None:
    """None when there is no such file; :class:`DirectoryError` when it makes no sense."""
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
    """Durably, in the format of Java's properties."""
    lines = ["version=0", f"broker.id={properties.broker_id}"]
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    await write_atomic(storage, _join(root, META_PROPERTIES), ("\n".join(lines) + "\n").encode())


def read_incarnation(storage: Storage, directory: str) -> int | None:
    """The czxid that the log's folder belongs to; None when not recorded; :class:`DirectoryError`."""
    path = f"{directory}/{INCARNATION}"
    if not storage.exists(path):
        return None
    return parse_incarnation(path, storage.read_bytes(path))


def parse_incarnation(path: str, data: bytes) -> int:
    """The czxid in the file's content; :class:`DirectoryError`. Without a checksum, as it was once, it is believed."""
    body = data[len(crc_line(b"")) :] if data.startswith(b"crc") else data
    try:
        if data in (body, crc_line(body) + body):
            return int(body)
        problem = "the checksum is wrong"
    except ValueError:
        problem = "that is no czxid"
    raise DirectoryError(f"{path}: {data!r}: {problem}; set the folder aside and let it be refetched")


async def write_incarnation(storage: Storage, directory: str, czxid: int) -> None:
    """Durably; the folder must exist. A checksum comes first, since a wrong digit would make it another topic's log."""
    body = b"%d\n" % czxid
    await write_atomic(storage, f"{directory}/{INCARNATION}", crc_line(body) + body)


async def set_aside(storage: Storage, directory: str) -> str:
    """Durably renames a log's folder, which must not be open, so that it is kept and never served; its new path."""
    parent, _, name = directory.rpartition("/")
    number = 0
    while storage.exists(path := _join(parent, f"{name}.{number}{STRAY_SUFFIX}")):
        number += 1
    storage.rename(directory, path)
    await storage.fsync_directory(parent)
    return path


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if root else name
