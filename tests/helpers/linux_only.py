"""Names that Python has on Linux and lacks on macOS, as the availability notes of Python's documentation say.

``os.sendfile`` stays: macOS has it, but only from a file to a socket. ``os.waitid`` came to macOS with Python 3.13.
"""

from __future__ import annotations

from typing import Final

ATTRIBUTES: Final = {
    "os": (
        "O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_PATH", "O_RSYNC", "O_TMPFILE", "P_PIDFD", "SCHED_BATCH",
        "SCHED_IDLE", "copy_file_range", "eventfd", "eventfd_read", "eventfd_write", "fdatasync", "getrandom",
        "getresgid", "getresuid", "getxattr", "listxattr", "memfd_create", "pidfd_open", "pipe2",
        "posix_fadvise", "posix_fallocate", "removexattr", "sched_getaffinity", "sched_getparam",
        "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setparam",
        "sched_setscheduler", "setns", "setresgid", "setresuid", "setxattr", "splice", "unshare", "waitid",
    ),
    "resource": ("RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_SIGPENDING", "RUSAGE_THREAD", "prlimit"),
    "select": ("epoll",),
    "signal": ("SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    "socket": ("AF_NETLINK", "AF_PACKET", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_PEERCRED"),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
}  # fmt: skip
"""By module."""
FUNCTIONS: Final = ("close_range", "epoll_create1", "gettid", "inotify_init1", "prctl", "ptrace", "unshare")
"""Functions of Linux' C library, which ctypes can call."""
FOLDERS: Final = ("/proc", "/sys", "/dev/shm")
