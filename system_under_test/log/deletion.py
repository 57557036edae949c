"""Deletion of a log's folder: only the broker's own files are removed.

A folder may hold files of others. A user may have put them there, or the directory of another broker lies in it,
perhaps through a bind mount.

1. The folder is renamed to ``T-P.deleted``, durably. From now on no part of the log is visible under the log's name. A
   start that finds such a folder continues with step 2.
2. The broker's files are removed.
3. If nothing else is left, the folder is removed. Otherwise, once the removals are durable, it gets its name back, with
   the files of others in it.
"""

import itertools
import logging
import posixpath
import re
from collections.abc import Iterator

from assay.system_under_test.log.damage import DAMAGED
from assay.system_under_test.log.directory import (
    DELETED_SUFFIX,
    INCARNATION,
    add_suffix,
    is_folder,
    parse_directory_name,
)
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.log.files import LOG_SUFFIX, RETIRED_SUFFIX, SUFFIXES
from assay.system_under_test.log.preallocation import PREALLOCATED
from assay.system_under_test.log.swap import CLEANED_SUFFIX, is_swap_file
from assay.system_under_test.log.tombstones import TOMBSTONES
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import TEMPORARY_SUFFIX

_NOTES = (DAMAGED, EPOCHS, INCARNATION, PREALLOCATED, TOMBSTONES)
_OWN_NAMES = {name + suffix for name in _NOTES for suffix in ("", TEMPORARY_SUFFIX)}
_OWN_SUFFIXES = {
    *SUFFIXES,
    *(suffix + RETIRED_SUFFIX for suffix in SUFFIXES),
    LOG_SUFFIX + TEMPORARY_SUFFIX,
    CLEANED_SUFFIX,
}
_SEGMENT_FILE = re.compile(r"[0-9]{20}(\..*)")
_DELETED = re.compile(r"(.*?)(\.[0-9]+)?" + re.escape(DELETED_SUFFIX), re.DOTALL)

_log = logging.getLogger("assay.log")


def is_own_file(name: str) -> bool:
    """Returns whether the broker gives this name to a file in the folder of a log."""
    segment = _SEGMENT_FILE.fullmatch(name)
    return name in _OWN_NAMES or is_swap_file(name) or (segment is not None and segment[1] in _OWN_SUFFIXES)


def may_be_log(storage: Storage, directory: str) -> bool:
    """Returns whether the folder is a log: it has a file of the broker, or is empty, because its files were lost."""
    names = storage.listdir(directory)
    return not names or any(map(is_own_file, names))


def remove_own_files(storage: Storage, directory: str) -> list[str]:
    """Removes the broker's files from the folder, then the folder if it is empty. Returns the names that are left."""
    left = []
    for name in storage.listdir(directory):
        path = f"{directory}/{name}"
        if is_own_file(name) and not is_folder(storage, path):
            storage.remove(path)
        else:
            left.append(name)
    if not left:
        storage.remove(directory)
    return left


async def remove_log(storage: Storage, directory: str) -> None:
    """Removes the log in this folder durably. May be called again after an ``OSError``."""
    parent = posixpath.dirname(directory)
    renamed = None
    if storage.exists(directory):
        renamed = next(path for path in _list_doomed(directory) if not storage.exists(path))
        storage.rename(directory, renamed)
    await storage.fsync_directory(parent)
    for path in itertools.takewhile(storage.exists, _list_doomed(directory)):
        left = remove_own_files(storage, path) if is_folder(storage, path) else []
        if path == renamed and left:
            await storage.fsync_directory(path)  # otherwise a power loss could bring back a part of the log
            storage.rename(path, directory)
            _warn(directory, left)
    await storage.fsync_directory(parent)


def _list_doomed(directory: str) -> Iterator[str]:
    """Yields the names that the folder may get. The first one may be taken by a folder with files of others."""
    yield add_suffix(directory, DELETED_SUFFIX)
    for number in itertools.count(1):
        yield add_suffix(directory, f".{number}{DELETED_SUFFIX}")


async def remove_deleted(storage: Storage, root: str = "") -> list[str]:
    """Finishes deletions that a crash interrupted; returns the names of the folders that are gone."""
    gone = []
    for name in storage.listdir(root):
        path = posixpath.join(root, name)
        deleted = _DELETED.fullmatch(name)
        if deleted is None or parse_directory_name(deleted[1]) is None or not is_folder(storage, path):
            continue
        if left := remove_own_files(storage, path):
            _warn(path, left)
        else:
            gone.append(name)
    if gone:
        await storage.fsync_directory(root)
    return gone


def _warn(directory: str, left: list[str]) -> None:
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    _log.warning("%s stays, because it has files that are not the broker's: %s%s", directory, ", ".join(left[:3]), more)
