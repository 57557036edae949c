"""Examines which features this machine supports, and what to install for the others. It changes nothing.

Memory, disk and kernel matter where containers run. So they are examined on the machine of the Docker engine, which may
be another one.

The command ``assay doctor`` prints the findings. A finding that is not ``good`` and not ``required`` disables only the
features in its ``enables``. The simulation needs none of them. :func:`diagnose_hosts` examines instead whether the
machines of an inventory can be nodes.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

from assay.cluster import zookeeper
from assay.cluster.docker import image, layer, preload
from assay.cluster.docker.ability_trials import ABILITY_TRIALS, AbilityError, AbilityTrial
from assay.cluster.docker.engine import FORBIDDEN, DockerEngineError, open_docker
from assay.cluster.docker.engine_machine import EngineMachine, find_engine_machine, measure_free_disk
from assay.cluster.docker.layer import INSTALL_DOCKER, ImageError
from assay.cluster.docker_endpoint import EndpointError, resolve_endpoint
from assay.cluster.hosts import inventory, upkeep
from assay.cluster.hosts.host_command import run_on_host
from assay.cluster.hosts.inventory import InventoryHost
from assay.cluster.node import NodeError
from assay.cluster.operating_system import ON_MACOS, find_obstacle, read_available_memory


@dataclass(frozen=True)
class DoctorFinding:
    """An examined property of a machine, and its remedy.

    ``remedy`` is empty if ``good``. ``enables`` names the features that need the property. If it is ``required``,
    nothing works without it.
    """

    name: str
    good: bool
    detail: str
    remedy: str = ""
    enables: str = ""
    required: bool = False


GIB = 2**30
DISK_NEEDED = 3 * GIB
"""Bytes for the image (0.5 GiB), its build, and some runs."""
MEMORY_NEEDED = 2 * GIB
"""Bytes for three brokers, a ZooKeeper, the harness and its checkers."""
NOT_TRIED = "not tried: the engine has no node image yet"


JAVA_SECONDS = 30.0
"""Time limit of ``java -version``."""
MACOS_REMEDIES = {
    "root": "not needed, because the engine has a machine of its own",
    "docker engine": "start Docker Desktop, or `brew install colima docker` and `colima start`",
    "java": "`brew install openjdk`",
    "zookeeper": "none on macOS: these tests need Debian's jars",
    "chromium": "`brew install --cask chromium chromedriver`",
}
"""Remedies on macOS, by finding. Other findings have the same remedy on every system."""
NAME_WIDTH = 25
"""Length of the longest name of a finding on this machine, for a table that is printed line by line."""

Announce = Callable[[str], None]


def diagnose(announce: Announce = lambda text: None) -> Iterator[DoctorFinding]:
    """Yields the findings, in the order in which to repair them, each as soon as it is known.

    ``announce`` gets a text about each step that may take seconds, before it begins.
    """
    for one in _examine(announce):
        yield replace(one, remedy=MACOS_REMEDIES.get(one.name, one.remedy)) if ON_MACOS and not one.good else one


def _examine(announce: Announce) -> Iterator[DoctorFinding]:
    yield _python()
    yield _processes()
    announce(f"asking the Docker engine{_describe_endpoint()}")
    machine = _find_machine()
    yield _root(machine)
    yield _machine(machine)
    yield _memory(machine)
    if _is_elsewhere(machine):
        announce(f"measuring the free disk space of {machine.name}")
    yield _disk(machine)
    yield (engine := _engine())
    if engine.good:
        announce("looking for the node image")
        yield (found := _image(machine))
        reference = image.image_reference() if found.good else None
        for trial in ABILITY_TRIALS:
            if reference is not None and trial.find_obstacle(machine) is None:
                announce(f"trying in a container: {trial.name}")
            yield _try_in_node(trial, reference, machine)
        if reference is not None:
            announce("compiling the libraries for clocks and disks of nodes")
        yield _preloads(reference)
    announce("asking java for its version")
    yield _java()
    yield _zookeeper()
    yield _chromium()


def _describe_endpoint() -> str:
    try:
        return f" at {resolve_endpoint()}"
    except EndpointError:
        return ""


ANSWER_SECONDS = 3.0
"""Maximum seconds to wait for an engine's answer before it counts as missing."""


