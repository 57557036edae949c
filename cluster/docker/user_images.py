"""A user's own images, given by name or by Dockerfile, and the images built on them for nodes.

The engine builds a Dockerfile each time a cluster starts, with its folder as the context. The engine's cache detects
changes, and unchanged steps need no network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.cluster.containers import ImageBuild
from assay.cluster.docker import image, image_contents, layer, tools
from assay.cluster.docker.layer import BuildStep, ImageError, Progress
from assay.cluster.journal import state_folder
from assay.cluster.owner import find_machine_label
from assay.cluster.temporary_folders import temporary_folder

NAME = "assay-own"
"""Name of images built from a user's Dockerfile. The tag is a hash of the machine's label and the path there."""
REPLACED = "-replaced-"
"""Part of the tag of an image whose Dockerfile was built again. The old image keeps a name, because its labels do not
tell it apart from an image without a name that a user has built on it."""
TOOLS_IMAGE = "assay-tools"
"""Name of the image with copies of the node image's programs (``tools.BUNDLE_DOCKERFILE``)."""
DOCKERFILE_LABEL = "assay.dockerfile"
"""Label with the path of the user's Dockerfile."""


@dataclass(frozen=True)
class UserImage:
    """An existing image of the user: its name in the engine, its id, and the name that the user knows."""

    name: str
    id: str
    display_name: str

    def labels(self) -> str:
        """Returns the labels of images built on it."""
        recipe = f"{tools.NODE_IMAGE_LABEL}={image.image_reference()} {tools.RECIPE_LABEL}={tools.recipe_hash()}"
        return f'assay=software {recipe} {tools.USER_IMAGE_LABEL}="{self.name}" {tools.USER_IMAGE_ID_LABEL}={self.id}'


def build_dockerfile(path: Path, progress: Progress) -> UserImage:
    """Builds the image of a Dockerfile, with its folder as the context. Raises :class:`ImageError`."""
    return build(ImageBuild(path.parent, path.name), progress)


def build(wanted: ImageBuild, progress: Progress) -> UserImage:
    """Builds an image with the engine's cache. Raises :class:`ImageError`."""
    path, choices = (
        wanted.context / wanted.dockerfile,
        [f"--build-arg={key}={value}" for key, value in wanted.arguments],
    )
    if wanted.target is not None:
        choices.append(f"--target={wanted.target}")
    machine = find_machine_label(state_folder())
    identity = " ".join([machine, str(path), *choices])
    name = f"{NAME}:{hashlib.sha256(identity.encode()).hexdigest()[:12]}"

    def report_step(step: str) -> None:
        if " LABEL assay" not in step:  # that step was added by this project
            progress(f"{path}: {step}")

    options = [f"--label=assay={NAME}", f"--label={DOCKERFILE_LABEL}={path}", "--network=host"]
    options.append(f"--label={tools.MACHINE_LABEL}={machine}")
    before = layer.image_id(name) if layer.exists(name) else None
    try:
        layer.docker_build([*options, *choices, "-f", str(path), "-t", name, str(wanted.context)], report_step)
    except ImageError as error:
        raise ImageError(f"{path}: {error}") from error
    built = layer.image_id(name)
    if before is not None and before != built:
        replaced = f"{name}{REPLACED}{before.removeprefix('sha256:')[:12]}"
        layer.run_command(["docker", "image", "tag", before, replaced], check=False)  # the engine may have removed it
    return UserImage(name, built, str(path))


def find_or_pull(name: str, progress: Progress) -> UserImage:
    """Returns the image of this name. Pulls a missing image. Raises :class:`ImageError`."""
    if not layer.exists(name):
        try:
            BuildStep(progress)(f"image {name}: docker pull", lambda: _pull(name))
        except ImageError as error:
            raise ImageError(
                f"{error}\n{name} is not on this engine either: build it (`docker build -t {name}`), load it "
                f"(`docker load`), or give the system its Dockerfile (`Software(dockerfile=...)`)"
            ) from error
    return UserImage(name, layer.image_id(name), name)


def _pull(name: str) -> str:
    layer.run_command(["docker", "pull", "-q", name], timeout=layer.LONG_SECONDS)
    return "pulled"


def ensure_extended(own: UserImage, prefix: str, packages: Sequence[str], step: BuildStep) -> str:
    """Returns the name of the user's image with the programs of a node and these packages. Builds it if it is missing.

    Raises :class:`ImageError`.
    """
    parts = "\n".join((own.id, image.image_reference(), tools.recipe_hash(), *packages))
    tag = f"{prefix}:{hashlib.sha256(parts.encode()).hexdigest()[:12]}"
    if not layer.exists(tag):
        _build(own, tag, packages, step)
    return tag


def _build(own: UserImage, tag: str, packages: Sequence[str], step: BuildStep) -> None:
    found = image_contents.examine_image(own.id, own.display_name)
    copied = found.manager is None and bool(found.missing)
    try:
        text = tools.render_dockerfile(
            own.labels(), own.display_name, found, packages, bundle_reference() if copied else None
        )
    except ValueError as error:
        raise ImageError(str(error)) from error
    if copied:
        _ensure_bundle(step)
    with temporary_folder("own") as folder:
        for file, data in (
            ("sshd_config", image.SSHD_CONFIG),
            ("settle", tools.SETTLE_SCRIPT),
            ("node", tools.NODE_SCRIPT),
        ):
            (folder / file).write_text(data)
        arguments = {"NODE": image.image_reference(), "OWN": own.id}
        added = ", ".join((*found.missing, *packages))
        additions = f"{added} ({found.manager or 'copied from the node image'})" if added else "an init"
        try:
            step(
                f"{own.display_name} ({found.system}) with {additions}",
                lambda: layer.build(text, tag, arguments, network="host", context=folder),
            )
        except ImageError as error:
            if found.manager is None:
                raise
            raise ImageError(f"{error}\n{_remedy(own.display_name, found.manager, found.missing)}") from error


def _remedy(name: str, manager: str, missing: Sequence[str]) -> str:
    packages = [tools.PACKAGES[manager][tool] for tool in missing]
    return (
        f"{name} lacks {', '.join(missing) or 'nothing that a node needs'}, and {manager} needs a network to "
        "install it: build the image where there is one (`assay image build --system=...`), after which none is "
        f"needed, or install {', '.join(dict.fromkeys(packages)) or 'the packages'} in its own Dockerfile"
    )


def bundle_reference() -> str:
    text = tools.BUNDLE_DOCKERFILE.replace("@REFERENCE@", image.image_reference())
    return f"{TOOLS_IMAGE}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _ensure_bundle(step: BuildStep) -> None:
    if layer.exists(bundle_reference()):
        return
    text = tools.BUNDLE_DOCKERFILE.replace("@REFERENCE@", image.image_reference())
    step(
        "copies of the node image's programs",
        lambda: layer.build(text, bundle_reference(), {"NODE": image.image_reference()}, network="none"),
    )
