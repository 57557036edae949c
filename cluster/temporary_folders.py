"""Temporary folders whose names have their owner, so that those of killed processes can be found and deleted.

A process that is killed by SIGKILL deletes nothing. The sweep at the start of a session deletes such a folder if its
owner is dead for certain. The owner must be a process of this boot, or of an earlier boot of this machine.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from assay.cluster.operating_system import has_mount_point
from assay.cluster.owner import Owner, current_owner, parse_owner, read_machine

_NAME: Final = re.compile(r"assay-[a-z]+-(?P<owner>\d+\.\d+\.[^/]+)\.on\.(?P<machine>[0-9a-f]*)-[a-z0-9_]{8}")


@contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """Creates a folder for the block. ``what``: its purpose, in small letters."""
    folder = create_temporary_folder(what)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def create_temporary_folder(what: str) -> Path:
    """Creates a folder that the caller deletes. ``what``: its purpose, in small letters."""
    return Path(tempfile.mkdtemp(prefix=f"assay-{what}-{current_owner()}.on.{_digest_machine()}-"))


def delete_left_folders() -> tuple[list[str], list[str]]:
    """Deletes the folders of dead processes of this user. Returns a line for each one, and the errors."""
    deleted, errors = [], []
    for folder in sorted(Path(tempfile.gettempdir()).glob("assay-*")):
        try:
            if not _is_left(folder):
                continue
            if has_mount_point(folder.resolve()):
                errors.append(f"{folder}: something is mounted in it; unmount it and delete the folder")
                continue
            shutil.rmtree(folder)
        except FileNotFoundError:  # another session deletes it, too
            continue
        except OSError as error:
            errors.append(f"{folder}: {error}")
        else:
            deleted.append(f"temporary folder {folder} deleted")
    return deleted, errors


def _is_left(folder: Path) -> bool:
    found = _NAME.fullmatch(folder.name)
    if found is None or folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.geteuid():
        return False
    try:
        creator: Owner = parse_owner(found["owner"])
    except ValueError:
        return False
    machine = _digest_machine()
    return not creator.alive() and (creator.is_of_this_boot() or (machine != "" and found["machine"] == machine))


def _digest_machine() -> str:
    """Returns a short text that distinguishes this machine from others; empty if it has no id."""
    machine = read_machine()
    return hashlib.sha256(machine.encode()).hexdigest()[:12] if machine else ""
