"""A second copy of a node's main process, with the same command, user, folder and address, next to the first one.

The fault that started the copy also ends it. All other operations on the node's processes apply to the main process.
The copy does not count as a process of the node and is never restarted. It has its own event log and output file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

SECOND_COPY: Final = "second"
"""Name of the process and of its log (``second.log``), and suffix of its event log."""


@dataclass(frozen=True)
class SecondCopyStatus:
    """Status of the copy that was started last. ``exit_status``: None while the copy lives, or if it was killed."""

    incarnation: str | None
    alive: bool
    exit_status: int | None = None
    changes: int | None = None
    """Number of changes that the copy has made to files; None if unknown.

    A real node counts changes of the data folder, and a simulated one changes of its whole disk.
    """
    not_proved: str | None = None
    """Why the copy may have made changes that are not counted."""


@runtime_checkable
class SupportsSecondCopy(Protocol):
    """A node that can run a second copy of its main process."""

    def second_unavailable(self) -> str | None:
        """Returns why no copy can be started, with the remedy, or None. Changes nothing."""

    async def start_second(self, data: str | None = None) -> None:
        """Starts the copy. Raises ``NodeError`` while another copy is alive.

        ``data``: the folder whose changes are counted; None if the system does not declare its data folder.
        """

    async def second(self) -> SecondCopyStatus:
        """Returns the status of the copy. Raises ``NodeError`` if none was started."""

    async def end_second(self) -> None:
        """Ends the second copy: sends SIGKILL and waits until it is gone. Does nothing if there is none."""


def with_second_log(value: str, path: str) -> str:
    """Replaces the path of the main process's event log in a word of a command by the path of the copy's."""
    return value.replace(path, second_log(path))


def second_log(path: str) -> str:
    """Returns the path of the copy's event log, given that of the main process."""
    return f"{path}.{SECOND_COPY}"


def names_log(argv: list[str], environment: Mapping[str, str], path: str) -> bool:
    """Returns whether a command names the event log, so that the copy can be given another one."""
    return any(path in word for word in (*argv, *environment.values()))
