"""A disk whose power can be cut: ext4, shut down without a flush of its journal, and mounted again.

``EXT4_IOC_SHUTDOWN`` (``fs/ext4/ioctl.c``, used by the tool ``godown`` of xfstests) makes the file system reject all
further writes. The disk then has the content of a power loss: fsynced data, and what the kernel had written by then.

The disk is an image file on a loop device, mounted in a node's container. This module runs in another container, which
is privileged (``cluster/docker/disk.py``). The process enters the node's mount namespace, so the node itself needs no
rights. It opens the folders of its own container before that, because afterwards paths lead to the node's files.

The loop device is detached by the kernel with its last mount (``LO_FLAGS_AUTOCLEAR``). So once both containers are
gone, no device is left, even if a process was killed.

This module runs with the standard library alone and as root, by :func:`argv`. It prints one JSON value. On failure it
prints the reason and exits with code 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import stat
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

MS_NOATIME = 1024
OPTIONS = "noauto_da_alloc,commit=60"
"""Mount options that keep ext4 from hiding a missing fsync.

- ``noauto_da_alloc``: by default ext4 flushes a file that is renamed over another.
- ``commit``: by default ext4 writes new names every 5 s.
"""
UNMOUNT_SECONDS = 10.0
"""Maximum seconds until the disk can be unmounted, because processes may still have files open."""

CANARY = ".assay-canary"
"""Name of the file that tests whether the disk has lost its power, or works."""

SIZE = 1 << 30
"""Bytes that a node may store. The image is sparse: a new one takes only 9 MB."""
OWN_NAMESPACE = "self"
"""Stands for the process id of a node if the disk is mounted in this container itself."""

CLONE_NEWNS = 0x20000
LOOP_MAJOR = 7
LOOP_CONTROL = (10, 237)
"""Major and minor number of ``/dev/loop-control``."""
LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
"""Sets file and flags in one step. Linux has it since 5.8."""
LO_FLAGS_AUTOCLEAR = 4
LOOP_CONFIG = "=II 5Q 4I 64s 64s 32s 2Q 64x"
"""``struct loop_config`` (``linux/loop.h``): file, block size, and a ``struct loop_info64``."""
ATTACH_ATTEMPTS = 20
"""Maximum number of attempts to get a loop device. Another process may take a free device first."""

LIBC = ctypes.CDLL(None, use_errno=True)


def argv(what: str, pid: int | str, image: str, folder: str) -> list[str]:
    """Returns the command that runs ``mount``, ``lose`` or ``trial`` in the privileged container.

    - ``pid``: a process of the node, or ``OWN_NAMESPACE``
    - ``image``: path of the image in the privileged container; ``trial`` creates the file
    - ``folder``: where the node mounts the disk
    """
    return ["python3", "-c", Path(__file__).read_text(), what, str(pid), image, folder]


class Disk:
    """The disk of a node. Its creation moves the process into the node's mount namespace."""

    def __init__(self, pid: str, image: str, folder: str) -> None:
        self.folder = folder
        images, self._name = os.path.split(image)
        self._images, self._devices, self._blocks = map(_open_folder, (images, "/dev", "/sys/dev/block"))
        if pid != OWN_NAMESPACE:
            _enter_namespace(f"/proc/{pid}/ns/mnt")

    def mount(self) -> None:
        """Mounts the disk unless it is mounted and alive. Creates the folder."""
        if self._is_mounted():
            if _is_alive(self.folder):
                return
            self._unmount()
        os.makedirs(self.folder, exist_ok=True)
        number, device = self._attach()
        try:
            self._note_device(os.fstat(device).st_rdev)
            os.fchdir(self._devices)  # a relative path still leads to this container's files
            _call("mount", f"loop{number}", self.folder, "ext4", MS_NOATIME, OPTIONS)
        finally:
            os.chdir("/")
            os.close(device)  # without a mount, this detaches the device
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(os.path.join(self.folder, "lost+found"))  # the system would see a foreign folder in its data

    def lose_power(self) -> dict[str, int]:
        """Cuts the power. Maps each file that lost bytes to their number. Raises ``RuntimeError``.

        No process may have a file open on the disk. An unsynced file is written just before: if that file survives, the
        power was not cut.
        """
        if not self._is_mounted():
            raise RuntimeError(f"the disk is not mounted at {self.folder}")
        before = _sizes(self.folder)
        canary = os.path.join(self.folder, CANARY)
        Path(canary).write_bytes(b"x" * 4096)
        handle = _open_folder(self.folder)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
        finally:
            os.close(handle)
        self._unmount()
        self.mount()
        after = _sizes(self.folder)
        survived = after.pop(canary, 0)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(canary)
        if survived:
            raise RuntimeError(f"{survived} bytes that were never fsynced are still on the disk; no power was lost")
        return {path: size - after.get(path, 0) for path, size in sorted(before.items()) if size > after.get(path, 0)}

    def try_power_loss(self) -> None:
        """Mounts the disk and cuts its power once: fsynced data must survive, and nothing else."""
        self.mount()
        try:
            path = os.path.join(self.folder, "fsynced")
            with open(path, "wb") as file:
                file.write(b"fsynced")
                file.flush()
                os.fsync(file.fileno())
                _fsync_folder(self.folder)
                file.write(b", and this is not")
            self.lose_power()
            content = Path(path).read_bytes()
            if content != b"fsynced":
                raise RuntimeError(f"a file of which 7 bytes were fsynced came through as {content!r}")
            os.unlink(path)
            _fsync_folder(self.folder)
        except BaseException:
            self._unmount()
            raise

    def _attach(self) -> tuple[int, int]:
        """Attaches the image to a loop device. Returns the number of the device, and an open file of it."""
        backing = os.open(self._name, os.O_RDWR, dir_fd=self._images)
        control = self._open_control()
        info = (0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_AUTOCLEAR, self._name.encode()[:63], b"", b"", 0, 0)
        try:
            for _ in range(ATTACH_ATTEMPTS):
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
                self._make_device(f"loop{number}", stat.S_IFBLK, LOOP_MAJOR, number)
                device = os.open(f"loop{number}", os.O_RDWR, dir_fd=self._devices)
                try:
                    fcntl.ioctl(device, LOOP_CONFIGURE, struct.pack(LOOP_CONFIG, backing, 0, *info))
                    return number, device
                except OSError as error:
                    os.close(device)
                    if error.errno != errno.EBUSY:
                        raise RuntimeError(f"/dev/loop{number} rejects an image: {error}") from error
        finally:
            os.close(backing)
            os.close(control)
        raise RuntimeError(f"{ATTACH_ATTEMPTS} attempts to get a free loop device failed, because others took it first")

    def _open_control(self) -> int:
        try:
            self._make_device("loop-control", stat.S_IFCHR, *LOOP_CONTROL)
            return os.open("loop-control", os.O_RDWR, dir_fd=self._devices)
        except OSError as error:
            raise RuntimeError(
                f"the engine's machine gives no loop devices ({error.strerror}): as root there, `modprobe loop`"
            ) from error

    def _make_device(self, name: str, kind: int, major: int, minor: int) -> None:
        with contextlib.suppress(FileExistsError):
            os.mknod(name, kind | 0o600, os.makedev(major, minor), dir_fd=self._devices)

    def _note_device(self, device: int) -> None:
        """Writes the number of the loop device beside the image."""
        handle = os.open(f"{self._name}.device", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self._images)
        with open(handle, "w") as file:
            file.write(str(device))

    def _read_device(self) -> int | None:
        try:
            with open(os.open(f"{self._name}.device", os.O_RDONLY, dir_fd=self._images)) as file:
                return int(file.read())
        except FileNotFoundError:
            return None

    def _is_mounted(self) -> bool:
        """Returns whether the folder shows this disk. Another file system may be mounted there, such as a volume."""
        try:
            return os.stat(self.folder).st_dev == self._read_device()
        except FileNotFoundError:
            return False

    def _unmount(self) -> None:
        """Unmounts the disk, once its files are closed, and waits until its device is detached.

        Otherwise a new mount could show the same dead file system.
        """
        deadline = time.monotonic() + UNMOUNT_SECONDS
        while self._is_mounted():
            try:
                _call("umount2", self.folder, 0)
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"{self.folder} cannot be unmounted: {error}") from error
                time.sleep(0.02)
        while self._is_attached():
            if time.monotonic() >= deadline:
                raise RuntimeError("the disk is still mounted elsewhere; does a process have mounts of its own?")
            time.sleep(0.02)

    def _is_attached(self) -> bool:
        device = self._read_device()
        if device is None:
            return False
        path = f"{os.major(device)}:{os.minor(device)}/loop/backing_file"
        try:
            with open(os.open(path, os.O_RDONLY, dir_fd=self._blocks)) as file:
                return os.path.basename(file.read().rstrip("\n")) == self._name
        except OSError:
            return False


