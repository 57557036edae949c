"""The node image's lower layer: Debian bookworm with the packages of a node, and nothing of this project.

Debian comes from a registry if one answers (``docker pull``), else from Debian's mirror (``debootstrap`` and ``docker
import``, which needs root). This module only uses the standard library and the docker command. So ``make`` can build
the layer with the system's Python while the virtual environment is still being installed::

    python3 cluster/docker/layer.py
"""

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Progress = Callable[[str], None]

SUITE = "bookworm"
REGISTRY_BASE = f"debian:{SUITE}-slim"
IMPORTED_BASE = f"assay-base:{SUITE}"
SYSTEM_SOCKET = "unix:///var/run/docker.sock"
"""Address of an engine that runs as root. Other engines get their base image from it."""
PULL_ERROR_LENGTH = 160
LOOKUP_SECONDS = 30.0
"""Maximum seconds of a command that only asks the engine."""
LONG_SECONDS = 900.0
"""Maximum seconds of a command that fetches, builds or deletes."""
PULL_TIMEOUT = 60.0
"""Maximum seconds of the pull (30 MB). Without internet access the engine fails at once, or hangs until this limit."""

NO_PROGRAM = (FileNotFoundError, PermissionError)
"""Errors if no folder of PATH has a program. PermissionError is raised if one of these folders cannot be read."""

PACKAGES = (
    "iproute2",
    "iptables",
    "libslf4j-java",
    "libzookeeper-java",  # the server's jar; the package `zookeeper` adds a desktop program and half a gigabyte
    "openjdk-17-jre-headless",
    "openssh-server",
    "procps",
    "python3",
    "tini",
)

DOCKERFILE = f"""\
ARG BASE
FROM $BASE
LABEL assay=layer
RUN printf '%s\\n' 'path-exclude=/usr/share/doc/*' 'path-exclude=/usr/share/man/*' \\
        'path-exclude=/usr/share/locale/*' force-unsafe-io > /etc/dpkg/dpkg.cfg.d/assay \\
 && apt-get -q update \\
 && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends {" ".join(PACKAGES)} \\
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /etc/ssh/ssh_host_* \\
 && mkdir -p /run/sshd /var/log/assay
"""
# force-unsafe-io: an aborted build is discarded as a whole, so dpkg need not fsync each file.

LAYER_IMAGE = "assay-layer:" + hashlib.sha256(DOCKERFILE.encode()).hexdigest()[:12]


INSTALL_DOCKER = "`apt install docker.io`, from Debian 13 on `apt install docker.io docker-cli`"
TAIL = 12
"""Number of last lines of a failed command that are shown."""


class ImageError(Exception):
    """An image could not be built. The message has the command, its last lines, and the remedy."""


REPORT_SECONDS = 15.0
"""Seconds between two reports about a step that lasts."""
LINE_LENGTH = 80
"""Maximum number of characters that a report quotes."""


@dataclass(frozen=True)
class BuildStep:
    """Runs the steps of a build. Reports each step's duration to ``progress``, and names the step in its errors.

    ``interval``: seconds between two reports about a step that lasts.
    """

    progress: Progress
    interval: float = REPORT_SECONDS
    _last_line: list[str] = field(default_factory=list)

    def __call__(self, what: str, action: Callable[[], str]) -> str:
        began = time.monotonic()
        self.progress(f"{what} ...")
        self._last_line.clear()
        try:
            with self._report_duration(what, began):
                outcome = action()
        except ImageError as error:
            raise ImageError(f"{what}: {error}") from error
        self.progress(f"{what}: {outcome}, {time.monotonic() - began:.0f} s")
        return outcome

    def keep_line(self, line: str) -> None:
        """Keeps a line of the step's output for the next report."""
        if line.strip():
            self._last_line[:] = [line.strip()[:LINE_LENGTH]]

    @contextlib.contextmanager
    def _report_duration(self, what: str, began: float) -> Iterator[None]:
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(self.interval):
                last = "".join(f": {line}" for line in self._last_line)
                self.progress(f"{what}: {time.monotonic() - began:.0f} s so far{last}")

        thread = threading.Thread(target=report, daemon=True, name="reports about a build")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def ensure_layer(progress: Progress) -> str:
    """Returns the layer's reference, and builds the layer if it is missing. Raises :class:`ImageError`."""
    if exists(LAYER_IMAGE):
        return LAYER_IMAGE
    step = BuildStep(progress)
    base = _ensure_base(step)
    step(
        "node packages (apt)",
        lambda: build(DOCKERFILE, LAYER_IMAGE, {"BASE": base}, network="host", on_line=step.keep_line),
    )
    return LAYER_IMAGE


