"""The shell of a node's data: what is in a folder, removing it, a copy of it, and putting that back.

The copy lies beside the folder, so that it is on another disk where the folder is a disk of its own. Text in, text out.
"""

import shlex

SUFFIX = ".assay-copy"


def undo_copy(folder: str) -> list[str]:
    """Takes the copy away; no error when there is none."""
    return ["rm", "-rf", folder + SUFFIX]


def contents(folder: str) -> str:
    """Prints checksum, size and path of each file; of none without the folder."""
    place = shlex.quote(folder)
    return f"[ ! -d {place} ] || find {place} -type f -exec cksum {{}} +"


def remove(folder: str) -> str:
    place = shlex.quote(folder)
    return f"[ ! -d {place} ] || {{ find {place}/. ! -name . -prune -exec rm -rf {{}} + && sync -f {place}; }}"


def copy(folder: str) -> str:
    """Prints the :func:`contents` of the copy."""
    place, beside = shlex.quote(folder), shlex.quote(folder + SUFFIX)
    return f"rm -rf {beside} && cp -a {place} {beside} && {contents(folder + SUFFIX)}"


def restore(folder: str) -> str:
    place, beside = shlex.quote(folder), shlex.quote(folder + SUFFIX)
    return f"[ -d {beside} ] && {{ {remove(folder)}; }} && cp -a {beside}/. {place}/ && sync -f {place}"


def sums(output: str, folder: str) -> dict[str, str]:
    """What :func:`contents` printed; path to size and checksum. Of a copy, too, as if it were the folder."""
    found = {}
    for line in output.splitlines():
        checksum, size, path = line.split(" ", 2)
        found[folder + path.removeprefix(folder).removeprefix(SUFFIX)] = f"{size} {checksum}"
    return dict(sorted(found.items()))
