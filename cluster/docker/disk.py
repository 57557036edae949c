"""A node's separate disk: ext4 in an image file on a loop device, which the container mounts itself.

The power of such a disk can be cut (``cluster/ssh/power.py``) without a stop of the container, so the node keeps its
network and packet rules. The container mounts the disk with its own right (SYS_ADMIN), and the mount ends with the
container. Only a loop device and a file remain to be removed by the harness. Only runs whose faults need disks get
them.

The loop device is identified by its image, never by its number, because at the time of the undo, the number may belong
to another owner.
"""

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.cluster.docker_endpoint import EndpointError, resolve_endpoint
from assay.cluster.owner import Owner

NODE_DEVICE = "/dev/assay-disk"
"""Name of the disk inside the container."""
SIZE = 1 << 30
"""Bytes that a node may store. The image is sparse: a new one takes only 9 MB."""
ATTACH_ATTEMPTS = 20
"""Maximum number of attempts to get a loop device. Another session may take a free device first."""
LOOP_MAJOR = 7
FOLDER, SUFFIX = "disks", ".ext4"


class DiskImageError(OSError):
    """This machine cannot make or remove such disks. The message has the reason and the remedy."""


@dataclass(frozen=True)
class DiskImage:
    """The image of a disk that a run has created. ``owner``: the text form of an ``Owner``."""

    path: Path
    owner: str
    run_id: str


def image_path(state: Path, creator: Owner, run_id: str, node: str) -> Path:
    """Returns the path of a node's image. The path names the owner, so that a leftover is found without the journal."""
    return state / FOLDER / f"{creator}.{run_id}.{node}{SUFFIX}"


def list_images(state: Path) -> list[DiskImage]:
    """Returns all disk images in this state folder, by name."""
    found = []
    for path in sorted((state / FOLDER).glob(f"*{SUFFIX}")):
        parts = path.name.removesuffix(SUFFIX).split(".")
        found.append(DiskImage(path, ".".join(parts[:4]), ".".join(parts[4:-1])))
    return found


def make_disk(image: Path) -> str:
    """Creates a disk and returns its loop device. Its undo (:func:`remove_disk`) must be in the journal before."""
    require_disk_support()
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(SIZE)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", str(image))
    for _ in range(ATTACH_ATTEMPTS - 1):
        try:
            return _attach(image)
        except DiskImageError:
            continue
    return _attach(image)


def remove_disk(image: Path) -> bool:
    """Detaches the device and deletes the image. Returns False if both were gone already.

    If a container still uses the device, it is detached when the container ends.
    """
    found = find_loop_devices(image)
    for device in found:
        _run("losetup", "-d", device)
    existed = image.exists()
    image.unlink(missing_ok=True)
    return existed or bool(found)


def find_loop_devices(image: Path) -> list[str]:
    """Returns the loop devices of this image, even if the image is deleted."""
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
    """Returns the arguments of the Docker SDK for a container with this disk.

    SYS_ADMIN is needed for the mount, and for the shutdown of ext4 that cuts the power. AppArmor's profile for
    containers forbids every mount.
    """
    return {
        "cap_add": ["SYS_ADMIN"],
        "devices": [f"{device}:{NODE_DEVICE}:rwm"],
        "security_opt": ["apparmor=unconfined"],
    }


def require_disk_support() -> None:
    """Raises :class:`DiskImageError` if this machine obviously cannot make disks. Creates nothing."""
    if os.geteuid() != 0:
        raise DiskImageError("loop devices need root; run as root, or in the simulation (--cluster=sim)")
    try:
        endpoint = resolve_endpoint()
    except EndpointError as error:
        raise DiskImageError(str(error)) from error
    if endpoint.scheme != "unix":
        raise DiskImageError(
            f"the Docker engine may be on another machine, {endpoint}, and its loop devices cannot be made here"
        )
    for program in ("mkfs.ext4", "losetup"):
        if shutil.which(program) is None:
            package = "e2fsprogs" if program == "mkfs.ext4" else "mount"
            raise DiskImageError(f"{program} is not installed (`apt install {package}`)")
    if not Path("/dev/loop-control").exists():
        raise DiskImageError("there is no /dev/loop-control: run `modprobe loop`; a container must be given the device")


def _attach(image: Path) -> str:
    device = _run("losetup", "--find")
    number = int(device.removeprefix("/dev/loop"))
    if not Path(device).exists():  # a container's /dev only has the devices that existed when it was created
        os.mknod(device, stat.S_IFBLK | 0o660, os.makedev(LOOP_MAJOR, number))
    _run("losetup", device, str(image))
    return device


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise DiskImageError(f"`{' '.join(argv)}` exited {done.returncode}: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()
