"""Lists the images that were built here, and removes those that no run needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.cluster.docker import image, image_usage, layer, preload, software, tools, user_images
from assay.cluster.journal import state_folder
from assay.cluster.owner import find_machine_label

BUILT_NAMES = (
    *(name.partition(":")[0] for name in (layer.IMPORTED_BASE, layer.LAYER_IMAGE)),
    *(image.NAME, software.NAME, user_images.NAME, user_images.TOOLS_IMAGE, preload.IMAGE),
)
"""Names, without tags, of all images that are built here."""
UNKNOWN = "no run of it is known here"


@dataclass(frozen=True)
class BuiltImage:
    """A node image, or a layer of a node image.

    - ``name``: its name
    - ``source``: the user's image or Dockerfile that it was built from
    - ``used``: whether a run may need it
    - ``purpose``: the systems and roles that run it, as far as this machine has notes
    """

    name: str
    size: str
    age: str
    source: str
    used: bool
    purpose: str


def list_images() -> list[BuiltImage]:
    """Returns every image that was built here, by name: node images, their layers, and extended user images.

    A user's images that are only referenced by name (``Software(image=...)``) are not included. Nor are images without
    a name: a user may have built them on an image of this project, whose labels they inherit.
    """
    rows = _list_labelled()
    if not rows:
        return []
    shown = layer.run_command(
        ["docker", "image", "inspect", *(row["ID"] for row in rows), "--format={{json .Config.Labels}}"]
    )
    found, known = [], image_usage.read_usage()
    for row, line in zip(rows, shown.stdout.splitlines(), strict=True):
        labels = json.loads(line)
        if row["Repository"] not in BUILT_NAMES or row["Tag"] == "<none>":
            continue
        name = f"{row['Repository']}:{row['Tag']}"
        used = user_images.REPLACED not in name and _is_used(name, labels)
        purpose = image_usage.describe_usage(known.get(row["ID"], {})) or _base_purpose(name) or UNKNOWN
        found.append(BuiltImage(name, row["Size"], row["CreatedSince"], _source_of(labels), used, purpose))
    return sorted(found, key=lambda image: image.name)


def _list_labelled() -> list[dict[str, str]]:
    """Returns the engine's images with the project's label, which derived images inherit."""
    printed = layer.run_command(["docker", "image", "ls", "--no-trunc", "--filter=label=assay", "--format={{json .}}"])
    return [json.loads(line) for line in printed.stdout.splitlines()]


def remove(name: str) -> None:
    """Removes an image. Raises ``ImageError``, for example if other images or containers use it."""
    layer.run_command(["docker", "image", "rm", name], timeout=layer.LONG_SECONDS)


def prune() -> Iterator[str]:
    """Removes images that no run needs, and yields their names. Derived images are removed first.

    Raises ``ImageError`` if an image cannot be removed, for example because a container runs it.
    """
    while unused := [image.name for image in list_images() if not image.used]:
        removed = [name for name in unused if _try_remove(name)]
        if not removed:
            remove(unused[0])  # raises the reason
        yield from removed
    image_usage.forget_others({row["ID"] for row in _list_labelled()})


def _try_remove(name: str) -> bool:
    return layer.run_command(["docker", "image", "rm", name], check=False, timeout=layer.LONG_SECONDS).returncode == 0


def _base_purpose(name: str) -> str:
    """Returns the purpose of an image that no node runs."""
    if name in (layer.IMPORTED_BASE, layer.LAYER_IMAGE):
        return "base of all other images"
    if name.startswith(f"{preload.IMAGE}:"):
        return "compiler for wrong clocks, slow disks and images without a shell"
    return "source of the programs in images of your own" if name.startswith(f"{user_images.TOOLS_IMAGE}:") else ""


def _source_of(labels: dict[str, str]) -> str:
    """Returns the user's Dockerfile or image that an image was built from; empty if there is none."""
    return labels.get(user_images.DOCKERFILE_LABEL) or labels.get(tools.USER_IMAGE_LABEL, "")


def _is_used(name: str, labels: dict[str, str]) -> bool:
    """Returns whether a run may need the image. The user's systems are not known here, so the answer may be wrong."""
    derived = {image.image_reference(), user_images.bundle_reference(), preload.compiler_reference()}
    if name in {layer.IMPORTED_BASE, layer.LAYER_IMAGE, *derived}:
        return True
    if labels["assay"] == user_images.NAME:  # built from a user's Dockerfile
        if labels.get(tools.MACHINE_LABEL, here := find_machine_label(state_folder())) != here:
            return True  # the Dockerfile is on another machine that uses this engine
        return Path(labels[user_images.DOCKERFILE_LABEL]).is_file()
    if labels.get(tools.NODE_IMAGE_LABEL) != image.image_reference():  # made for the node image of another version
        return False
    if tools.USER_IMAGE_LABEL not in labels:
        return labels["assay"] == "software"
    if labels.get(tools.RECIPE_LABEL) != tools.recipe_hash():
        return False
    return (
        layer.exists(labels[tools.USER_IMAGE_LABEL])
        and layer.image_id(labels[tools.USER_IMAGE_LABEL]) == labels[tools.USER_IMAGE_ID_LABEL]
    )
