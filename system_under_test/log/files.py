"""The files of a segment: its entries and its two indexes, named by its base offset."""

from typing import NoReturn

from assay.system_under_test.runtime import IrregularFileError, Slice, Storage

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_SUFFIX = ".timeindex"
RETIRED_SUFFIX = ".deleted"
"""Suffix of a file that retention has removed from the log, but that readers may still need."""
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX)


class UnusableFile:
    """Stand-in for a file that must not be opened. Its size is 0, and every other use fails with the given error."""

    size = 0

    def __init__(self, error: IrregularFileError) -> None:
        self._error = error

    def append(self, data: bytes) -> None:
        self._fail()

    def read(self, position: int, size: int) -> bytes:
        self._fail()

    def slice(self, position: int, size: int) -> Slice:
        self._fail()

    def truncate(self, size: int) -> None:
        self._fail()

    def reserve(self, size: int) -> None:
        self._fail()

    async def fsync(self) -> None: ...

    def close(self) -> None: ...

    def _fail(self) -> NoReturn:
        raise self._error


def format_segment_name(base_offset: int) -> str:
    """Returns the file's name without suffix: 20 digits."""
    return f"{base_offset:020d}"


def list_segment_bases(storage: Storage, directory: str) -> list[int]:
    """Returns the base offsets of the segments in a directory, ascending."""
    names = [name.removesuffix(LOG_SUFFIX) for name in storage.listdir(directory) if name.endswith(LOG_SUFFIX)]
    return sorted(int(name) for name in names if len(name) == 20 and name.isascii() and name.isdigit())


def is_segment_file(name: str) -> bool:
    """Returns whether this is the name of a segment's file: 20 digits and a suffix."""
    base, dot, _ = name.partition(".")
    return bool(dot) and len(base) == 20 and base.isascii() and base.isdigit()


def remove_files(storage: Storage, path: str) -> None:
    """Removes the files of the segment at ``path``, which has no suffix. The data go first: without them, the indexes
    are ignored.
    """
    storage.remove(path + LOG_SUFFIX)
    remove_indexes(storage, path)


def remove_indexes(storage: Storage, path: str) -> None:
    for suffix in (INDEX_SUFFIX, TIME_SUFFIX):
        if storage.exists(path + suffix):
            storage.remove(path + suffix)
