"""The node image: the lower layer (``layer``), the broker's dependencies, and sshd's settings.

The tag is a hash of the recipe. This machine's pip downloads the broker's few dependencies as wheels, in the versions
installed here. The image's own Python installs them without a network. The system's code is not in the image: it is
copied when a cluster starts, so an edit needs no rebuild. ``user_images`` extends a user's own images.
"""

import contextlib
import hashlib
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

from assay.cluster.docker import layer
from assay.cluster.docker.image_contents import ImagePython, parse_interpreter
from assay.cluster.docker.layer import BuildStep, ImageError, Progress
from assay.cluster.docker.wheels import PIP
from assay.cluster.file_lock import BUILD_LOCK_SECONDS, LockHeldError, hold_lock
from assay.cluster.journal import state_folder
from assay.cluster.temporary_folders import temporary_folder

__all__ = ["ImageError", "ensure_node_image", "exists", "hold_build_lock", "image_reference"]

NAME = "assay-node"
REQUIREMENTS = ("cramjam", "kazoo", "lz4", "msgspec", "xxhash")
"""Distributions that the broker imports on its node."""
PYTHON = "3.11"
"""Python of Debian bookworm."""
GLIBC = "2.36"
"""C library of Debian bookworm."""

SSHD_CONFIG = """\
Port 22
HostKey /etc/ssh/assay_host_key
AuthorizedKeysFile /etc/ssh/assay_authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
StrictModes no
MaxSessions 200
MaxStartups 100
ClientAliveInterval 15
Subsystem sftp internal-sftp
"""

DOCKERFILE = """\
ARG LAYER
FROM $LAYER
LABEL assay=node-image
COPY wheels /tmp/wheels
COPY sshd_config /etc/ssh/assay_sshd_config
RUN PYTHONPATH=$(echo /tmp/wheels/pip-*.whl) python3 -m pip install --quiet --no-index --no-cache-dir \\
        --root-user-action=ignore --break-system-packages --find-links /tmp/wheels {requirements} \\
 && python3 -c 'import {modules}' && rm -rf /tmp/wheels
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/assay_sshd_config"]
"""


def image_reference() -> str:
    """Returns the tag of this checkout's recipe."""
    recipe = "\n".join([layer.LAYER_IMAGE, _dockerfile(), SSHD_CONFIG])
    return f"{NAME}:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def exists() -> bool:
    """Returns whether the image exists. Raises :class:`ImageError` if there is no docker command."""
    return layer.exists(image_reference())


def can_build() -> bool:
    """Returns whether a build would probably succeed. Takes at most some seconds."""
    return exists() or layer.can_build()


def ensure_node_image(progress: Progress) -> str:
    """Returns the image's id (digest). Builds a missing image; concurrent sessions build it only once."""
    if not exists():
        with hold_build_lock():
            if not exists():
                _build(BuildStep(progress))
    return layer.image_id(image_reference())


@contextlib.contextmanager
def hold_build_lock() -> Iterator[None]:
    """Lets one process at a time build images. Raises :class:`ImageError` if another process builds for too long."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(state_folder() / "image.lock", BUILD_LOCK_SECONDS))
        except LockHeldError as error:
            raise ImageError(str(error)) from error
        yield


def _build(step: BuildStep) -> None:
    lower = layer.ensure_layer(step.progress)
    with temporary_folder("image") as context:
        (context / "wheels").mkdir()
        (context / "sshd_config").write_text(SSHD_CONFIG)
        interpreter = find_interpreter(lower)
        step("broker's dependencies (pip download)", lambda: _download(interpreter, context / "wheels"))
        step(
            f"node image {image_reference()}",
            lambda: layer.build(_dockerfile(), image_reference(), {"LAYER": lower}, network="none", context=context),
        )


def find_interpreter(reference: str) -> ImagePython:
    """Returns the Python of the node image, or of its lower layer. The image's processors decide about wheels."""
    major, minor = PYTHON.split(".")
    return parse_interpreter(f"{major} {minor} glibc {GLIBC}", layer.image_architecture(reference))


def _download(interpreter: ImagePython, folder: Path) -> str:
    argv = [*PIP, "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    layer.run_command([*argv, *interpreter.wheel_options(folder), "pip", *_pin_requirements()], timeout=300)
    return " ".join(_pin_requirements())


def _pin_requirements() -> list[str]:
    return [f"{name}=={importlib.metadata.version(name)}" for name in REQUIREMENTS]


def _dockerfile() -> str:
    return DOCKERFILE.format(requirements=" ".join(_pin_requirements()), modules=", ".join(REQUIREMENTS))
