"""Builds images with a role's additional software, on the node image or on a user's own image.

The tag is a hash of the whole content, so an image is built once and needs no network afterwards.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.cluster.containers import (
    Container,
    Job,
    SupportsContainers,
    SupportsJobs,
    parse_health_command,
    parse_stop_signal,
)
from assay.cluster.docker import (
    image,
    image_contents,
    image_usage,
    layer,
    target_container,
    tools,
    user_images,
    wheels,
)
from assay.cluster.docker.image_contents import ImagePython, NoShellError
from assay.cluster.docker.layer import BuildStep, ImageError, Progress
from assay.cluster.naming import PlannedNode
from assay.cluster.sidecars import USER
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_ROLE,
    DeploymentError,
    Software,
    SupportsClientSoftware,
    SupportsSoftware,
    System,
)
from assay.cluster.temporary_folders import temporary_folder

NAME = "assay-software"
PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(=[A-Za-z0-9.+:~-]+)?")
PYTHON_PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,_-]+\])?(==[A-Za-z0-9.+!]+)?")
IMAGE_NAME = re.compile(r"[a-z0-9][A-Za-z0-9._/:-]*(@sha256:[0-9a-f]{64})?")
"""Valid names of Debian packages, Python packages and images in a ``Software``."""

PIP = """\
COPY wheels /tmp/wheels
RUN PYTHONPATH=$(echo /tmp/wheels/pip-*.whl) python3 -m pip install --quiet --no-index --no-cache-dir \\
        --root-user-action=ignore --break-system-packages --find-links /tmp/wheels {packages} && rm -rf /tmp/wheels
"""
# pip needs more of the standard library of Python 3.9 and earlier than Debian's python3 contains.
DISTUTILS = f"""\
RUN python3 -c 'import sys; sys.version_info >= (3, 10) or __import__("distutils.cmd")' 2>/dev/null || {{ \\
    {tools.APT.removeprefix("RUN ").rstrip().format(packages="python3-distutils")}; }}
"""


@dataclass(frozen=True)
class NodeImage:
    """An image that nodes run: its id (digest), and its settings for processes.

    - ``user_image``: the user's image or Dockerfile that it was built on
    - ``below``: ids of the images that it was built on
    - ``target``: id of the user's image if that runs unchanged in a container of its own
      (:mod:`assay.cluster.docker.target_container`). Then ``id`` is the node image
    - ``container``: that container, if the system describes it; ``argv``: the command of its main process
    """

    id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    user: str | None = None
    user_image: str | None = None
    below: tuple[str, ...] = ()
    target: str | None = None
    container: Container | None = None
    argv: tuple[str, ...] = ()


def require_software(system: System, role: str) -> Software:
    """Returns the software of a role's nodes. Raises :class:`DeploymentError` if it is invalid."""
    if role == CLIENT_ROLE:
        software = system.client_software if isinstance(system, SupportsClientSoftware) else Software()
    elif role == ZOOKEEPER_ROLE or not isinstance(system, SupportsSoftware):
        software = Software()
    else:
        software = system.software(role)
    if problem := _find_problem(software):
        raise DeploymentError(f"software of role {role}: {problem}")
    return software


def _find_problem(software: Software) -> str | None:
    for kind, names, pattern in (
        ("packages", software.packages, PACKAGE_NAME),
        ("python", software.python, PYTHON_PACKAGE_NAME),
    ):
        for name in names:
            if isinstance(names, str) or not pattern.fullmatch(name):
                return f"{kind} takes names, such as ('redis',), not {names if isinstance(names, str) else name!r}"
    if software.image is not None and software.dockerfile is not None:
        return "it has an image and a dockerfile: take one"
    if software.image is not None and not IMAGE_NAME.fullmatch(software.image):
        return f"image takes a name such as 'redis:7', not {software.image!r}"
    if software.dockerfile is not None and not Path(software.dockerfile).is_file():
        return (
            f"dockerfile {Path(software.dockerfile).absolute()} is not a file; "
            "next to your module it is Path(__file__).parent / 'Dockerfile'"
        )
    if software.user is not None and not USER.fullmatch(software.user):
        return f"user takes a name, or name:group, not {software.user!r}"
    return None