def base_origin() -> str:
    """Returns the source of the base image, for a run's record."""
    return f"debootstrap {SUITE}" if exists(IMPORTED_BASE) else REGISTRY_BASE


def can_build() -> bool:
    """Returns whether :func:`ensure_layer` would probably succeed. Takes at most some seconds."""
    if any(exists(reference) for reference in (LAYER_IMAGE, REGISTRY_BASE, IMPORTED_BASE)):
        return True
    bootstraps = shutil.which("debootstrap") is not None and os.geteuid() == 0
    return (bootstraps and _has_processors(engine_architecture())) or _registry_answers()


def exists(reference: str) -> bool:
    return run_command(["docker", "image", "inspect", "--format", "{{.Id}}", reference], check=False).returncode == 0


def image_id(reference: str) -> str:
    """Returns the digest of an image's content."""
    return run_command(["docker", "image", "inspect", "--format", "{{.Id}}", reference]).stdout.strip()


FOREIGN = "exec format error"
"""The kernel's message about a program for other processors."""


def describe_foreign(name: str) -> str:
    """Returns the message about an image whose programs the engine cannot run, with the remedy."""
    own = engine_architecture() or "its own"
    return (
        f"{name} is for other processors than those of the engine ({own}; {FOREIGN}): pull, load or build it for "
        f"linux/{own}, or install an emulation of its processors on the engine's machine (`qemu-user-static`)"
    )


def engine_architecture() -> str:
    """Returns the engine's processors as Docker names them; empty if the engine does not say."""
    shown = run_command(["docker", "version", "--format", "{{.Server.Arch}}"], check=False)
    return shown.stdout.strip() if shown.returncode == 0 else ""


def image_architecture(reference: str) -> str:
    """Returns the processors of an image as Docker names them, such as ``amd64`` or ``arm64``."""
    return run_command(["docker", "image", "inspect", "--format", "{{.Architecture}}", reference]).stdout.strip()


def build(
    dockerfile: str,
    tag: str,
    arguments: dict[str, str],
    *,
    network: str,
    context: Path | None = None,
    on_line: Progress = lambda line: None,
) -> str:
    """Builds an image. Returns the word ``built`` for the progress report.

    ``network``: ``host`` if the build must reach a mirror, ``none`` if it must not. ``on_line``: called with each line.
    """
    with _temporary_folder("build") as empty:
        path = empty / "Dockerfile"
        path.write_text(dockerfile)
        options = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        options += [f"--network={network}", "-f", str(path), "-t", tag]
        docker_build([*options, str(context or empty)], lambda step: None, on_line=on_line)
    return "built"


