"""Exhausts memory: allocates up to the machine's limit, until the kernel kills the main process, and then frees it.

The limit is that of the node's control group, which a container has. A machine without such a limit is left alone,
because its kernel could kill any process. ``oom_score_adj`` makes the kernel kill the main process first.

This module runs on the node, by :func:`command`, with the standard library alone and as root. It prints one JSON value.
On failure it prints the reason and exits with code 1.
"""

from __future__ import annotations

import json
import mmap
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.events"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.oom_control"),
)
"""Files with the limit and the count of killed processes (line ``oom_kill``), in cgroup version 2 and version 1."""
MAX_LIMIT = 4 << 30
"""Bytes. A machine with a higher limit counts as a machine without a limit."""
CHUNK = 256 << 10
"""Bytes per allocation.

Every killed process frees more than this, so the chunk that caused the kill then fits. For the rest of a larger chunk,
the kernel could also kill this process.
"""
KILL_TIMEOUT = 15.0
"""Maximum seconds until the process is gone."""


def command(what: str, *arguments: str) -> str:
    """Returns the shell command that runs :func:`look`, or :func:`exhaust` with a process id, on the node.

    The process id may be the shell variable ``$pid``.
    """
    return f"{shlex.join(['python3', '-c', Path(__file__).read_text(), what])} {' '.join(arguments)}"


def look() -> dict[str, int]:
    """Returns the ``limit`` in bytes and the number of processes killed (``ended``). Raises ``RuntimeError``."""
    for limit, events in GROUPS:
        try:
            limit_text = Path(limit).read_text().strip()
            lines = [line.split() for line in Path(events).read_text().splitlines()]
        except FileNotFoundError:
            continue
        if not limit_text.isdigit() or int(limit_text) > MAX_LIMIT:
            raise RuntimeError(
                f"its memory has no limit of its own ({limit} says {limit_text}); a rootless engine sets one only with "
                "control groups of version 2"
            )
        counts = {name: int(count) for name, count in lines}
        if "oom_kill" not in counts:
            raise RuntimeError(f"the kernel does not count the processes it kills for lack of memory ({events})")
        return {"limit": int(limit_text), "ended": counts["oom_kill"]}
    raise RuntimeError("the node has no control group for memory")


def exhaust(pid: str) -> dict[str, int]:
    """Exhausts memory until the process is gone. ``taken``: allocated bytes. Raises ``RuntimeError`` if it survives."""
    before = look()
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    deadline = time.monotonic() + KILL_TIMEOUT
    taken, enough = mmap.mmap(-1, 8), mmap.mmap(-1, 1)  # shared with the allocator: allocated bytes, request to end
    parent, allocator = os.getpid(), os.fork()
    if allocator == 0:
        _allocate(before["limit"], taken, enough, parent)
    try:
        while _is_alive(pid):
            if time.monotonic() >= deadline:
                raise RuntimeError(f"process {pid} was not ended within {KILL_TIMEOUT:g} s")
            time.sleep(0.01)
    finally:
        enough[0] = 1
        _, status = os.waitpid(allocator, 0)
    # If the main process dies slowly, the kernel may also kill the allocator. This process sends the allocator no
    # signal, because the allocator's exit status must show whether the kernel has killed it.
    allocator_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    now = look()
    return {**now, "ended": now["ended"] - allocator_killed, "before": before["ended"], "taken": _read_counter(taken)}


def _allocate(limit: int, taken: mmap.mmap, enough: mmap.mmap, parent: int) -> NoReturn:
    """Allocates memory in a child process until it is killed, ``enough`` is set, or the parent is gone."""
    held: list[bytes] = []
    while not enough[0] and os.getppid() == parent:
        if len(held) * CHUNK < limit:
            held.append(b"x" * CHUNK)
            taken[:] = (len(held) * CHUNK).to_bytes(8, "little")
        else:
            time.sleep(0.01)
    os._exit(0)


def _read_counter(taken: mmap.mmap) -> int:
    return int.from_bytes(taken[:], "little")


def _is_alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def main(what: str, *arguments: str) -> int:
    try:
        print(json.dumps(exhaust(*arguments) if what == "exhaust" else look()))
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
