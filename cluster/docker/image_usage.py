"""Keeps a file with notes: the systems and roles whose nodes run each image.

A label of the image could only name one system, but systems with equal needs share an image. The notes are only shown
to users; nothing else depends on them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from assay.cluster.file_lock import hold_lock
from assay.cluster.journal import state_folder
from assay.cluster.regular_files import read_regular_json

MAX_NAMED: Final = 3
"""Maximum number of systems that are named. Further systems are only counted."""

ImageUsage = Mapping[str, Mapping[str, Collection[str]]]
"""Maps an image's id to the names of systems, and each name to the roles whose nodes run the image."""


def note_usage(system: str, images: Mapping[str, Collection[str]]) -> str | None:
    """Notes the ids of each role's images: the one that its nodes run, and those that it was built on.

    Returns the error, or None. The disk may be full, for example.
    """

    def add_roles(before: ImageUsage) -> ImageUsage:
        after = {image: {name: set(roles) for name, roles in systems.items()} for image, systems in before.items()}
        for role, ids in images.items():
            for image in ids:
                after.setdefault(image, {}).setdefault(system, set()).add(role)
        return after

    return _change_usage(add_roles)


def forget_others(images: Collection[str]) -> str | None:
    """Removes the notes on all other images, because these images are gone. Returns the error, or None."""
    return _change_usage(lambda before: {image: systems for image, systems in before.items() if image in images})


def _change_usage(change: Callable[[ImageUsage], ImageUsage]) -> str | None:
    try:
        with hold_lock(_find_lock()):
            before = read_usage()
            _write(change(before), before)
    except OSError as error:
        return f"which systems run which images is not noted: {error}"
    return None


def read_usage() -> ImageUsage:
    """Returns the notes; empty if there are none or they are unreadable."""
    try:
        found = read_regular_json(_find_file())
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
    temporary = _find_file().with_suffix(".new")
    temporary.write_text(json.dumps(plain, indent=1))
    os.replace(temporary, _find_file())


def _find_file() -> Path:
    return state_folder() / "images.json"


def _find_lock() -> Path:
    return state_folder() / "images.lock"