def _describe_missing_image(is_rootless: bool = False) -> str:
    """Returns the remedy if a node image can neither be found nor built.

    ``is_rootless``: the engine is. Its user is no root, so debootstrap is no remedy.
    """
    if is_rootless:
        return f"{layer.describe_copy()}, then `assay image build`; or a registry with {layer.REGISTRY_BASE}"
    return (
        f"a registry with {layer.REGISTRY_BASE}, or `apt install debootstrap` and root, is needed; then `assay image "
        f"build`. Or {layer.describe_copy()}"
    )


def docker_available() -> bool:
    """Returns within seconds whether a Docker cluster can start."""
    return find_docker_obstacle() is None


def find_docker_obstacle() -> str | None:
    """Returns within seconds why no Docker cluster can start; None if one can.

    It needs an engine that answers, and a node image that exists or can be built.
    """
    try:
        with open_docker(ANSWER_SECONDS) as client:
            client.ping()
        return None if image.can_build() else f"the Docker engine has no node image: {_describe_missing_image()}"
    except (DockerEngineError, ImageError) as error:
        return _first_line(error)


def _python() -> DoctorFinding:
    good = sys.version_info >= (3, 11)
    remedy = "" if good else "install Python 3.11 or newer"
    return DoctorFinding("python", good, platform.python_version(), remedy, "everything", required=True)


def _processes() -> DoctorFinding:
    enables = "knowing whether the process of a run still lives; without them, it counts as alive while its pid exists"
    obstacle = find_obstacle()
    if obstacle is None:
        return DoctorFinding("process look-ups", True, f"this is process {os.getpid()}", enables=enables)
    return DoctorFinding("process look-ups", False, *obstacle, enables)


def _root(machine: EngineMachine | None = None) -> DoctorFinding:
    """A user without root who has an engine lacks nothing that a remedy could give."""
    detail, enables = f"uid {os.geteuid()}", "installing packages, debootstrap"
    if os.geteuid() == 0:
        return DoctorFinding("root", True, detail, enables=enables)
    if machine is not None:
        detail += ", which may use the engine; only the installation of packages needs root"
        return DoctorFinding("root", True, detail, enables=enables)
    remedy = "install packages as root; afterwards the group docker or a rootless engine will do"
    return DoctorFinding("root", False, detail, remedy, enables)


def _find_machine() -> EngineMachine | None:
    """Returns the engine's machine; None if no engine answers, so that this machine is described."""
    with suppress(DockerEngineError):
        return find_engine_machine(timeout=5)
    return None


def _is_elsewhere(machine: EngineMachine | None) -> TypeGuard[EngineMachine]:
    return machine is not None and not machine.is_here


def _machine(machine: EngineMachine | None) -> DoctorFinding:
    """Says which machine the findings on memory, disk and kernel describe."""
    name, enables = "engine's machine", "Docker clusters"
    if machine is None:
        return DoctorFinding(name, True, f"none, so {platform.node()} is described, this machine", enables=enables)
    where = "this one" if machine.is_here else "another one than this, and described below"
    return DoctorFinding(name, True, f"{machine}; it is {where}", enables=enables)


def _memory(machine: EngineMachine | None = None) -> DoctorFinding:
    if _is_elsewhere(machine) and machine.memory:
        good = machine.memory >= MEMORY_NEEDED
        remedy = "" if good else f"give {machine.name} {MEMORY_NEEDED / GIB:.0f} GiB, or use fewer --nodes"
        detail = f"{machine.memory / GIB:.1f} GiB in total, on {machine.name}"
        return DoctorFinding("memory", good, detail, remedy, "Docker clusters")
    available = read_available_memory()
    if available is None:
        obstacle, remedy = find_obstacle() or ("the system does not say", "look at the memory by other means")
        return DoctorFinding("memory", False, f"unknown: {obstacle}", remedy, "knowing whether a Docker cluster fits")
    good = available >= MEMORY_NEEDED
    remedy = "" if good else f"free memory up to {MEMORY_NEEDED / GIB:.0f} GiB, or use fewer --nodes"
    return DoctorFinding("memory", good, f"{available / GIB:.1f} GiB available", remedy, "Docker clusters")


