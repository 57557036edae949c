"""The images that were built here, and which of them no run needs any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.cluster.docker import image, image_usage, layer, software, tools, user_images

DERIVED = ("software", user_images.NAME, "tools")
"""What the label ``assay`` says of images that lose their names to later ones."""
OURS = (*(name.partition(":")[0] for name in (layer.IMPORTED_BASE, layer.REFERENCE)), image.NAME, software.NAME)
OURS += (user_images.NAME, user_images.BUNDLE)
UNKNOWN = "no run of it is known here"


@dataclass(frozen=True)
class Kept:
    """One image. ``name``: or the id, of one whose name another has taken. ``of``: what it was built from, of a user's.

    ``purpose``: which systems' nodes, of which roles, run it, as far as that was noted here.
    """

    name: str
    size: str
    age: str
    of: str
    used: bool
    purpose: str


def present() -> list[Kept]:
    """Every image that was built here, by name: of nodes, below them, and on images of the user's own.

    Those of the user's that have only a name (``Software(image=...)``) are theirs, and not among them.
    """
    rows = _listed()
    if not rows:
        return []
    shown = layer.command(
        ["docker", "image", "inspect", *(row["ID"] for row in rows), "--format={{json .Config.Labels}}"]
    )
    found, known = [], image_usage.known()
    for row, line in zip(rows, shown.stdout.splitlines(), strict=True):
        labels = json.loads(line)
        dangling = row["Tag"] == "<none>"
        # A label is inherited, by an image of the user's that was built on one of ours, too.
        if not (labels["assay"] in DERIVED if dangling else row["Repository"] in OURS):
            continue
        name = row["ID"].removeprefix("sha256:")[:12] if dangling else f"{row['Repository']}:{row['Tag']}"
        used = not dangling and _used(name, labels)
        purpose = image_usage.said(known.get(row["ID"], {})) or _base(name) or UNKNOWN
        found.append(Kept(name, row["Size"], row["CreatedSince"], _of(labels), used, purpose))
    return sorted(found, key=lambda kept: kept.name)


def _listed() -> list[dict[str, str]]:
    """As the engine has them: those with our label, which images on ours inherit."""
    printed = layer.command(["docker", "image", "ls", "--no-trunc", "--filter=label=assay", "--format={{json .}}"])
    return [json.loads(line) for line in printed.stdout.splitlines()]


def remove(name: str) -> None:
    """Raises ``ImageError``, as for one on which others are built, or containers run."""
    layer.command(["docker", "image", "rm", name])


def prune() -> Iterator[str]:
    """Removes those that no run needs any more; their names. What is built on others goes first.

    Raises ``ImageError`` for one that cannot be removed, as where a container runs.
    """
    while unused := [kept.name for kept in present() if not kept.used]:
        removed = [name for name in unused if _removed(name)]
        if not removed:
            remove(unused[0])  # which says why not
        yield from removed
    image_usage.forget_others({row["ID"] for row in _listed()})


def _removed(name: str) -> bool:
    return layer.command(["docker", "image", "rm", name], check=False).returncode == 0


def _base(name: str) -> str:
    """What it is for, of one that no node runs."""
    if name in (layer.IMPORTED_BASE, layer.REFERENCE):
        return "below all others"
    return "copied from, for images of your own" if name.startswith(f"{user_images.BUNDLE}:") else ""


def _of(labels: dict[str, str]) -> str:
    """Labels are inherited: the Dockerfile's, too."""
    return labels.get(user_images.DOCKERFILE_LABEL) or labels.get(tools.OWN, "")


def _used(name: str, labels: dict[str, str]) -> bool:
    """As far as is known here: which systems a user still tests is not."""
    if name in {layer.IMPORTED_BASE, layer.REFERENCE, image.reference(), user_images.bundle()}:
        return True
    if labels["assay"] == user_images.NAME:
        return Path(labels[user_images.DOCKERFILE_LABEL]).is_file()
    if labels.get(tools.NODE_IMAGE) != image.reference():
        return False
    if tools.OWN not in labels:
        return labels["assay"] == "software"
    if labels.get(tools.RECIPE) != tools.recipe():
        return False
    return layer.exists(labels[tools.OWN]) and layer.image_id(labels[tools.OWN]) == labels[tools.OWN_ID]
