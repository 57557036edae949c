"""A disk of a node's own: ext4 in an image file on a loop device, which the container is given and mounts itself.

The power of such a disk can be cut (``cluster/ssh/power.py``) without the container being stopped, so the node's
network and its rules stay. It is mounted inside the container, by the container's own right (SYS_ADMIN): it goes with
it, and the machine outside has a loop device and a file to take back, nothing else. Only runs that cut power get disks.

The loop device is known by its image, never by its number, which may be another owner's by the time it is undone.
"""

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.cluster.owner import Owner

NODE_DEVICE = "/dev/assay-disk"
"""What the disk is called inside the container."""
SIZE = 1 << 30
"""Bytes a node may store; the image is sparse, so it takes what is written (9 MB when it is new)."""
TRIES = 20
"""Attempts at a loop device; another session may take the one that was free a moment ago."""
LOOP_MAJOR = 7
FOLDER, SUFFIX = "disks", ".ext4"


class DiskError(OSError):
    """This machine cannot make such disks, or not take one back; the message says why and has the remedy."""


@dataclass(frozen=True)
class DiskImage:
    """A disk that some run has made; ``owner`` as text."""

    path: Path
    owner: str
    run_id: str


def image_path(state: Path, mine: Owner, run_id: str, node: str) -> Path:
    """Where a node's image is; its name says whose it is, so that it is found even if the journal is lost."""
    return state / FOLDER / f"{mine}.{run_id}.{node}{SUFFIX}"


def images(state: Path) -> list[DiskImage]:
    """All there are in this state folder, by name."""
    found = []
    for path in sorted((state / FOLDER).glob(f"*{SUFFIX}")):
        parts = path.name.removesuffix(SUFFIX).split(".")
        found.append(DiskImage(path, ".".join(parts[:4]), ".".join(parts[4:-1])))
    return found


def make(image: Path) -> str:
    """The loop device of a new disk. What takes it back, :func:`remove`, must be in the journal before."""
    check()
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(SIZE)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", str(image))
    for _ in range(TRIES - 1):
        try:
            return _attach(image)
        except DiskError:
            continue
    return _attach(image)


def remove(image: Path) -> bool:
    """Detaches and deletes; False when both were done already.

    A device that a container still has is detached when the container goes.
    """
    found = attached(image)
    for device in found:
        _run("losetup", "-d", device)
    existed = image.exists()
    image.unlink(missing_ok=True)
    return existed or bool(found)


def attached(image: Path) -> list[str]:
    """The loop devices of this image, also after it was deleted."""
    wanted = str(image.resolve())
    devices = []
    for entry in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            backing = entry.read_text().rstrip("\n")
        except OSError:
            continue  # detached just now
        if backing.removesuffix(" (deleted)") == wanted:
            devices.append(f"/dev/{entry.parts[3]}")
    return devices


def container_options(device: str) -> dict[str, Any]:
    """What the engine must grant a container that is to have the disk, as arguments of the Docker SDK.

    SYS_ADMIN is needed for the mount and for the shutdown; AppArmor's profile for containers forbids every mount.
    """
    return {
        "cap_add": ["SYS_ADMIN"],
        "devices": [f"{device}:{NODE_DEVICE}:rwm"],
        "security_opt": ["apparmor=unconfined"],
    }


def check() -> None:
    """Raises :class:`DiskError` for what can be known without trying."""
    if os.geteuid() != 0:
        raise DiskError("loop devices need root; run as root, or in the simulation (--cluster=sim)")
    host = os.environ.get("DOCKER_HOST") or "unix://"
    if not host.startswith("unix://"):
        raise DiskError(f"the Docker engine is on another machine ({host}), and its loop devices cannot be made here")
    for program in ("mkfs.ext4", "losetup"):
        if shutil.which(program) is None:
            package = "e2fsprogs" if program == "mkfs.ext4" else "mount"
            raise DiskError(f"{program} is not installed (`apt install {package}`)")
    if not Path("/dev/loop-control").exists():
        raise DiskError("there is no /dev/loop-control: `modprobe loop`, or a container that is given the device")


def _attach(image: Path) -> str:
    device = _run("losetup", "--find")
    number = int(device.removeprefix("/dev/loop"))
    if not Path(device).exists():  # a container's /dev has what there was when it was made
        os.mknod(device, stat.S_IFBLK | 0o660, os.makedev(LOOP_MAJOR, number))
    _run("losetup", device, str(image))
    return device


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise DiskError(f"`{' '.join(argv)}` exited {done.returncode}: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()
