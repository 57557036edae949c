"""Calls the methods of a user's system. Their errors are turned into errors that name the method and the node.

Such an error is a mistake in the user's own code. So it is shown without a traceback through this project.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from signal import Signals
from typing import Final

from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_ROLE,
    DeploymentError,
    SupportsDataFolder,
    SupportsStopSignal,
    System,
)

NO_STOP_SIGNALS: Final = (Signals.SIGKILL, Signals.SIGSTOP, Signals.SIGCONT)
"""Signals that a process does not handle as a request to end."""


@contextmanager
def wrap_errors_of(method: str, node: Node | None = None) -> Iterator[None]:
    """Turns any error except ``NodeError`` into a :class:`DeploymentError` that names the system's method."""
    try:
        yield
    except (NodeError, DeploymentError):
        raise
    except Exception as error:
        raise DeploymentError(f"{_describe_call(method, node)} raised {type(error).__name__}: {error}") from error


def get_start_command(system: System, node: Node) -> list[str]:
    """Returns the command of a node's process. Raises :class:`DeploymentError`."""
    with wrap_errors_of("argv", node):
        found = system.argv(node)
    if not is_command(found):
        raise DeploymentError(
            f"{_describe_call('argv', node)} returned {found!r}: it must return a list of texts, the program first"
        )
    return list(found)


def is_command(argv: object) -> bool:
    """Returns whether ``argv`` is a non-empty list of text."""
    return isinstance(argv, Sequence) and not isinstance(argv, str) and bool(argv) and all(map(_is_text, argv))


def get_stop_signal(system: System, role: str) -> Signals:
    """Returns the signal that asks a node's main process to end. Raises :class:`DeploymentError`."""
    if role in (ZOOKEEPER_ROLE, CLIENT_ROLE) or not isinstance(system, SupportsStopSignal):
        return Signals.SIGTERM
    with wrap_errors_of("stop_signal"):
        found = system.stop_signal(role)
    if not isinstance(found, Signals) or found in NO_STOP_SIGNALS:
        raise DeploymentError(
            f"stop_signal({role!r}) returned {found!r}: it must return a signal that asks a process to end, such as "
            "signal.SIGINT"
        )
    return found


def get_system_files(system: System, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
    """Returns the files that the system declares for a node (``System.files``). Raises :class:`DeploymentError`."""
    with wrap_errors_of("files", node):
        found = system.files(node, cluster)
    if not isinstance(found, Mapping):
        raise DeploymentError(
            f"{_describe_call('files', node)} returned {found!r}: it must return a dict from path to bytes"
        )
    for path, data in found.items():
        if not _is_text(path) or not path.startswith("/"):
            raise DeploymentError(f"{_describe_call('files', node)}: {path!r} is not an absolute path")
        if not isinstance(data, bytes | bytearray):
            raise DeploymentError(
                f"{_describe_call('files', node)} has {type(data).__name__} for {path}: it must have bytes, such as "
                "text.encode()"
            )
    return found


def list_written_paths(system: System, node: Node) -> list[str]:
    """Returns the paths that a process writes: its data folder (with a ``/`` at the end) and its logs.

    Missing folders are created before each start. They belong to the process's user. Raises :class:`DeploymentError`.
    """
    events = system.event_log(node)
    data = (
        [f"{_read_data_folder(system, node)}/"]
        if isinstance(system, SupportsDataFolder) and node.role != CLIENT_ROLE
        else []
    )
    logs = [*([] if events is None else [events]), *_read_logs(system, node)]
    # Logs inside the data folder are left out, because the process creates folders there itself.
    return [*data, *(log for log in logs if not log.startswith(tuple(data)))]


def _read_logs(system: System, node: Node) -> Sequence[str]:
    """Returns the paths of the logs. Returns none if the method fails; the collection of the logs reports that."""
    try:
        return system.logs(node)
    except Exception:  # noqa: BLE001 - the user's code
        return ()


def _read_data_folder(system: SupportsDataFolder, node: Node) -> str:
    """Returns the data folder. It must be a normalized path, because it is compared with the kernel's paths."""
    found = system.data_folder(node)
    if not _is_text(found) or found == "/" or "/" + posixpath.normpath(found).lstrip("/") != found:
        raise DeploymentError(
            f"{_describe_call('data_folder', node)} returned {found!r}: it must return a normalized absolute path, "
            "such as /var/lib/mine"
        )
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _describe_call(method: str, node: Node | None) -> str:
    return f"{method}()" if node is None else f"{method}() of {node.name}"
