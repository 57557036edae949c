"""A disk whose power can be cut: ext4, shut down without a flush of its journal, and mounted again.

``EXT4_IOC_SHUTDOWN`` (``fs/ext4/ioctl.c``, used by the tool ``godown`` of xfstests) makes the file system reject all
further writes. The disk then has the content of a power loss: fsynced data, and what the kernel had written by then.

This module runs on the node, by :func:`command`, with the standard library alone and as root. It prints one JSON value.
On failure it prints the reason and exits with code 1.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
"""``_IOR('X', 125, __u32)``"""
NO_LOG_FLUSH = 2
"""``EXT4_GOING_FLAGS_NOLOGFLUSH``: not even the in-memory journal is written."""

OPTIONS = "noatime,noauto_da_alloc,commit=60"
"""Mount options that keep ext4 from hiding a missing fsync.

- ``noauto_da_alloc``: by default ext4 flushes a file that is renamed over another.
- ``commit``: by default ext4 writes new names every 5 s.
"""
UNMOUNT_SECONDS = 10.0
"""Maximum seconds until the disk can be unmounted, because processes may still have files open."""

CANARY = ".assay-canary"
"""Name of the file that tests whether the disk has lost its power, or works."""


def command(what: str, device: str, folder: str) -> str:
    """Returns the shell command that runs ``mount``, ``lose`` or ``trial`` on the node."""
    return shlex.join(argv(what, device, folder))


def argv(what: str, device: str, folder: str) -> list[str]:
    """Returns the arguments of :func:`command` as a list."""
    return ["python3", "-c", Path(__file__).read_text(), what, device, folder]


def mount(device: str, folder: str) -> None:
    """Mounts the disk unless it is mounted and alive. Creates the folder."""
    if _is_mounted(folder):
        if _is_alive(folder):
            return
        _unmount(folder)
    os.makedirs(folder, exist_ok=True)
    _run("mount", "-t", "ext4", "-o", OPTIONS, device, folder)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(os.path.join(folder, "lost+found"))  # the system under test would see a foreign folder in its data


def lose_power(device: str, folder: str) -> dict[str, int]:
    """Cuts the power. Maps each file that lost bytes to their number. Raises ``RuntimeError``.

    No process may have a file open on the disk. An unsynced file is written just before: if that file survives, the
    power was not cut.
    """
    before = _sizes(folder)
    canary = os.path.join(folder, CANARY)
    Path(canary).write_bytes(b"x" * 4096)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
    finally:
        os.close(handle)
    _unmount(folder)
    mount(device, folder)
    after = _sizes(folder)
    survived = after.pop(canary, 0)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(canary)
    if survived:
        raise RuntimeError(f"{survived} bytes that were never fsynced are still on {device}; no power was lost")
    return {path: size - after.get(path, 0) for path, size in sorted(before.items()) if size > after.get(path, 0)}


def try_power_loss(device: str, folder: str) -> None:
    """Mounts the disk and cuts its power once: fsynced data must survive, and nothing else."""
    mount(device, folder)
    try:
        path = os.path.join(folder, "fsynced")
        with open(path, "wb") as file:
            file.write(b"fsynced")
            file.flush()
            os.fsync(file.fileno())
            _fsync_folder(folder)
            file.write(b", and this is not")
        lose_power(device, folder)
        content = Path(path).read_bytes()
        if content != b"fsynced":
            raise RuntimeError(f"a file of which 7 bytes were fsynced came through as {content!r}")
        os.unlink(path)
        _fsync_folder(folder)
    except BaseException:
        _unmount(folder)
        raise


def _is_mounted(folder: str) -> bool:
    """Returns whether the folder is a mount point.

    The kernel resolves links in its path and escapes characters in octal (proc(5)).
    """
    mount_point = os.path.realpath(folder)
    with open("/proc/self/mounts") as mounts:
        fields = [line.split(" ")[1] for line in mounts]
    return any(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field) == mount_point for field in fields)


def _is_alive(folder: str) -> bool:
    """Returns whether the disk works. After a shutdown names can still be read, but nothing can be created."""
    canary = os.path.join(folder, CANARY)
    try:
        os.close(os.open(canary, os.O_WRONLY | os.O_CREAT))
        os.unlink(canary)
    except OSError as error:
        if error.errno == errno.EIO:
            return False
        raise
    return True


def _unmount(folder: str) -> None:
    """Unmounts the disk, once its files are closed. Without that, a new mount would show the same dead file system."""
    deadline = time.monotonic() + UNMOUNT_SECONDS
    while True:
        try:
            _run("umount", folder)
            return
        except RuntimeError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.02)


def _sizes(folder: str) -> dict[str, int]:
    return {path: os.stat(path).st_size for path in _files(folder)}


def _files(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in names)


def _fsync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(argv)}` exited {done.returncode}: {(done.stdout + done.stderr).strip()}")


def main(what: str, device: str, folder: str) -> int:
    try:
        print(json.dumps({"mount": mount, "lose": lose_power, "trial": try_power_loss}[what](device, folder)))
    except (OSError, RuntimeError) as error:
        print(f"{what} {device}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
