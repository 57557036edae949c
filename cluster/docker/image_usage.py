"""Which systems' nodes run which images: noted on this machine each time that the image of a role is asked for.

A label of the image could say it of the first system alone: an image is tagged by what it is made of, and systems that
need the same share it. What is noted is for a reader, and nothing depends on it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from assay.cluster.docker.network import locked
from assay.cluster.journal import state_folder

MOST: Final = 3
"""Systems that are named; the rest is counted."""

Uses = Mapping[str, Mapping[str, Collection[str]]]
"""By the image's id, by the system's name: the roles of its nodes."""


def note(system: str, images: Mapping[str, Collection[str]]) -> str | None:
    """``images``: by role, the ids of the image that its nodes run and of those below it. Returns why it could not be
    noted, as on a full disk.
    """

    def with_these(before: Uses) -> Uses:
        after = {image: {name: set(roles) for name, roles in systems.items()} for image, systems in before.items()}
        for role, ids in images.items():
            for image in ids:
                after.setdefault(image, {}).setdefault(system, set()).add(role)
        return after

    return _changed(with_these)


def forget_others(images: Collection[str]) -> str | None:
    """Only these ids are there any more. Returns why the others could not be forgotten."""
    return _changed(lambda before: {image: systems for image, systems in before.items() if image in images})


def _changed(change: Callable[[Uses], Uses]) -> str | None:
    try:
        with locked(_lock()):
            before = known()
            _write(change(before), before)
    except OSError as error:
        return f"which systems run which images is not noted: {error}"
    return None


def known() -> Uses:
    """Nothing where nothing was noted, or what was cannot be read."""
    try:
        found = json.loads(_file().read_text())
        return {str(image): {str(name): set(roles) for name, roles in of.items()} for image, of in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def said(systems: Mapping[str, Collection[str]]) -> str:
    """``redis (sentinel, server), etcd (server)``; empty where no system is known."""
    named = [f"{name} ({', '.join(sorted(roles))})" for name, roles in sorted(systems.items())]
    return ", ".join(named[:MOST]) + (f" and {len(named) - MOST} more" if len(named) > MOST else "")


def _write(after: Uses, before: Uses) -> None:
    if after == before:
        return
    text = json.dumps({one: {name: sorted(roles) for name, roles in of.items()} for one, of in after.items()}, indent=1)
    passing = _file().with_suffix(".new")
    passing.write_text(text)
    os.replace(passing, _file())


def _file() -> Path:
    return state_folder() / "images.json"


def _lock() -> Path:
    return state_folder() / "images.lock"
