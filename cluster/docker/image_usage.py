"""Notes on this machine which systems' nodes run which images.

A label of the image could only name the first system: an image's tag depends on its content, and systems with equal
needs share it. The notes are for readers only; nothing depends on them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from assay.cluster.file_lock import hold_lock
from assay.cluster.journal import state_folder

MAX_NAMED: Final = 3
"""Number of systems that are named. The others are counted."""

ImageUsage = Mapping[str, Mapping[str, Collection[str]]]
"""Image id to system name to roles of its nodes."""


def note_usage(system: str, images: Mapping[str, Collection[str]]) -> str | None:
    """Notes the image ids of each role: its own image and those below it.

    Returns the reason if it cannot be noted, for example on a full disk.
    """

    def add_roles(before: ImageUsage) -> ImageUsage:
        after = {image: {name: set(roles) for name, roles in systems.items()} for image, systems in before.items()}
        for role, ids in images.items():
            for image in ids:
                after.setdefault(image, {}).setdefault(system, set()).add(role)
        return after

    return _change_usage(add_roles)


def forget_others(images: Collection[str]) -> str | None:
    """Forgets all other image ids, because their images are gone. Returns the error, if any."""
    return _change_usage(lambda before: {image: systems for image, systems in before.items() if image in images})


def _change_usage(change: Callable[[ImageUsage], ImageUsage]) -> str | None:
    try:
        with hold_lock(_lock()):
            before = read_usage()
            _write(change(before), before)
    except OSError as error:
        return f"which systems run which images is not noted: {error}"
    return None


def read_usage() -> ImageUsage:
    """Returns the notes; empty if there are none or they are unreadable."""
    try:
        found = json.loads(_file().read_text())
        return {str(image): {str(name): set(roles) for name, roles in of.items()} for image, of in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def describe_usage(systems: Mapping[str, Collection[str]]) -> str:
    """Returns text like ``redis (sentinel, server), etcd (server)``; empty if no system is known."""
    named = [f"{name} ({', '.join(sorted(roles))})" for name, roles in sorted(systems.items())]
    return ", ".join(named[:MAX_NAMED]) + (f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else "")


def _write(after: ImageUsage, before: ImageUsage) -> None:
    if after == before:
        return
    plain = {image: {name: sorted(roles) for name, roles in systems.items()} for image, systems in after.items()}
    temporary = _file().with_suffix(".new")
    temporary.write_text(json.dumps(plain, indent=1))
    os.replace(temporary, _file())


def _file() -> Path:
    return state_folder() / "images.json"


def _lock() -> Path:
    return state_folder() / "images.lock"
