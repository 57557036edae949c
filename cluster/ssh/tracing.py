"""Counts the changes that a command makes to the files of one folder, by tracing its system calls with ptrace(2).

1. The command runs as a child of this program, which stops the command and its children at each system call.
2. Before a call that may change a file, the file's path is looked up. The path decides whether the call concerns the
   folder. For an open it also decides whether the call will create or empty the file.
3. After the call, a change is counted if the call succeeded. A write counts if it wrote at least one byte.
4. The count is written to a file at each change, and the exit status of the command to another file at its end.

Changes are: written bytes, a changed length of a file, a name that is created, changed or removed, and a writable
shared mapping. Mode, owner and times of a file do not count. The program may be unable to follow a call (io_uring, a
32-bit program, a path that it may not look up). Then it notes the reason, because a count of 0 proves nothing. If the
command cannot be traced at all, it runs untraced, and the reason is noted.

The command is the second copy of a server (:mod:`assay.cluster.ssh.second_copy`), so messages call it the copy.

This module runs on the node, as the user of the command (:func:`command`). It uses only the standard library of Python
3.9.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

try:
    import ctypes
except ImportError:  # a minimal Python may lack it
    ctypes = None  # type: ignore[assignment]

PEEK, SYSCALL, SEIZE, INTERRUPT, LISTEN, INFO = 2, 24, 0x4206, 0x4207, 0x4208, 0x420E
"""Requests of ptrace(2)."""
OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100000
"""Options of ptrace(2): mark stops at system calls; follow fork, vfork, clone and exec; kill all if the tracer ends."""
ALL_CHILDREN = 0x40000000
"""A flag of waitpid(2): wait for threads, too."""
CALL_STOP = signal.SIGTRAP | 0x80
"""Signal with which the kernel reports that a thread has stopped at a system call."""
EVENT_STOP = 128
"""Event of a thread that is new, or that a signal has stopped (PTRACE_EVENT_STOP)."""
ENTERED, LEFT = 1, 2
"""Kinds of stops at a system call: before it, and after it."""
CURRENT_FOLDER = -100
"""AT_FDCWD."""
WORD = 8
"""Bytes of memory that one request reads."""
LONGEST_PATH = 4096
WRITABLE_MAPPING, SHARED = 0x2, 0x1
"""Flags of mmap(2): PROT_WRITE and MAP_SHARED."""

DESCRIPTOR, NAME, OPEN, MAPPING, OPAQUE = "descriptor", "name", "open", "mapping", "opaque"
"""Kinds of system calls. ``OPAQUE``: it hands over other calls, which cannot be followed."""


class Call(NamedTuple):
    """A system call that may change a file. ``places``: the indexes of these arguments, by ``kind``:

    - ``DESCRIPTOR``: the descriptor
    - ``NAME``: pairs of a folder's descriptor (None: the call has none) and a path
    - ``OPEN``: one pair as in ``NAME``, and the flags (None: creat)
    - ``MAPPING``: protection, flags and descriptor
    """

    kind: str
    places: tuple[int | None, ...]
    in_bytes: bool
    """Whether the result is a number of bytes."""


X86: Final[Mapping[int, Call]] = {
    **dict.fromkeys((1, 18, 20, 296, 328, 40), Call(DESCRIPTOR, (0,), True)),  # write and its like, sendfile
    **dict.fromkeys((275, 326), Call(DESCRIPTOR, (2,), True)),  # splice, copy_file_range
    **dict.fromkeys((77, 285), Call(DESCRIPTOR, (0,), False)),  # ftruncate, fallocate
    **dict.fromkeys((76, 83, 84, 87, 133), Call(NAME, (None, 0), False)),  # truncate, mkdir, rmdir, unlink, mknod
    **dict.fromkeys((82, 86), Call(NAME, (None, 0, None, 1), False)),  # rename, link
    88: Call(NAME, (None, 1), False),  # symlink
    **dict.fromkeys((258, 259, 263), Call(NAME, (0, 1), False)),  # mkdirat, mknodat, unlinkat
    **dict.fromkeys((264, 265, 316), Call(NAME, (0, 1, 2, 3), False)),  # renameat, linkat, renameat2
    266: Call(NAME, (1, 2), False),  # symlinkat
    2: Call(OPEN, (None, 0, 1), False),
    85: Call(OPEN, (None, 0, None), False),  # creat
    257: Call(OPEN, (0, 1, 2), False),  # openat
    437: Call(OPEN, (0, 1, 2), False),  # openat2
    9: Call(MAPPING, (2, 3, 4), False),
    425: Call(OPAQUE, (), False),  # io_uring_setup
    209: Call(OPAQUE, (), False),  # io_submit
}
ARM: Final[Mapping[int, Call]] = {
    **dict.fromkeys((64, 66, 68, 70, 287, 71), Call(DESCRIPTOR, (0,), True)),
    **dict.fromkeys((76, 285), Call(DESCRIPTOR, (2,), True)),
    **dict.fromkeys((46, 47), Call(DESCRIPTOR, (0,), False)),
    45: Call(NAME, (None, 0), False),
    **dict.fromkeys((33, 34, 35), Call(NAME, (0, 1), False)),
    **dict.fromkeys((37, 38, 276), Call(NAME, (0, 1, 2, 3), False)),
    36: Call(NAME, (1, 2), False),
    56: Call(OPEN, (0, 1, 2), False),
    437: Call(OPEN, (0, 1, 2), False),
    222: Call(MAPPING, (2, 3, 4), False),
    425: Call(OPAQUE, (), False),
    2: Call(OPAQUE, (), False),
}
X86_64, ARM64 = 0xC000003E, 0xC00000B7
"""Architectures, as linux/audit.h numbers them."""
TABLES: Final[Mapping[int, Mapping[int, Call]]] = {X86_64: X86, ARM64: ARM}
OPENAT2 = 437
"""Number of openat2(2), whose flags are in memory."""
X32_FLAG = 0x40000000
"""Flag in the call numbers of x86-64 programs with 32-bit pointers (x32)."""


class Untraceable(Exception):
    """A call that may concern the folder cannot be followed. The message names it."""


@dataclass
class Tracer:
    """Traces one command, and counts its changes to files below ``folder``, except to ``excluded_file``.

    If ``folder`` is empty, the command is not traced. ``doubt``: why there may be changes that were not counted.
    """

    folder: str
    excluded_file: str
    counts_file: str
    status_file: str
    changes: int = 0
    doubt: str = ""
    _pending_calls: dict[int, bool] = field(default_factory=dict)
    """Maps each thread in a call that may change the folder to whether the call's result is a number of bytes."""

    _libc: Any = None
    _info: Any = None

    def run(self, argv: list[str]) -> None:
        """Runs the command, until it and all processes that it started have ended."""
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            execute(argv)
        os.close(ready)
        try:
            self._seize(child)
        except Untraceable as error:
            self.doubt = str(error)
        self._write_count()
        os.close(go)
        while True:
            try:
                thread, wait_status = os.waitpid(-1, ALL_CHILDREN)
            except ChildProcessError:
                return
            if os.WIFSTOPPED(wait_status):
                self._handle_stop(thread, wait_status)
                continue
            self._pending_calls.pop(thread, None)
            if thread == child:
                code = os.waitstatus_to_exitcode(wait_status)
                Path(self.status_file).write_text(f"{128 - code if code < 0 else code}\n")

    def _seize(self, child: int) -> None:
        if not self.folder:
            raise Untraceable("the system does not say where its data are: define its method data_folder")
        if ctypes is None:
            raise Untraceable("the python3 of the node has no module ctypes: install it")
        self.folder = os.path.realpath(self.folder)
        self.excluded_file = os.path.realpath(self.excluded_file) if self.excluded_file else ""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.restype = ctypes.c_long
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._info = ctypes.create_string_buffer(128)
        try:
            self._ptrace(SEIZE, child, 0, OPTIONS)
            self._ptrace(INTERRUPT, child)
            os.waitpid(child, ALL_CHILDREN)
            self._ptrace(SYSCALL, child)
        except OSError as error:
            raise Untraceable(f"ptrace(2) is not possible on the node: {error.strerror}") from error

    def _handle_stop(self, thread: int, wait_status: int) -> None:
        """Examines a stopped thread and resumes it."""
        number, event = os.WSTOPSIG(wait_status), wait_status >> 16
        request, signal_number = SYSCALL, 0
        if number == CALL_STOP:
            self._handle_call(thread)
        elif event == EVENT_STOP and number != signal.SIGTRAP:
            request = LISTEN  # a signal stopped the program, which stays stopped
        elif not event:
            signal_number = number
        try:
            self._ptrace(request, thread, 0, signal_number)
        except ProcessLookupError:
            self._pending_calls.pop(thread, None)  # the thread was killed while it was stopped

    def _handle_call(self, thread: int) -> None:
        before = self.changes, self.doubt
        try:
            self._ptrace(INFO, thread, len(self._info), ctypes.addressof(self._info))
            operation, architecture, number, *arguments = struct.unpack_from("<B3xI16x7Q", self._info)
            if operation == ENTERED:
                self._pending_calls.pop(thread, None)
                self._handle_call_entry(thread, architecture, number, arguments)
            elif operation == LEFT and thread in self._pending_calls:
                (result,) = struct.unpack_from("<q", self._info, 24)
                self.changes += result > 0 or (result == 0 and not self._pending_calls[thread])
                del self._pending_calls[thread]
        except ProcessLookupError:
            return
        except Untraceable as error:
            self.doubt = self.doubt or str(error)
        if before != (self.changes, self.doubt):
            self._write_count()

    def _handle_call_entry(self, thread: int, architecture: int, number: int, arguments: Sequence[int]) -> None:
        if architecture not in TABLES or (architecture == X86_64 and number & X32_FLAG):
            raise Untraceable("the second copy ran a program of an architecture whose writes cannot be followed")
        table = TABLES[architecture]
        if number not in table:
            return
        kind, places, in_bytes = table[number]
        if kind == OPAQUE:
            raise Untraceable(
                "the second copy writes through a queue of the kernel (io_uring, io_submit), which cannot be followed"
            )
        values = [None if place is None else arguments[place] for place in places]
        if kind == DESCRIPTOR:
            concerned = self._is_counted_path(read_proc_link(thread, f"fd/{to_signed(values[0])}"))
        elif kind == NAME:
            paths = [self._read_path(thread, *values[at : at + 2], follow=False) for at in range(0, len(values), 2)]
            concerned = any(map(self._is_counted_path, paths))
        elif kind == MAPPING:
            protection, mapping_flags, descriptor = (value or 0 for value in values)
            shared = mapping_flags & SHARED and protection & WRITABLE_MAPPING and to_signed(descriptor) >= 0
            concerned = bool(shared) and self._is_counted_path(read_proc_link(thread, f"fd/{to_signed(descriptor)}"))
        else:
            folder, path, flags = values
            if number == OPENAT2:
                flags = self._read_word(thread, flags or 0)
            concerned = self._changes_by_opening(self._read_path(thread, folder, path, follow=True), flags)
        if concerned:
            self._pending_calls[thread] = in_bytes

    def _changes_by_opening(self, path: str, flags: int | None) -> bool:
        """Returns whether an open creates or empties a file of the folder. ``flags``: None for creat(2)."""
        flags = os.O_CREAT | os.O_TRUNC if flags is None else flags
        if not flags & (os.O_CREAT | os.O_TRUNC) or not self._is_counted_path(path):
            return False
        return bool(flags & os.O_TRUNC) or not os.path.lexists(path)

    def _is_counted_path(self, path: str) -> bool:
        inside = path == self.folder or path.startswith(f"{self.folder}/")
        return inside and path != self.excluded_file

    def _read_path(self, thread: int, folder: int | None, address: int | None, *, follow: bool) -> str:
        """Returns an absolute path with links resolved. ``follow``: whether also a link in its last part."""
        text = os.fsdecode(self._read_text(thread, address or 0))
        if not text.startswith("/"):
            start = CURRENT_FOLDER if folder is None else to_signed(folder)
            text = os.path.join(read_proc_link(thread, "cwd" if start == CURRENT_FOLDER else f"fd/{start}"), text)
        if follow:
            return os.path.realpath(text)
        parent, name = os.path.split(text.rstrip("/"))
        return os.path.join(os.path.realpath(parent), name)

    def _read_text(self, thread: int, address: int) -> bytes:
        """Returns the bytes in the memory of the thread up to the first zero byte."""
        read = b""
        at = address - address % WORD
        while len(read) < LONGEST_PATH:
            try:
                word = self._read_word(thread, at)
            except OSError:
                return b""  # the address is invalid, so the call fails
            read += word.to_bytes(WORD, sys.byteorder)[max(0, address - at) :]
            if (end := read.find(0)) >= 0:
                return read[:end]
            at += WORD
        return read

    def _read_word(self, thread: int, address: int) -> int:
        return self._ptrace(PEEK, thread, address) % 2**64

    def _ptrace(self, request: int, thread: int, address: int = 0, data: int = 0) -> int:
        ctypes.set_errno(0)
        result: int = self._libc.ptrace(request, thread, address, data)
        if result == -1 and (error := ctypes.get_errno()):
            raise OSError(error, os.strerror(error))
        return result

    def _write_count(self) -> None:
        """Writes the count without truncating, so that no reader finds the file empty. The text never gets shorter."""
        file = os.open(self.counts_file, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, f"{self.changes} {self.doubt}\n".encode())
        os.close(file)


