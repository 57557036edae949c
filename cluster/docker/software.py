"""What the nodes of a role need beyond the node image: packages of Debian and of Python, in an image of their own.

Built on the node image and tagged by a hash of the recipe, so it is built once, and without a network from then on.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from assay.cluster.docker import image, layer
from assay.cluster.docker.layer import BuildStep, Progress
from assay.cluster.docker.network import locked
from assay.cluster.journal import state_folder
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, DeploymentError, Provisioned, Software, System

NAME = "assay-software"
BASE = "assay.node-image"
"""The label that says on which node image it was built."""
DEBIAN = re.compile(r"[a-z0-9][a-z0-9.+-]*(=[A-Za-z0-9.+:~-]+)?")
PYTHON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,_-]+\])?(==[A-Za-z0-9.+!]+)?")

# No service is to start while it is installed: a node's process is the system's to start.
APT = """\
RUN printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d \\
 && apt-get -q update \\
 && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends {packages} \\
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt
"""
PIP = """\
COPY wheels /tmp/wheels
RUN PYTHONPATH=$(echo /tmp/wheels/pip-*.whl) python3 -m pip install --quiet --no-index --no-cache-dir \\
        --root-user-action=ignore --break-system-packages --find-links /tmp/wheels {packages} && rm -rf /tmp/wheels
"""


def needed(system: System, role: str) -> Software:
    """By the nodes of a role. Raises :class:`DeploymentError` for a name that is none."""
    if role in (ZOOKEEPER_ROLE, CLIENT_ROLE) or not isinstance(system, Provisioned):
        return Software()
    software = system.software(role)
    for kind, names, pattern in (("packages", software.packages, DEBIAN), ("python", software.python, PYTHON)):
        for name in names:
            if isinstance(names, str) or not pattern.fullmatch(name):
                what = names if isinstance(names, str) else name
                raise DeploymentError(f"software of role {role}: {kind} takes names, such as ('redis',), not {what!r}")
    return software


def ensure(system: System, roles: Collection[str], progress: Progress) -> dict[str, str]:
    """The image's id (digest) for each role. Raises :class:`DeploymentError`, ``ImageError``."""
    wanted = {role: needed(system, role) for role in roles}
    base = image.ensure(progress)
    return {role: _ensure(base, software, progress) for role, software in wanted.items()}


def present() -> list[tuple[str, str, str, bool]]:
    """Every image that was built here, of nodes and below them: name, size, age, and whether it is still of use."""
    form = "{{.Repository}}:{{.Tag}}\t{{.Size}}\t{{.CreatedSince}}"
    printed = layer.command(["docker", "image", "ls", "--filter=label=assay", f"--format={form}"]).stdout
    current = layer.command(
        ["docker", "image", "ls", f"--filter=label={BASE}={image.reference()}", "--format={{.Repository}}:{{.Tag}}"]
    ).stdout.split()
    used = {layer.IMPORTED_BASE, layer.REFERENCE, image.reference(), *current}
    rows = (line.split("\t") for line in printed.splitlines())
    return sorted((name, size, age, name in used) for name, size, age in rows)


def remove(name: str) -> None:
    """Raises ``ImageError``, as for one on which others are built, or containers run."""
    layer.command(["docker", "image", "rm", name])


def _ensure(base: str, software: Software, progress: Progress) -> str:
    if not software.packages and not software.python:
        return base
    recipe = _dockerfile(software)
    tag = f"{NAME}:{hashlib.sha256(f'{base} {recipe}'.encode()).hexdigest()[:12]}"
    if not layer.exists(tag):
        with locked(state_folder() / "image.lock"):
            if not layer.exists(tag):
                _build(tag, recipe, software, BuildStep(progress))
    return layer.image_id(tag)


def _build(tag: str, recipe: str, software: Software, step: BuildStep) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-software-") as folder:
        context = Path(folder)
        if software.python:
            (context / "wheels").mkdir()
            step(f"wheels of {', '.join(software.python)}", lambda: _download(software, context / "wheels"))
        named = ", ".join((*software.packages, *software.python))
        step(
            f"image with {named}",
            lambda: layer.build(recipe, tag, {"NODE": image.reference()}, network="host", context=context),
        )


def _download(software: Software, folder: Path) -> str:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    argv += ["--only-binary=:all:", f"--python-version={image.PYTHON}", "--implementation=cp"]
    argv += ["--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64", "-d", str(folder)]
    layer.command([*argv, "pip", *software.python], timeout=300)
    return "downloaded"


def _dockerfile(software: Software) -> str:
    lines = ["ARG NODE", "FROM $NODE", f"LABEL assay=software {BASE}={image.reference()}", ""]
    apt = APT.format(packages=" ".join(software.packages)) if software.packages else ""
    pip = PIP.format(packages=" ".join(f"'{name}'" for name in software.python)) if software.python else ""
    return "\n".join(lines) + apt + pip
