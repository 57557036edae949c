"""Memory that runs out: all that a machine's limit leaves is taken, until the kernel ends the main process for it.

The limit is that of the control group in which the node's processes are, as a container has one; a machine without
one is left alone, since its kernel would end who knows what. Of the group's processes the kernel takes the main one, as
that is marked to be the first (``oom_score_adj``). The memory is given back as soon as it is gone.

This module runs on the node, by :func:`command`: the standard library alone, and root. Printed is one JSON value; a
failure ends in exit code 1 and a line that says why.
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
"""The limit, and the count of processes that were ended (a line ``oom_kill``): of version 2 and of version 1."""
MOST = 4 << 30
"""Bytes: a higher limit is taken for none."""
CHUNK = 256 << 10
"""Bytes taken at a time: less than any process gives back when it is ended. The rest of a larger one, which is still to
be taken then, could be what the kernel ends this process for.
"""
WITHIN = 15.0
"""Seconds for the process to be gone."""


def command(what: str, *given: str) -> str:
    """The shell command that runs ``look``, or ``exhaust`` with a process's id, on the node. An id may be ``$pid``."""
    return f"{shlex.join(['python3', '-c', Path(__file__).read_text(), what])} {' '.join(given)}"


def look() -> dict[str, int]:
    """The ``limit`` in bytes, and how many processes were ``ended`` for want of memory. Raises ``RuntimeError``."""
    for limit, events in GROUPS:
        try:
            said = Path(limit).read_text().strip()
            lines = [line.split() for line in Path(events).read_text().splitlines()]
        except FileNotFoundError:
            continue
        if not said.isdigit() or int(said) > MOST:
            raise RuntimeError(f"its memory has no limit of its own ({limit} says {said})")
        counts = {name: int(count) for name, count in lines}
        if "oom_kill" not in counts:
            raise RuntimeError(f"the kernel does not count whom it ends for want of memory ({events})")
        return {"limit": int(said), "ended": counts["oom_kill"]}
    raise RuntimeError("there is no control group for memory")


def exhaust(pid: str) -> dict[str, int]:
    """Returns once the process is gone. ``taken``: the bytes that it took. Raises ``RuntimeError`` when it is not."""
    before = look()
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    deadline = time.monotonic() + WITHIN
    taken, enough = mmap.mmap(-1, 8), mmap.mmap(-1, 1)
    parent, taker = os.getpid(), os.fork()
    if taker == 0:
        _take(before["limit"], taken, enough, parent)
    try:
        while _alive(pid):
            if time.monotonic() >= deadline:
                raise RuntimeError(f"process {pid} was not ended within {WITHIN:g} s")
            time.sleep(0.01)
    finally:
        enough[0] = 1
        _, status = os.waitpid(taker, 0)
    # The kernel may end the taker as well, when the other is slow to go. We send it no signal: one that arrives while
    # the kernel is at this, which counts first and kills then, would be the end that its status shows.
    ended_too = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    found = look()
    return {**found, "ended": found["ended"] - ended_too, "before": before["ended"], "taken": _number(taken)}


def _take(limit: int, taken: mmap.mmap, enough: mmap.mmap, parent: int) -> NoReturn:
    """In a process of its own, until it is ended, ``enough`` is set, or its parent is gone."""
    held: list[bytes] = []
    while not enough[0] and os.getppid() == parent:
        if len(held) * CHUNK < limit:
            held.append(b"x" * CHUNK)
            taken[:] = (len(held) * CHUNK).to_bytes(8, "little")
        else:
            time.sleep(0.01)
    os._exit(0)


def _number(taken: mmap.mmap) -> int:
    return int.from_bytes(taken[:], "little")


def _alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def main(what: str, *given: str) -> int:
    try:
        print(json.dumps(exhaust(*given) if what == "exhaust" else look()))
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