def ensure_images(system: System, roles: Collection[str], progress: Progress) -> dict[str, NodeImage]:
    """Returns the image of each role. Raises :class:`DeploymentError`, and ``ImageError`` that names the role."""
    wanted = {role: require_software(system, role) for role in roles}
    base = image.ensure_node_image(progress)
    found, built = {}, {}
    for role, software in wanted.items():
        # Roles share an image unless their software differs in more than the settings of processes.
        content = role == CLIENT_ROLE, str(replace(software, environment={}, user=None))
        try:
            if content not in built:
                built[content] = _ensure_image(base, software, progress, may_lack_shell=role != CLIENT_ROLE)
            found[role] = replace(built[content], user=software.user or built[content].user)
        except ImageError as error:
            raise ImageError(f"no image for the nodes of role {role}: {error}") from error
    if problem := image_usage.note_usage(
        system.name, {role: (node_image.id, *node_image.below) for role, node_image in found.items()}
    ):
        progress(problem)
    return found


def name_job(job: Job) -> str:
    """Returns the name of a job among those of nodes."""
    return f"the job {job.name}"


def list_containers(system: SupportsContainers, nodes: Iterable[PlannedNode]) -> dict[PlannedNode, Container]:
    """Returns the containers of nodes, and those of the system's jobs, for :func:`ensure_containers`."""
    found = {node: system.container(node.role, node.index) for node in nodes}
    jobs = system.jobs if isinstance(system, SupportsJobs) else ()
    return found | {PlannedNode(name_job(job), job.name, 1, 0): job.container for job in jobs}


def ensure_containers(
    system: str, containers: Mapping[PlannedNode, Container], progress: Progress
) -> dict[str, NodeImage]:
    """Returns the image of each container, by the name of its node. Raises ``ImageError`` that names the node.

    ``system``: name of the system, for the notes on used images
    """
    if not containers:
        return {}
    base = image.ensure_node_image(progress)
    owns: dict[str, user_images.UserImage] = {}
    found, used = {}, dict[str, set[str]]()
    for node, container in containers.items():
        try:
            wanted = str(container.build or container.image)
            if wanted not in owns:
                with image.hold_build_lock():
                    if container.build is not None:
                        owns[wanted] = user_images.build(container.build, progress)
                    else:
                        owns[wanted] = user_images.find_or_pull(container.image or "", progress)
                target_container.compile_hold(owns[wanted].id, progress)  # later runs need no network
            found[node.name] = _describe_container(base, owns[wanted], container)
            used.setdefault(node.role, {base}).add(owns[wanted].id)
        except ImageError as error:
            raise ImageError(f"no image for {node.name}: {error}") from error
    if problem := image_usage.note_usage(system, used):
        progress(problem)
    return found


def _describe_container(base: str, own: user_images.UserImage, container: Container) -> NodeImage:
    """Returns the node image, beside which the user's image runs as its container says.

    The container gets the health check and the stop signal of the image if it has none. Raises ``ImageError``.
    """
    settings = image_contents.read_settings(own.id)
    entrypoint = settings.entrypoint if container.entrypoint is None else container.entrypoint
    command = container.command
    if command is None:
        command = settings.command if container.entrypoint is None else ()
    if not (argv := (*entrypoint, *command)):
        raise ImageError(f"{own.display_name} has no command, and its container names none")
    health = container.health_command
    try:
        health = parse_health_command(settings.health_check) if health is None else health
        stop_signal = parse_stop_signal(container.stop_signal or settings.stop_signal or "SIGTERM")
    except ValueError as error:
        raise ImageError(f"{own.display_name}: {error}") from error
    container = replace(container, health_command=health or (), stop_signal=stop_signal.name, exposed=settings.exposed)
    return NodeImage(
        base,
        settings.environment,
        user=container.user or settings.user,
        user_image=own.display_name,
        below=(own.id,),
        target=own.id,
        container=container,
        argv=argv,
    )


def ensure_software_image(software: Software, progress: Progress) -> NodeImage:
    """Returns an image with this software. Raises ``ImageError``."""
    return _ensure_image(image.ensure_node_image(progress), software, progress)


