"""Deletion of a log's folder: removes only the broker's own files.

A folder may hold foreign files: a user may have put them there, or another broker's directory lies in the folder,
perhaps through a bind mount.

1. The folder is renamed to ``T-P.deleted``, durably. From now on no part of the log is visible under the log's name. A
   start that finds such a folder continues with step 2.
2. The broker's files are removed.
3. If the folder is now empty, it is removed. Otherwise, once the removals are durable, it gets its old name back, with
   the foreign files in it.
"""

import itertools
import logging
import posixpath
import re
from collections.abc import Iterator

from assay.system_under_test.log.compaction_note import COMPACTION_NOTE
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
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import TEMPORARY_SUFFIX

_NOTES = (DAMAGED, EPOCHS, INCARNATION, PREALLOCATED, COMPACTION_NOTE)
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
    """Returns whether the folder may be a log's: it has a file of the broker, or is empty after a loss of its files."""
    names = storage.listdir(directory)
    return not names or any(map(is_own_file, names))


def remove_own_files(storage: Storage, directory: str) -> list[str]:
    """Removes the broker's files from the folder, then the folder if it is empty. Returns the remaining names."""
    remaining = []
    for name in storage.listdir(directory):
        path = f"{directory}/{name}"
        if is_own_file(name) and not is_folder(storage, path):
            storage.remove(path)
        else:
            remaining.append(name)
    if not remaining:
        storage.remove(directory)
    return remaining


async def remove_log(storage: Storage, directory: str) -> None:
    """Removes the log in this folder durably. May be called again after an ``OSError``."""
    parent = posixpath.dirname(directory)
    renamed = None
    if storage.exists(directory):
        renamed = next(path for path in _list_deletion_paths(directory) if not storage.exists(path))
        storage.rename(directory, renamed)
    await storage.fsync_directory(parent)
    for path in itertools.takewhile(storage.exists, _list_deletion_paths(directory)):
        remaining = remove_own_files(storage, path) if is_folder(storage, path) else []
        if path == renamed and remaining:
            await storage.fsync_directory(path)  # otherwise a power loss could bring back a part of the log
            storage.rename(path, directory)
            _warn_of_remaining(directory, remaining)
    await storage.fsync_directory(parent)


def _list_deletion_paths(directory: str) -> Iterator[str]:
    """Yields the paths that the folder may get for its deletion. A folder with foreign files may occupy the first."""
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
        if remaining := remove_own_files(storage, path):
            _warn_of_remaining(path, remaining)
        else:
            gone.append(name)
    if gone:
        await storage.fsync_directory(root)
    return gone


def _warn_of_remaining(directory: str, names: list[str]) -> None:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(names[:3])
    _log.warning("%s stays, because it has files that are not the broker's: %s%s", directory, listed, more)