def _disk(machine: EngineMachine | None = None) -> DoctorFinding:
    if _is_elsewhere(machine):
        return _disk_elsewhere(machine)
    with suppress(EndpointError):
        if machine is None and (endpoint := resolve_endpoint()).scheme != "unix":
            return DoctorFinding("disk", True, f"not examined: the engine is at {endpoint}", enables="Docker clusters")
    root = Path("/var/lib/docker" if machine is None else machine.root)
    place = root if root.is_dir() else Path("/")
    try:
        free = shutil.disk_usage(place).free
    except PermissionError:
        free = shutil.disk_usage("/").free
    good = free >= DISK_NEEDED
    remedy = "" if good else f"free {DISK_NEEDED / GIB:.0f} GiB below {place}: `docker system df`, `assay gc`"
    return DoctorFinding("disk", good, f"{free / GIB:.0f} GiB free at {place}", remedy, "Docker clusters")


def _disk_elsewhere(machine: EngineMachine) -> DoctorFinding:
    enables = "Docker clusters"
    try:
        if not image.exists():
            return DoctorFinding("disk", False, NOT_TRIED, "`assay image build`", enables)
        free = measure_free_disk(image.image_reference())
    except (DockerEngineError, ImageError) as error:
        return DoctorFinding("disk", False, f"unknown: {_last_line(error)}", f"`df` on {machine.name}", enables)
    good = free >= DISK_NEEDED
    remedy = "" if good else f"free {DISK_NEEDED / GIB:.0f} GiB there: `docker system df`, `assay gc`"
    return DoctorFinding("disk", good, f"{free / GIB:.0f} GiB free for containers, on {machine.name}", remedy, enables)


def _engine() -> DoctorFinding:
    enables = "--cluster=docker"
    try:
        with open_docker(timeout=5) as client:
            version = client.version()["Version"]
    except DockerEngineError as error:
        detail, _, remedy = _first_line(error).rpartition("; ")
        if _is_default_endpoint() and not remedy.startswith(FORBIDDEN):
            installed = shutil.which("dockerd") is not None
            remedy = "as root: " + ("" if installed else f"{INSTALL_DOCKER}, then ") + "`dockerd`"
        return DoctorFinding("docker engine", False, detail, remedy, enables)
    return DoctorFinding("docker engine", True, f"{version}, at {resolve_endpoint()}", enables=enables)


def _is_default_endpoint() -> bool:
    try:
        return resolve_endpoint().is_default
    except EndpointError:
        return False


def _image(machine: EngineMachine | None = None) -> DoctorFinding:
    enables = "--cluster=docker"
    try:
        if image.exists():
            return DoctorFinding("node image", True, image.image_reference(), enables=enables)
        can_build = image.can_build()
    except ImageError as error:
        return DoctorFinding("node image", False, _first_line(error), INSTALL_DOCKER, enables)
    remedy = "`assay image build` (a minute or two)"
    if not can_build:
        remedy = _describe_missing_image(machine is not None and machine.is_rootless)
    return DoctorFinding("node image", False, "not built yet", remedy, enables)


def _try_in_node(trial: AbilityTrial, reference: str | None, machine: EngineMachine | None = None) -> DoctorFinding:
    """Returns the finding of a trial. Proofs of an engine elsewhere are trusted, because a trial takes long there.

    ``reference``: the node image; None if there is none.
    """
    if (obstacle := trial.find_obstacle(machine)) is not None:
        return DoctorFinding(trial.name, False, str(obstacle), obstacle.remedy, trial.enables)
    if reference is None:
        return DoctorFinding(trial.name, False, NOT_TRIED, "`assay image build`", trial.enables)
    found = reference
    try:
        tried = trial.require(machine, lambda: found, trusts_proof=_is_elsewhere(machine))
    except AbilityError as error:
        return DoctorFinding(trial.name, False, str(error), error.remedy, trial.enables)
    return DoctorFinding(
        trial.name, True, trial.success + ("" if tried else ", as an earlier trial showed"), enables=trial.enables
    )


