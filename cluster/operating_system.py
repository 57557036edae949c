"""Look-ups that each operating system answers in its own way: processes, memory, locks, mount points, sleep, the boot.

Linux answers in ``/proc``, every other system by psutil. Only this module and code that runs on nodes may use what a
single system has (``tests/test_portability.py``). A system may give no answer, for example a Linux without ``/proc``.
Each look-up then returns a value that means *unknown*, and the caller does without it.
"""

import hashlib
import os
import platform
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

ON_LINUX: Final = sys.platform == "linux"
ON_MACOS: Final = sys.platform == "darwin"
PROC: Final = Path("/proc")
UNKNOWN_START: Final = 0
"""The start time of a process that exists, but hides when it started."""
UNKNOWN_NAMESPACE: Final = "0"
"""The pid namespace on a system that has none, or hides them."""
UNKNOWN_BOOT: Final = "0-"
"""The text for an unknown boot begins so."""
SLEEP_CLOCKS: Final = {
    "linux": ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"),
    "darwin": ("CLOCK_MONOTONIC_RAW", "CLOCK_UPTIME_RAW"),
}
"""Two clocks of the same rate for each system: the first goes on while the machine sleeps, the second stops."""
COMMAND_SECONDS: Final = 5.0
"""Maximum seconds of a command that names the boot or the machine."""
MICROSECONDS: Final = 1_000_000
NANOSECONDS: Final = 1_000_000_000


def find_obstacle() -> tuple[str, str] | None:
    """Returns why this system answers no look-up of a process, and the remedy; None if it answers."""
    if read_start_time(os.getpid()) != UNKNOWN_START:
        return None
    if ON_LINUX:
        return f"{PROC}/self/stat cannot be read", "`mount -t proc proc /proc`"
    return "psutil is not installed, or gets no answer", "`pip install psutil`"


def read_start_time(pid: int) -> int | None:
    """Returns when a process started: on Linux in clock ticks since the boot, elsewhere in microseconds since 1970.

    The result is equal in all time namespaces. It is ``UNKNOWN_START`` if the start is hidden, and None if there is no
    such process, or only its zombie.
    """
    return _read_start_in_proc(pid) if ON_LINUX else _ask_for_start(pid)


def _read_start_in_proc(pid: int) -> int | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except PermissionError:  # a /proc mounted with hidepid=1 hides the content of other users' processes
        return UNKNOWN_START
    except (FileNotFoundError, ProcessLookupError):
        # With hidepid=2, and without /proc, there is no folder of the process.
        return None if (PROC / str(pid)).exists() else _probe(pid)
    fields = text.rpartition(")")[2].split()  # the name before ")" may hold spaces
    if fields[0] in "ZX":
        return None
    offset = _read_time_offset() * os.sysconf("SC_CLK_TCK")
    return UNKNOWN_START if offset % NANOSECONDS else int(fields[19]) - offset // NANOSECONDS


def _read_time_offset() -> int:
    """Returns the nanoseconds that this process's time namespace adds to the time since the boot, also in ``/proc``."""
    with suppress(OSError):
        for line in (PROC / "self/timens_offsets").read_text().splitlines():
            clock, seconds, nanoseconds = line.split()
            if clock == "boottime":
                return int(seconds) * NANOSECONDS + int(nanoseconds)
    return 0


def _ask_for_start(pid: int) -> int | None:
    psutil = _load_psutil()
    if psutil is None:
        return _probe(pid)
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time() * MICROSECONDS)
    except psutil.NoSuchProcess:  # so is a zombie, on some systems
        return None
    except psutil.Error:
        return _probe(pid)


def _probe(pid: int) -> int | None:
    """Returns ``UNKNOWN_START`` if there is such a process, which may be a zombie, else None."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return UNKNOWN_START


def read_boot_id() -> str:
    """Returns a text that differs after a reboot. An unknown boot is that of any machine of this host name.

    A text of an unknown boot begins with ``UNKNOWN_BOOT``.
    """
    if ON_LINUX:
        with suppress(OSError):
            return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    elif boot := _run("sysctl", "-n", "kern.bootsessionuuid"):
        return boot
    return UNKNOWN_BOOT + hashlib.sha256(platform.node().encode()).hexdigest()[:12]


def read_pid_namespace() -> str:
    """Returns the number of this process's pid namespace, or ``UNKNOWN_NAMESPACE``."""
    with suppress(OSError):
        return os.readlink(PROC / "self/ns/pid").removeprefix("pid:[").removesuffix("]")
    return UNKNOWN_NAMESPACE


def read_hardware_id() -> str:
    """Returns the id that macOS has for this machine; empty on other systems."""
    if ON_LINUX:
        return ""
    found = re.search(r'"IOPlatformUUID" = "([^"]+)"', _run("ioreg", "-rd1", "-c", "IOPlatformExpertDevice"))
    return found[1] if found else ""