def make_image(image: str) -> None:
    """Creates the image of a disk, unless it exists."""
    if os.path.exists(image):
        return
    with open(image, "wb") as file:
        file.truncate(SIZE)
    command = ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", image]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        os.unlink(image)
        raise RuntimeError(f"`{' '.join(command)}` exited {done.returncode}: {(done.stdout + done.stderr).strip()}")


def _enter_namespace(path: str) -> None:
    namespace = os.open(path, os.O_RDONLY)
    try:
        _call("setns", namespace, CLONE_NEWNS)
    finally:
        os.close(namespace)


def _call(name: str, *arguments: str | int) -> None:
    """Calls a function of the C library. Raises ``OSError`` if it fails."""
    values = [os.fsencode(argument) if isinstance(argument, str) else argument for argument in arguments]
    if getattr(LIBC, name)(*values) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


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


def _sizes(folder: str) -> dict[str, int]:
    return {path: os.stat(path).st_size for path in _files(folder)}


def _files(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in names)


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync_folder(folder: str) -> None:
    handle = _open_folder(folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def main(what: str, pid: str, image: str, folder: str) -> int:
    actions = {"mount": Disk.mount, "lose": Disk.lose_power, "trial": Disk.try_power_loss}
    try:
        if what == "trial":
            make_image(image)
        print(json.dumps(actions[what](Disk(pid, image, folder))))
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