def _preloads(reference: str | None) -> DoctorFinding:
    name = "clocks and disks of nodes"
    faults = "clock, slow-disk, slow-fsync, disk-error, kill-in-write"
    enables = f"--nemesis={faults} with --cluster=docker; the simulation's need nothing"
    try:
        if reference is None:
            return DoctorFinding(name, False, NOT_TRIED, "`assay image build`", enables)
        architecture = layer.image_architecture(reference)
        if not preload.compiles_here(architecture):
            ready = preload.is_ready(architecture)
            later = "" if ready else "; its image is built at the first run, which needs a network"
            detail = f"a container compiles their libraries for {architecture}{later}"
            return DoctorFinding(name, True, detail, enables=enables)
        sizes = [len(preload.compile_here(library)) for library in (preload.CLOCK, preload.SLOWNESS)]
    except (OSError, ImageError) as error:
        return DoctorFinding(name, False, _first_line(error), "`apt install gcc libc6-dev`", enables)
    return DoctorFinding(
        name, True, f"libraries of {sizes[0]} and {sizes[1]} bytes shift and slow them", enables=enables
    )


def _java() -> DoctorFinding:
    enables = "a ZooKeeper without Docker, Spark"
    found = shutil.which("java")
    if found is None:
        return DoctorFinding("java", False, "no java command", "`apt install default-jre-headless`", enables)
    remedy = "`apt install --reinstall default-jre-headless`"
    try:
        done = subprocess.run(
            [found, "-version"], capture_output=True, text=True, check=False, timeout=JAVA_SECONDS, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return DoctorFinding("java", False, _first_line(error), remedy, enables)
    version = (done.stderr or done.stdout).partition("\n")[0]
    works = done.returncode == 0
    return DoctorFinding("java", works, version, "" if works else remedy, enables)


def _zookeeper() -> DoctorFinding:
    enables = "the conformance tests against a real ZooKeeper without Docker"
    missing = [jar for jar in zookeeper.JARS.split(":") if not Path(jar).exists()]
    if missing:
        return DoctorFinding("zookeeper", False, "no " + ", ".join(missing), "`apt install libzookeeper-java`", enables)
    return DoctorFinding("zookeeper", True, zookeeper.JARS.partition(":")[0], enables=enables)


def _chromium() -> DoctorFinding:
    enables = "the browser tests of the reports"
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        return DoctorFinding(
            "chromium", False, "no " + ", ".join(missing), "`apt install chromium chromium-driver`", enables
        )
    return DoctorFinding("chromium", True, str(shutil.which("chromium")), enables=enables)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _last_line(error: Exception) -> str:
    """Returns the last line of an error: the end of a container's output. The lines before quote the whole command."""
    return str(error).strip().rpartition("\n")[2][-300:]


SSH_CLUSTER = "--cluster=ssh"
REMEDIES = {
    "user": ("0", "log in as root, or set sudo = true for a user that may become root without a password", SSH_CLUSTER),
    "python": ("yes", "install python3, 3.10 or newer", SSH_CLUSTER),
    "iptables": ("yes", "install iptables; the kernel needs nf_tables", SSH_CLUSTER),
    "pkill": ("", "install procps", "kill and stop of processes that have children"),
    "setsid": ("", "install util-linux", SSH_CLUSTER),
}
"""For each line of :func:`upkeep.node_needs_command`: the good value, the remedy, and the features that need it.

An empty good value means any value but ``no``.
"""


def diagnose_hosts(hosts: Path, announce: Announce = lambda text: None) -> Iterator[DoctorFinding]:
    """Yields the findings on each machine of an inventory, machine by machine. ``announce``: see :func:`diagnose`.

    Raises :class:`inventory.InventoryError`.
    """
    found = inventory.read_inventory(hosts)
    with ThreadPoolExecutor(len(found)) as executor:
        answers = [executor.submit(_diagnose_host, host) for host in found]
        for host, answer in zip(found, answers, strict=True):
            announce(f"examining {host.ssh}")
            yield from answer.result()


def _diagnose_host(host: InventoryHost) -> list[DoctorFinding]:
    where = str(host.ssh)
    try:
        lines = run_on_host(host.ssh, upkeep.node_needs_command(host.ssh.address)).splitlines()
    except NodeError as error:
        remedy = "is it up, does the key open it, and is the host key the right one?"
        return [DoctorFinding(where, False, str(error), remedy, SSH_CLUSTER, required=True)]
    findings = []
    for line in lines:
        what, _, value = line.partition(" ")
        if what not in REMEDIES:
            continue  # a shell's greeting
        wanted, remedy, enables = REMEDIES[what]
        good = value == wanted if wanted else value != "no"
        findings.append(
            DoctorFinding(
                f"{where} {what}", good, value, "" if good else remedy, enables, required=enables == SSH_CLUSTER
            )
        )
    return findings