STEP = re.compile(r"(?:Step|#\d+ \[(?:\S+ )?)\s*(\d+/\d+)\]?(?: :)? (.*)")
"""Matches ``Step 2/5 : RUN make`` of the classic builder and ``#7 [stage-1 2/5] RUN make`` of BuildKit."""
CACHED = re.compile(r" ---> Using cache|#\d+ CACHED")
WORKING = re.compile(r" ---> |#\d+ (\d|DONE)")
"""Matches a line that follows a step if the step is not taken from the cache."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def docker_build(
    options: Sequence[str], on_step: Progress, timeout: float = 1800, on_line: Progress = lambda line: None
) -> None:
    """Runs ``docker build`` with these options. ``on_step`` is called for each step that is not cached.

    ``on_line`` is called with each line that it prints.

    Raises :class:`ImageError` with the step and the last lines on failure, or after ``timeout`` seconds.
    """
    argv = ["docker", "build", "--force-rm", *options]
    environment = command_environment() | {"BUILDKIT_PROGRESS": "plain"}
    step, pending, lines = "", False, deque[str](maxlen=TAIL)
    try:
        run = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
        )
    except NO_PROGRAM as error:
        raise ImageError(_not_installed_message("docker")) from error
    with run, _kill_after(run, timeout) as timed_out:
        assert run.stdout is not None, "it is a pipe"
        for line in run.stdout:
            lines.append(COLOUR.sub("", line.rstrip()))
            on_line(lines[-1])
            if found := STEP.match(line):
                step, pending = f"step {found[1]}, {found[2].strip()}", not found[2].startswith("FROM ")
            elif pending and CACHED.match(line):
                pending = False
            elif pending and WORKING.match(line):
                pending = False
                on_step(step)
    if run.returncode != 0 and FOREIGN in "\n".join(lines):
        raise ImageError(f"{step or 'docker build'} failed: {describe_foreign('its base image')}")
    if timed_out.is_set():
        raise ImageError(f"{step or 'docker build'} did not end within {timeout:g} s")
    if run.returncode != 0:
        raise ImageError(
            f"{step or 'docker build'} failed:\n{chr(10).join(filter(None, lines))}\n"
            "`assay doctor` says what this machine lacks"
        )


@contextlib.contextmanager
def _kill_after(run: "subprocess.Popen[str]", seconds: float) -> Iterator[threading.Event]:
    """Kills the process after ``seconds``. Yields an event that is set if that has happened."""
    timed_out = threading.Event()

    def end() -> None:
        timed_out.set()
        run.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield timed_out
    finally:
        timer.cancel()


def run_command(
    argv: Sequence[str], *, check: bool = True, timeout: float = LOOKUP_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Runs a command. Raises :class:`ImageError` if it fails, is missing, or lasts over ``timeout`` seconds."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout, check=False, env=command_environment()
        )
    except NO_PROGRAM as error:
        raise ImageError(_not_installed_message(argv[0])) from error
    except subprocess.TimeoutExpired as error:
        cause = ": the engine hangs, or is overloaded" * (argv[0] == "docker")
        raise ImageError(f"`{' '.join(argv)[:120]}` did not end within {timeout:g} s{cause}") from error
    if check and done.returncode != 0:
        raise ImageError(
            f"`{' '.join(argv)[:120]}` exited {done.returncode}:\n{last_lines(done.stdout + done.stderr)}\n"
            "`assay doctor` says what this machine lacks"
        )
    return done


def _not_installed_message(program: str) -> str:
    remedy = INSTALL_DOCKER if program == "docker" else f"`apt install {program}`"
    return f"{program} is not installed, or this user may not run it; on Debian, as root: {remedy}"


def command_environment() -> dict[str, str]:
    """Returns an environment in which the docker command uses the same engine as the SDK. Raises :class:`ImageError`.

    As a script, this module cannot import the project. Then the command finds the engine itself, by the same rules.
    """
    if __name__ == "__main__":
        return dict(os.environ)
    from assay.cluster.docker_endpoint import EndpointError, resolve_endpoint

    try:
        return resolve_endpoint().environment()
    except EndpointError as error:
        raise ImageError(str(error)) from error


def _ensure_base(step: BuildStep) -> str:
    for reference in (REGISTRY_BASE, IMPORTED_BASE):
        if exists(reference):
            return reference
    pulled = step(f"base image: docker pull {REGISTRY_BASE}", _pull)
    if pulled == "pulled":
        return REGISTRY_BASE
    if not _has_processors(own := engine_architecture()):
        raise ImageError(
            f"no registry gave {REGISTRY_BASE}, and debootstrap would make it for this machine ({platform.machine()}) "
            f"instead of the engine ({own}); load the base image for linux/{own} with `docker load`"
        )
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise ImageError(
            f"no registry gave {REGISTRY_BASE} and debootstrap needs "
            + ("root" if shutil.which("debootstrap") else "to be installed (`apt install debootstrap`) and root")
            + f"; or {describe_copy()}"
        )
    step(f"base image: debootstrap {SUITE} and docker import", _debootstrap)
    return IMPORTED_BASE


def describe_copy() -> str:
    """Returns the remedy if the engine has no base image, and none can be made.

    The command names both engines, because the user who runs it may have other variables than this process.
    """
    if __name__ == "__main__":
        own = f"DOCKER_HOST={shlex.quote(os.environ.get('DOCKER_HOST') or SYSTEM_SOCKET)}"
    else:
        from assay.cluster.docker_endpoint import resolve_endpoint

        own = resolve_endpoint().prefix()
    here = own == f"DOCKER_HOST={SYSTEM_SOCKET}"
    source = "unix:///PATH-OF-ITS-SOCKET" if here else SYSTEM_SOCKET
    return (
        "copy the base image from an engine that has it, as root or as a user who may use both engines: "
        f"`docker -H {source} save {IMPORTED_BASE} | {own} docker load`"
    )


def _has_processors(architecture: str) -> bool:
    """Returns whether this machine has these processors, as Docker names them. Unknown ones count as equal."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    return architecture in ("", names.get(platform.machine(), architecture))


