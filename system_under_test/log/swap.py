"""Putting one new segment in the place of several, so that a crash at any instant leaves the old ones or the new one.

The new segment is written as ``<base>.log.cleaned`` and fsynced; then it is named ``<base>-<end>.log.swap``, which says
that it holds all that is to stay of the segments that begin from ``base`` to below ``end``, and the folder is fsynced.
From then on it counts: the old files go, it takes the first one's name, and whoever finds it at a start does just that.
A ``.cleaned`` file is nothing. Kafka does the same; its swap files do not say where they end, and reading it off their
last entry could take too much with it, were that entry damaged.
"""

from __future__ import annotations

from assay.system_under_test.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_SUFFIX,
    remove_files,
    segment_bases,
    segment_name,
)
from assay.system_under_test.runtime import Storage

CLEANED_SUFFIX = ".log.cleaned"
SWAP_SUFFIX = ".log.swap"


def cleaned_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{segment_name(base_offset)}{CLEANED_SUFFIX}"


def swap_path(directory: str, base_offset: int, end_offset: int) -> str:
    return f"{directory}/{segment_name(base_offset)}-{segment_name(end_offset)}{SWAP_SUFFIX}"


def replace_files(storage: Storage, directory: str, base_offset: int, end_offset: int) -> None:
    """What is left to do once the swap file is durable; may have been begun before. Durable after an fsync."""
    for base in segment_bases(storage, directory):
        if base_offset < base < end_offset:
            remove_files(storage, f"{directory}/{segment_name(base)}")
    target = f"{directory}/{segment_name(base_offset)}"
    for suffix in (INDEX_SUFFIX, TIME_SUFFIX):
        if storage.exists(target + suffix):
            storage.remove(target + suffix)
    storage.rename(swap_path(directory, base_offset, end_offset), target + LOG_SUFFIX)


async def finish(storage: Storage, directory: str) -> None:
    """Durably finishes the swaps that a crash interrupted, and discards what never got so far."""
    names = storage.listdir(directory)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            storage.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            base, _, end = name.removesuffix(SWAP_SUFFIX).partition("-")
            if base.isdigit() and end.isdigit():
                replace_files(storage, directory, int(base), int(end))
    if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        await storage.fsync_directory(directory)
