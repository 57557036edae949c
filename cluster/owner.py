"""Owner of a container, a network or a journal: one process of one boot of one machine.

Process ids are reused. So an owner is a process id with the process's start time and the id of the boot
(``cluster/operating_system.py``). The pid namespace is included, because two harnesses in two containers may share one
Docker engine, and process ids of another namespace are not comparable. If it is unknown whether an owner is alive, it
counts as alive: a leftover container is a nuisance, but the loss of a running test's cluster is damage.
"""

import hashlib
import os
import platform
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.cluster.operating_system import (
    ON_LINUX,
    UNKNOWN_BOOT,
    UNKNOWN_START,
    read_boot_id,
    read_hardware_id,
    read_pid_namespace,
    read_start_time,
)
from assay.cluster.regular_files import read_regular

MACHINE = Path("/etc/machine-id")
_HOST: Final = "@"
"""Separates the id of a machine from its host name. Earlier versions recorded the id alone."""


@dataclass(frozen=True)
class Owner:
    """Identity of a process. ``started``: see :func:`assay.cluster.operating_system.read_start_time`.

    ``str(owner)`` and :func:`parse_owner` are inverse. The text goes into labels and file names (digits, letters,
    ``.-``).
    """

    pid: int
    started: int
    boot: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.pid}.{self.started}.{self.boot}.{self.namespace}"

    def is_of_this_boot(self) -> bool:
        """Returns whether the owner is of this boot of this machine."""
        return self.boot == read_boot_id()

    def may_be_elsewhere(self, machine: str) -> bool:
        """Returns whether the process may run on another machine, so that it is unknown here whether it is alive.

        ``machine``: its machine (:func:`read_machine`), empty if unknown. Without ids, only the boots are compared.
        Then a process that ran here before a reboot looks like a process of another machine. Equal boots prove nothing
        if the machines differ: containers have the boot of their host, but do not see each other's processes.
        """
        differs = is_other_machine(machine)
        return not self.is_of_this_boot() if differs is None else differs

    def alive(self) -> bool:
        """Returns whether the process still runs; True if that cannot be known from here."""
        here = read_boot_id()
        if self.boot != here:
            return self.boot.startswith(UNKNOWN_BOOT) or here.startswith(UNKNOWN_BOOT)
        if self.namespace != read_pid_namespace():
            return True
        started = read_start_time(self.pid)
        return started is not None and (UNKNOWN_START in (started, self.started) or started == self.started)


def current_owner() -> Owner:
    """Returns the owner that is the calling process."""
    return _make_owner(os.getpid(), read_start_time(os.getpid()) or UNKNOWN_START)


def find_owner(pid: int) -> Owner | None:
    """Returns the owner that is the process ``pid`` of this namespace; None if there is no such process."""
    started = read_start_time(pid)
    return None if started is None else _make_owner(pid, started)


def find_parent() -> Owner | None:
    """Returns the parent of the calling process; None if it has ended."""
    return find_owner(os.getppid())


def _make_owner(pid: int, started: int) -> Owner:
    return Owner(pid, started, read_boot_id(), read_pid_namespace())


def parse_owner(text: str) -> Owner:
    """Returns the owner that ``text`` denotes. Raises ``ValueError`` if it denotes none."""
    parts = text.split(".")
    if len(parts) != 4 or not parts[0].isdigit() or not parts[1].isdigit():
        raise ValueError(f"{text!r} is not the owner of a run, which is written as pid.start.boot.namespace")
    return Owner(int(parts[0]), int(parts[1]), parts[2], parts[3])


def read_machine_id() -> str:
    """Returns the id that distinguishes this machine from others, stable over reboots; empty if it has none."""
    try:
        found = MACHINE.read_text().strip()
    except OSError:
        return read_hardware_id()
    return "" if found == "uninitialized" else found  # machine-id(5): this text is in images of machines


def read_machine() -> str:
    """Returns a text that distinguishes this machine also from its copies: its id and its host name; empty without id.

    A copied machine has the id of its original. If a machine gets another host name, what it has left before a reboot
    counts as that of another machine, which `assay heal --all` undoes.
    """
    found = read_machine_id()
    return f"{found}{_HOST}{platform.node()}" if found and ON_LINUX else found


def is_other_machine(machine: str) -> bool | None:
    """Returns whether a recorded machine (:func:`read_machine`) is another one; None if either is unknown."""
    here = read_machine()
    if not machine or not here:
        return None
    return machine != (here if _HOST in machine else here.partition(_HOST)[0])


def find_machine_label(state: Path) -> str:
    """Returns the text by which a shared Docker engine distinguishes this machine's objects. Stable over reboots.

    The text is a hash, because machine-id(5) asks not to publish the id itself. A machine without an id gets a random
    one, which is kept in the folder ``state``.
    """
    found = read_machine_id() or _keep_random_id(state / "machine-id")
    return hashlib.sha256(f"assay {found}".encode()).hexdigest()[:16]


def find_host_label(state: Path) -> str:
    """Returns the text by which a shared Docker engine distinguishes this machine's runs, also from its copies' runs.

    See :func:`read_machine` and :func:`find_machine_label`.
    """
    return hashlib.sha256(f"{find_machine_label(state)}{_HOST}{platform.node()}".encode()).hexdigest()[:16]


def _keep_random_id(path: Path) -> str:
    """Returns the content of a file. Creates a missing one at once as a whole, because several sessions may start."""
    with suppress(FileNotFoundError):
        return read_regular(path).decode(errors="replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    draft.write_text(secrets.token_hex(16))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return read_regular(path).decode(errors="replace")
