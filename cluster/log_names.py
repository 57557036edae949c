"""Local names of a node's logs, which are saved in one folder although they lie in several folders of the node."""

from collections.abc import Collection, Iterable, Iterator
from itertools import count
from pathlib import PurePosixPath


def choose_log_names(paths: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Returns a different local name for each path. ``taken``: names of other files in the folder.

    A log keeps its file name, or gets its whole path with hyphens if that name is taken.
    """
    names: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        names[path] = next(name for name in _propose_names(path) if name not in taken and name not in names.values())
    return names


def _propose_names(path: str) -> Iterator[str]:
    whole = path.strip("/").replace("/", "-")
    yield PurePosixPath(path).name
    yield whole
    yield from (f"{number}-{whole}" for number in count(2))