@cache
def _run(*command: str) -> str:
    """Returns the output of a command without its white space, or an empty text if it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS)
        return done.stdout.strip()
    return ""


@cache
def _load_psutil() -> Any | None:
    """Returns the package. It is a dependency on every system but Linux."""
    try:
        import psutil
    except ImportError:
        return None
    return psutil


def count_threads() -> int:
    """Returns the number of threads of this process; if that is unknown, of those that Python has started."""
    with suppress(OSError):
        if ON_LINUX:
            return len(os.listdir(PROC / "self/task"))
    psutil = None if ON_LINUX else _load_psutil()
    return threading.active_count() if psutil is None else int(psutil.Process().num_threads())


def measure_age() -> float:
    """Returns the seconds since this process started, or 0 if that is unknown."""
    started = read_start_time(os.getpid())
    if not started:
        return 0.0
    if not ON_LINUX:
        return max(0.0, time.time() - started / MICROSECONDS)
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - _read_time_offset() / NANOSECONDS
    return max(0.0, since_boot - started / os.sysconf("SC_CLK_TCK"))


def measure_sleep() -> float:
    """Returns the seconds that the machine has slept since a fixed moment; always 0 if that is unknown."""
    awake_or_not, awake = (getattr(time, name, None) for name in SLEEP_CLOCKS.get(sys.platform, ("", "")))
    if awake_or_not is None or awake is None:
        return 0.0
    return time.clock_gettime(awake_or_not) - time.clock_gettime(awake)


def read_available_memory() -> int | None:
    """Returns the system's estimate in bytes: free memory and reclaimable caches; None if that is unknown."""
    with suppress(OSError):
        if ON_LINUX:
            lines = (PROC / "meminfo").read_text().splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    psutil = None if ON_LINUX else _load_psutil()
    return None if psutil is None else int(psutil.virtual_memory().available)


def read_own_memory() -> int:
    """Returns the resident memory of this process in bytes; if that is unknown, its maximum so far."""
    with suppress(OSError):
        if ON_LINUX:
            return int((PROC / "self/statm").read_text().split()[1]) * resource.getpagesize()
    psutil = None if ON_LINUX else _load_psutil()
    if psutil is not None:
        return int(psutil.Process().memory_info().rss)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if ON_MACOS else 1024)


def list_local_networks() -> set[IPv4Network]:
    """Returns the IPv4 networks to which this machine has a route of its own, apart from the default route.

    Source: ``/proc/net/route``, which has addresses and masks as hexadecimal numbers in the order of this machine's
    bytes; elsewhere the networks of the interfaces.
    """
    found = set()
    if ON_LINUX:
        with suppress(OSError):
            for line in (PROC / "net/route").read_text().splitlines()[1:]:
                address, mask = (int(line.split()[column], 16).to_bytes(4, sys.byteorder) for column in (1, 7))
                found.add(IPv4Network((address, int.from_bytes(mask).bit_count()), strict=False))
    elif (psutil := _load_psutil()) is not None:
        for addresses in psutil.net_if_addrs().values():
            for one in addresses:
                if one.family == socket.AF_INET and one.netmask:
                    found.add(IPv4Network(f"{one.address}/{one.netmask}", strict=False))
    return {network for network in found if network.prefixlen}


def list_open_files(pid: int) -> Iterator[os.stat_result]:
    """Yields the status of each open file of a process; none if they are hidden from this user."""
    paths: list[Path] = []
    if ON_LINUX:
        with suppress(OSError):
            paths = list((PROC / str(pid) / "fd").iterdir())
    elif (psutil := _load_psutil()) is not None:
        with suppress(psutil.Error):
            paths = [Path(file.path) for file in psutil.Process(pid).open_files()]
    for path in paths:
        with suppress(OSError):  # it was closed or removed meanwhile
            yield path.stat()


def find_lock_holders(file: os.stat_result) -> list[int]:
    """Returns the processes that hold a ``flock`` of a file; none if the system does not list locks."""
    inode = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    lines: list[list[str]] = []
    with suppress(OSError):
        lines = [line.split() for line in (PROC / "locks").read_text().splitlines() if "->" not in line]
    return sorted({int(lock[4]) for lock in lines if len(lock) > 5 and lock[1] == "FLOCK" and lock[5] == inode})


def has_mount_point(folder: Path) -> bool:
    """Returns whether a file system is mounted in a folder, at any depth, or on it. ``folder`` must have no link.

    Source: proc_pid_mountinfo(5), because device numbers do not show a bind mount of the same file system. Without it
    the device numbers must do.
    """
    try:
        lines = (PROC / "self/mountinfo").read_bytes().splitlines()
    except OSError:
        return os.path.ismount(folder) or any(
            os.path.ismount(os.path.join(place, name)) for place, names, _ in os.walk(folder) for name in names
        )
    points = (re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), line.split()[4]) for line in lines)
    return any(Path(os.fsdecode(point)).is_relative_to(folder) for point in points)
