"""Owner of a container, a network or a journal: one process of one boot of one machine.

Process ids are reused. So an owner is a process id with the process's start time (clock ticks since boot, field 22 of
``/proc/PID/stat``) and the id of the boot. The pid namespace is included, because two harnesses in two containers may
share one Docker engine, and process ids of another namespace are not comparable. If it is unknown whether an owner is
alive, it counts as alive: a leftover container is a nuisance, but the loss of a running test's cluster is damage.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MACHINE = Path("/etc/machine-id")


@dataclass(frozen=True)
class Owner:
    """Identity of a process.

    ``str(owner)`` and :func:`parse_owner` are inverse. The text goes into labels and file names (digits, hex, ``.-``).
    """

    pid: int
    started: int
    boot: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.pid}.{self.started}.{self.boot}.{self.namespace}"

    def is_of_this_boot(self) -> bool:
        """Returns whether the owner is of this boot of this machine."""
        return self.boot == _read_boot_id()

    def may_be_elsewhere(self, machine: str) -> bool:
        """Returns whether the process may run on another machine, so that it is unknown here whether it is alive.

        ``machine``: the id of its machine, empty if unknown. Without ids, only the boots are compared. Then a process
        that ran here before a reboot looks like a process of another machine.
        """
        here = read_machine_id()
        return machine != here if machine and here else not self.is_of_this_boot()

    def alive(self) -> bool:
        """Returns whether the process still runs; True if that cannot be known from here."""
        if not self.is_of_this_boot():
            return False
        if self.namespace != _read_pid_namespace():
            return True
        started = _read_start_time(self.pid)
        if started is not None:
            return started == self.started
        return _exists(self.pid)  # a /proc mounted with hidepid hides processes of other users


def current_owner() -> Owner:
    """Returns the owner that is the calling process."""
    current = find_owner(os.getpid())
    if current is None:
        raise OSError("/proc/self/stat cannot be read; mount /proc")
    return current


def find_owner(pid: int) -> Owner | None:
    """Returns the owner that is the process ``pid`` of this namespace; None if there is no such process."""
    started = _read_start_time(pid)
    return None if started is None else Owner(pid, started, _read_boot_id(), _read_pid_namespace())


def find_parent() -> Owner | None:
    """Returns the parent of the calling process; None if it is hidden."""
    with suppress(PermissionError):  # a /proc mounted with hidepid
        return find_owner(os.getppid())
    return None


def parse_owner(text: str) -> Owner:
    """Returns the owner that ``text`` denotes. Raises ``ValueError`` if it denotes none."""
    parts = text.split(".")
    if len(parts) != 4 or not parts[0].isdigit() or not parts[1].isdigit():
        raise ValueError(f"not an owner (pid.start.boot.namespace): {text!r}")
    return Owner(int(parts[0]), int(parts[1]), parts[2], parts[3])


def read_machine_id() -> str:
    """Returns the id that distinguishes this machine from others, stable over reboots; empty if it has none."""
    try:
        return MACHINE.read_text().strip()
    except OSError:
        return ""


def _read_boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _read_pid_namespace() -> str:
    try:
        return os.readlink(PROC / "self/ns/pid").removeprefix("pid:[").removesuffix("]")
    except FileNotFoundError:  # a kernel without pid namespaces has only one
        return "0"


def _read_start_time(pid: int) -> int | None:
    """Returns the start in clock ticks since boot; None if there is no such process, or only its zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before ")" may hold spaces
    return None if fields[0] in "ZX" else int(fields[19])


def _exists(pid: int) -> bool:
    if (PROC / str(pid)).exists():
        return False  # its folder is visible, but its start time was not found: a zombie, or it has just ended
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