def to_signed(value: int | None) -> int:
    """Returns a descriptor as the signed 32-bit integer that it is."""
    number = (value or 0) % 2**32
    return number - 2**32 if number >= 2**31 else number


def read_proc_link(thread: int, name: str) -> str:
    """Returns the target of a link in the thread's folder in /proc. Raises :class:`Untraceable`."""
    try:
        return os.readlink(f"/proc/{thread}/{name}")
    except FileNotFoundError:
        return ""  # the descriptor does not exist, so the call fails
    except OSError as error:
        raise Untraceable(f"the files that the copy had open could not be looked up: {error.strerror}") from error


def execute(argv: list[str]) -> NoReturn:
    """Replaces this process by the command. Restores the default signal handlers that Python has changed."""
    for one in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(one, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def command(argv: Sequence[str], folder: str, excluded_file: str, counts_file: str, status_file: str) -> list[str]:
    """Returns the command line that runs ``argv`` under this tracer."""
    return ["python3", "-Ic", Path(__file__).read_text(), folder, excluded_file, counts_file, status_file, *argv]


if __name__ == "__main__":
    Tracer(folder=sys.argv[1], excluded_file=sys.argv[2], counts_file=sys.argv[3], status_file=sys.argv[4]).run(
        sys.argv[5:]
    )