def _ensure_image(base: str, software: Software, progress: Progress, may_lack_shell: bool = False) -> NodeImage:
    if software.image is None and software.dockerfile is None:
        return NodeImage(_ensure_with_packages(base, software, progress), below=(base,))
    with image.hold_build_lock():
        if software.image is not None:
            own = user_images.find_or_pull(software.image, progress)
        else:
            own = user_images.build_dockerfile(Path(software.dockerfile or "").resolve(), progress)
        try:
            tag = user_images.ensure_extended(own, NAME, software.packages, BuildStep(progress))
        except NoShellError as error:
            if not may_lack_shell:
                raise
            return _take_unchanged(base, own, software, progress, error)
        lower = layer.image_id(tag)
        image_id = _ensure_with_wheels(tag, own, software, progress) if software.python else lower
    settings = image_contents.read_settings(own.id)
    return NodeImage(image_id, settings.environment, settings.folder, settings.user, own.display_name, (own.id, lower))


def _take_unchanged(
    base: str, own: user_images.UserImage, software: Software, progress: Progress, error: NoShellError
) -> NodeImage:
    """Returns the node image, beside which the user's image runs as it is. Raises ``ImageError``."""
    if added := [*software.packages, *software.python]:
        raise ImageError(f"{', '.join(added)} cannot be installed: {error}") from error
    target_container.compile_hold(own.id, progress)  # later runs need no network
    settings = image_contents.read_settings(own.id)
    return NodeImage(
        base, settings.environment, user=settings.user, user_image=own.display_name, below=(own.id,), target=own.id
    )


def _ensure_with_packages(base: str, software: Software, progress: Progress) -> str:
    """Returns the id of the node image, extended by these packages if there are any."""
    if not software.packages and not software.python:
        return base
    apt = tools.APT.format(packages=" ".join(software.packages)) if software.packages else ""
    recipe = _dockerfile(f"assay=software {tools.NODE_IMAGE_LABEL}={image.image_reference()}", apt, software)
    tag = f"{NAME}:{hashlib.sha256(f'{base} {recipe}'.encode()).hexdigest()[:12]}"
    if not layer.exists(tag):
        with image.hold_build_lock():
            if not layer.exists(tag):
                interpreter = image.find_interpreter(image.image_reference())
                _build(tag, recipe, image.image_reference(), software, interpreter, BuildStep(progress))
    return layer.image_id(tag)


def _ensure_with_wheels(lower: str, own: user_images.UserImage, software: Software, progress: Progress) -> str:
    """Adds wheels to a user's image that already has the tools (``lower``). Returns the id of the new image."""
    python_only = Software(python=software.python)
    recipe = _dockerfile(own.labels(), DISTUTILS, python_only)
    tag = f"{NAME}:{hashlib.sha256(f'{layer.image_id(lower)} {recipe}'.encode()).hexdigest()[:12]}"
    if not layer.exists(tag):
        _build(
            tag,
            recipe,
            lower,
            python_only,
            image_contents.read_interpreter(lower, own.display_name),
            BuildStep(progress),
        )
    return layer.image_id(tag)


def _build(tag: str, recipe: str, lower: str, software: Software, interpreter: ImagePython, step: BuildStep) -> None:
    with temporary_folder("software") as context:
        if software.python:
            (context / "wheels").mkdir()
            what = f"wheels of {', '.join(software.python)} for Python {interpreter.version}"
            step(what, lambda: wheels.download(software.python, interpreter, context / "wheels", step.progress))
        names = ", ".join((*software.packages, *software.python))
        step(f"image with {names}", lambda: layer.build(recipe, tag, {"NODE": lower}, network="host", context=context))


def _dockerfile(labels: str, first_steps: str, software: Software) -> str:
    """Returns the Dockerfile: ``first_steps``, then the installation of the Python packages, if there are any."""
    lines = ["ARG NODE", "FROM $NODE", f"LABEL {labels}", ""]
    pip = PIP.format(packages=" ".join(f"'{name}'" for name in software.python)) if software.python else ""
    return "\n".join(lines) + first_steps + pip
