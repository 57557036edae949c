"""Shell commands that list, remove, copy and restore a node's data folder, and parsers of their output.

The copy lies next to the folder. If the folder is a separate disk, the copy is on another disk. A folder of a target
(:mod:`assay.cluster.ssh.target`) is a path without symbolic links below the ``root`` of the target, ``/proc/PID/root``.
"""

import re
import shlex
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Final

SUFFIX = ".assay-copy"
"""The copy's path is that of the folder with this suffix."""
MOUNTS: Final = "mountinfo"
"""Name of the file in ``/proc/PID`` with the mounts that a process sees."""
MOUNT_INSIDE: Final = 26


def undo_copy(folder: str) -> list[str]:
    """Returns the command that removes the copy. It is no error if there is none."""
    return ["rm", "-rf", folder + SUFFIX]


def contents_command(folder: str, kept: Collection[str] = ()) -> str:
    """Returns the command that prints checksum, size and path of each file except ``kept``.

    It prints nothing if the folder does not exist.
    """
    quoted = shlex.quote(folder)
    return f"[ ! -d {quoted} ] || find {quoted} -type f {_find_exclusions(kept)} -exec cksum {{}} +"


def remove_command(folder: str, kept: Collection[str] = (), root: str = "") -> str:
    """Returns the command that removes everything except the files ``kept`` and their parent folders.

    It removes nothing, and exits with ``MOUNT_INSIDE``, if something is mounted inside of the folder.
    """
    quoted = shlex.quote(folder)
    remove = f"find {quoted}/. ! -name . -prune -exec rm -rf {{}} +"
    if kept:
        parents = {str(parent) for path in kept for parent in PurePosixPath(path).parents}
        remove = f"find {quoted} -mindepth 1 -depth {_find_exclusions({*kept, *parents})} -delete"
    return f"[ ! -d {quoted} ] || {{ {_exit_at_mounts(folder, root)}; {remove} && sync -f {quoted}; }}"


def _exit_at_mounts(folder: str, root: str) -> str:
    """Returns the command that ends the shell before files are deleted that are mounted inside of the folder.

    They are not the system's data. The folder itself may be a mount, such as a separate disk.
    """
    shown = folder.removeprefix(root)
    said = f"is mounted inside of {shown}, so nothing is deleted there: unmount it"
    real = shlex.quote(shown) if root else f"$(cd -- {shlex.quote(folder)} && pwd -P)"
    mounts = f"{root.rpartition('/')[0] or '/proc/self'}/{MOUNTS}"
    return (
        f"real={real} || exit; "
        "while read -r _ _ _ _ point _; do point=$(printf '%b' \"$point\"); "
        f'case $point in "$real"/*) printf "%s %s\\n" "$point" {shlex.quote(said)} >&2; exit {MOUNT_INSIDE};; esac; '
        f"done < {mounts} || exit"
    )


def copy_command(folder: str, kept: Collection[str] = ()) -> str:
    """Returns the command that makes the copy, without the files ``kept``.

    It prints the output of :func:`contents_command` for the copy.
    """
    quoted, copy = shlex.quote(folder), shlex.quote(folder + SUFFIX)
    copies_of_kept = shlex.join(folder + SUFFIX + path.removeprefix(folder) for path in sorted(kept))
    remove_kept = f"rm -f {copies_of_kept} && " if kept else ""
    return f"rm -rf {copy} && cp -a {quoted} {copy} && {remove_kept}{contents_command(folder + SUFFIX)}"


def restore_command(folder: str, kept: Collection[str] = (), root: str = "") -> str:
    quoted, copy = shlex.quote(folder), shlex.quote(folder + SUFFIX)
    return (
        f"[ -d {copy} ] && {{ {remove_command(folder, kept, root)}; }} && cp -a {copy}/. {quoted}/ && sync -f {quoted}"
    )


def _find_exclusions(paths: Collection[str]) -> str:
    """Returns the ``find`` condition that skips these paths, with its special characters escaped."""
    plain = (re.sub(r"([][*?\\])", r"\\\1", path) for path in sorted(paths))
    return " ".join(f"! -path {shlex.quote(path)}" for path in plain)


def parse_contents(output: str, folder: str, shown: str | None = None) -> dict[str, str]:
    """Parses the output of :func:`contents_command`: path to size and checksum.

    Paths of a copy become those of the folder. ``shown``: the folder in the returned paths; default: ``folder``.
    """
    found = {}
    for line in output.splitlines():
        checksum, size, path = line.split(" ", 2)
        found[(shown or folder) + path.removeprefix(folder).removeprefix(SUFFIX)] = f"{size} {checksum}"
    return dict(sorted(found.items()))
