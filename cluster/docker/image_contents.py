"""Examines an image in a short-lived container: its settings, its Python, and which of a node's programs it has."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.cluster.docker import layer
from assay.cluster.docker.layer import ImageError

TOOLS = (
    *("sshd", "iptables", "iptables-restore", "ip", "python3"),
    *("pkill", "setsid", "setpriv", "fallocate"),
    *("cat", "cksum", "cp", "cut", "dd", "env", "id", "od", "rm", "stat", "sync", "tail"),
    *("find", "grep", "sed"),
)
"""Programs that the harness runs on a node (``cluster/ssh``). The init is not among them: every image gets a copy."""
MANAGERS = ("apt-get", "dnf", "microdnf", "yum", "apk")
"""Package managers. An image with several uses the first."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of a shell that sshd starts."""

# An applet of busybox may have a program's name but lack features. For setpriv this is tested.
EXAMINE_SCRIPT = f"""PATH={PATH}
for tool in {" ".join(TOOLS)}; do command -v $tool >/dev/null 2>&1 || echo "missing $tool"; done
setpriv --reuid 0 --regid 0 --clear-groups cat /dev/null >/dev/null 2>&1 || echo "missing setpriv"
for manager in {" ".join(MANAGERS)}; do command -v $manager >/dev/null 2>&1 && echo "manager $manager"; done
[ -r /etc/os-release ] && . /etc/os-release && echo "system $PRETTY_NAME"
exit 0
"""
MACHINES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}
"""Maps Docker's names of processors to those of Linux and pip. All others are equal."""
PYTHON_SCRIPT = "import platform, sys; print(*sys.version_info[:2], *platform.libc_ver())"


@dataclass(frozen=True)
class ImageContents:
    """Programs of an image.

    - ``missing``: tools of :data:`TOOLS` that the image lacks, in that order
    - ``manager``: one of :data:`MANAGERS`, or None
    - ``system``: the distribution's name, from ``/etc/os-release``
    """

    missing: tuple[str, ...]
    manager: str | None
    system: str


@dataclass(frozen=True)
class Settings:
    """How an image runs its processes: ENV, WORKDIR, USER, ENTRYPOINT, CMD, HEALTHCHECK, STOPSIGNAL and EXPOSE."""

    environment: dict[str, str]
    folder: str | None
    user: str | None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health_check: tuple[str, ...] = ()
    stop_signal: str | None = None
    exposed: tuple[int, ...] = ()


@dataclass(frozen=True)
class ImagePython:
    """An image's Python: its version, such as ``3.11``, and the platforms of its wheels, as pip names them."""

    version: str
    platforms: tuple[str, ...]

    def wheel_options(self, folder: Path) -> list[str]:
        """Returns options of ``pip download`` for wheels of this Python."""
        platforms = [f"--platform={platform}" for platform in self.platforms]
        python = [f"--python-version={self.version}", "--implementation=cp", *platforms]
        return ["--only-binary=:all:", *python, "-d", str(folder)]


class NoShellError(ImageError):
    """The image has no shell, so nothing can be run or installed in it."""


def examine_image(image: str, display_name: str) -> ImageContents:
    """Examines an image. Raises :class:`NoShellError` if it has no shell; ``display_name`` is the user's name of it."""
    lines = [line.partition(" ")[::2] for line in _run(image, display_name, EXAMINE_SCRIPT).splitlines()]
    missing = {value for kind, value in lines if kind == "missing"}
    return ImageContents(
        tuple(tool for tool in TOOLS if tool in missing),
        next((value for kind, value in lines if kind == "manager"), None),
        next((value for kind, value in lines if kind == "system"), "a system without /etc/os-release"),
    )


def read_settings(image: str) -> Settings:
    config = json.loads(layer.run_command(["docker", "image", "inspect", "--format", "{{json .Config}}", image]).stdout)
    pairs = (entry.partition("=") for entry in config.get("Env") or [])
    folder = config.get("WorkingDir") or "/"
    return Settings(
        {key: value for key, _, value in pairs},
        None if folder == "/" else folder,
        config.get("User") or None,
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
        tuple((config.get("Healthcheck") or {}).get("Test") or ()),
        config.get("StopSignal") or None,
        tuple(sorted(int(port[:-4]) for port in config.get("ExposedPorts") or () if port.endswith("/tcp"))),
    )


def read_interpreter(image: str, display_name: str) -> ImagePython:
    """Returns the ``python3`` that the image's processes find. Raises :class:`ImageError`."""
    printed = _run(image, display_name, f"PATH=$PATH:{PATH}; python3 -c {shlex.quote(PYTHON_SCRIPT)}")
    return parse_interpreter(printed, layer.image_architecture(image))


def parse_interpreter(output: str, architecture: str) -> ImagePython:
    """Parses the output of :data:`PYTHON_SCRIPT`. Any C library other than glibc is considered musl.

    ``architecture``: the image's processors as Docker names them. They may differ from this machine's.
    """
    machine = MACHINES.get(architecture, architecture)
    major, minor, *libc = output.split()
    version = f"{major}.{minor}"
    if libc[:1] != ["glibc"]:
        return ImagePython(version, (f"musllinux_1_1_{machine}", f"musllinux_1_2_{machine}"))
    glibc = tuple(map(int, re.findall(r"\d+", libc[1])[:2]))
    newer = [f"manylinux_2_{minor}_{machine}" for minor in (28, 34) if glibc >= (2, minor)]
    return ImagePython(version, (f"manylinux2014_{machine}", *newer))


def _run(image: str, display_name: str, script: str) -> str:
    argv = ["docker", "run", "--rm", "--network=none", "--user=0", "--entrypoint=/bin/sh", image, "-c", script]
    done = layer.run_command(argv, check=False, timeout=120)
    if done.returncode == 127 and '"/bin/sh"' in done.stderr:  # the engine's words
        raise NoShellError(
            f"{display_name} has no shell (/bin/sh), which is needed here: build it FROM an image that has one, such "
            "as debian:bookworm-slim or busybox, and copy your program into that"
        )
    if layer.FOREIGN in done.stderr:
        raise ImageError(layer.describe_foreign(display_name))
    if done.returncode != 0:
        raise ImageError(f"{display_name} could not be looked into: {layer.last_lines(done.stdout + done.stderr)}")
    return done.stdout