def _pull() -> str:
    try:
        done = run_command(["docker", "pull", "-q", REGISTRY_BASE], check=False, timeout=PULL_TIMEOUT)
    except ImageError:
        return "no registry answers"
    return "pulled" if done.returncode == 0 else f"not available ({last_lines(done.stderr, 1)[:PULL_ERROR_LENGTH]})"


def _registry_answers() -> bool:
    try:
        return run_command(["docker", "manifest", "inspect", REGISTRY_BASE], check=False, timeout=3).returncode == 0
    except ImageError:
        return False


@contextlib.contextmanager
def _temporary_folder(what: str) -> Iterator[Path]:
    """Creates a folder for the block, which is found if this process is killed; not if this module is a script."""
    try:
        from assay.cluster.temporary_folders import temporary_folder
    except ImportError:
        with tempfile.TemporaryDirectory(prefix=f"assay-{what}-") as folder:
            yield Path(folder)
    else:
        with temporary_folder(what) as found:
            yield found


def _debootstrap() -> str:
    with _temporary_folder("debootstrap") as folder:
        root = folder / "root"
        # The caller's TMPDIR may not exist in the chroot.
        argv = ["env", "-u", "TMPDIR", "debootstrap", "--variant=minbase", SUITE, str(root)]
        done = run_command(argv, check=False, timeout=LONG_SECONDS)
        if done.returncode != 0:
            log = root / "debootstrap" / "debootstrap.log"
            log_text = log.read_text(errors="replace") if log.exists() else ""
            raise ImageError(
                f"debootstrap exited {done.returncode}:\n{last_lines(done.stdout + done.stderr + log_text)}"
            )
        for cache in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(root / cache, ignore_errors=True)
            (root / cache / "partial").mkdir(parents=True)
        _import(root)
    return "imported"


def _import(root: Path) -> None:
    with subprocess.Popen(["tar", "-C", str(root), "--numeric-owner", "-c", "."], stdout=subprocess.PIPE) as tar:
        done = subprocess.run(
            ["docker", "import", "--change", "LABEL assay=base", "-", IMPORTED_BASE],
            stdin=tar.stdout,
            capture_output=True,
            text=True,
            check=False,
            env=command_environment(),
        )
    if done.returncode != 0 or tar.returncode != 0:
        raise ImageError(f"docker import exited {done.returncode} (tar: {tar.returncode}): {last_lines(done.stderr)}")


def last_lines(text: str, lines: int = TAIL) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


def main() -> int:
    try:
        ensure_layer(lambda line: print(f"assay: {line}", flush=True))
    except ImageError as error:
        print(f"assay: no node image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
