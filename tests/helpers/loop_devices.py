"""The loop devices of this machine, by the disks that are on them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.echo_system import until


def find_loop_devices(name: str) -> list[str]:
    """Returns the loop devices whose image has ``name`` in its path, even if the image is deleted."""
    devices = []
    for entry in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            backing = entry.read_text()
        except OSError:
            continue  # detached just now
        if name in backing:
            devices.append(entry.parts[3])
    return devices


def wait_until_detached(name: str) -> None:
    """The kernel takes the mount of a container apart a moment after the container is gone."""

    async def is_detached() -> bool:
        return not find_loop_devices(name)

    asyncio.run(until(is_detached, f"{name} is detached"))
