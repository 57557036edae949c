"""Abilities that faults need from an engine's containers, each tried in a container.

``assay doctor`` tries all of them. A session tries those that its faults need, before it starts a cluster: a container
takes a second, and a cluster that is then refused half a minute.

The abilities of this machine's kernel prove nothing about containers, so each ability is used in one. An engine that
has shown an ability has it, until its kernel or the image changes. So a session trusts a stored proof
(``engine_machine``). If it is wrong nevertheless, the fault is refused when the cluster has started.
"""

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from assay.cluster import owner
from assay.cluster.docker import image
from assay.cluster.docker.disk import ROOTLESS, ROOTLESS_REMEDY, DiskError, DockerDisk, start_disk_container
from assay.cluster.docker.engine import (
    DOCTOR_REMEDY,
    DockerEngineError,
    open_docker,
    remove_container,
    run_labels,
)
from assay.cluster.docker.engine_machine import (
    DOCTOR_RUN,
    EngineMachine,
    find_engine_machine,
    forget_proof,
    is_proved,
    run_in_trial,
    store_proof,
    try_freeze,
)
from assay.cluster.docker.layer import ImageError, Progress
from assay.cluster.journal import state_folder
from assay.cluster.node import (
    NodeError,
    SupportsDiskFull,
    SupportsFreezing,
    SupportsMemoryLimit,
    SupportsPacketShaping,
    SupportsPowerLoss,
)
from assay.cluster.ssh import memory, packets

TRIAL_MEMORY = 1 << 30
"""Memory limit in bytes of the container that examines its limit."""


class AbilityError(Exception):
    """An engine lacks an ability. The message is the reason."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class AbilityTrial:
    """An ability, tried in a container of the node image.

    - ``success``: what a container can do if the trial succeeds
    - ``run``: takes the image, and raises an error of the engine or of a node if the trial fails
    - ``enables``: the faults that need the ability, for the user
    - ``protocols``: protocols of nodes that need the ability (:mod:`assay.cluster.node`)
    - ``needs_control_groups``: whether the engine must have control groups. A rootless one only has version 2
    - ``needs_root``: whether the engine must run as root
    """

    name: str
    success: str
    run: Callable[[str], object]
    remedy: str
    enables: str
    protocols: tuple[type, ...] = ()
    needs_control_groups: bool = False
    needs_root: bool = False

    def find_obstacle(self, machine: EngineMachine | None) -> AbilityError | None:
        """Returns why a trial must fail, by the engine's own words; None if it may succeed."""
        if machine is None:
            return None
        if self.needs_control_groups and machine.lacks_control_groups:
            return AbilityError("the engine is rootless, with control groups of version 1", self.remedy)
        return AbilityError(ROOTLESS, ROOTLESS_REMEDY) if self.needs_root and machine.is_rootless else None

    def require(self, machine: EngineMachine | None, find_image: Callable[[], str], *, trusts_proof: bool) -> bool:
        """Tries the ability, and stores or forgets the proof. Returns False if a stored proof made that unnecessary.

        - ``machine``: the engine's machine; None if it is unknown, so that there is no proof
        - ``find_image``: returns the image for the trial. Only called if a container is needed

        Raises :class:`AbilityError`, and the errors of ``find_image``.
        """
        if (obstacle := self.find_obstacle(machine)) is not None:
            raise obstacle
        reference = image.image_reference()
        if trusts_proof and machine is not None and is_proved(machine, reference, self.name):
            return False
        reference = find_image()
        try:
            self.run(reference)
        except DiskError as error:
            reason, _, remedy = _first_line(error).rpartition("; ")
            failure = AbilityError(reason, remedy)
        except (DockerEngineError, ImageError, NodeError) as error:
            failure = AbilityError(_last_line(error).removesuffix(f"; {DOCTOR_REMEDY}"), self.remedy)
        else:
            if machine is not None:
                store_proof(machine, reference, self.name)
            return True
        if machine is not None:
            forget_proof(machine, reference, self.name)
        raise failure


def _cut_power(reference: str) -> None:
    """Cuts the power of a disk in a container: only fsynced data may survive.

    If this process crashes, the next session removes the container.
    """
    creator = owner.current_owner()
    container = f"assay-doctor-{creator.pid}-{uuid.uuid4().hex[:8]}-disks"  # pids of two containers may be equal
    try:
        start_disk_container(container, reference, run_labels(DOCTOR_RUN, creator, state_folder()))
        DockerDisk(container, None, "doctor.ext4", "/mnt/assay").try_out()
    finally:
        with open_docker() as client:
            remove_container(client, container)


ABILITY_TRIALS = (
    AbilityTrial(
        "iptables in a node",
        "drops packets",
        lambda reference: run_in_trial(reference, "iptables -w -A INPUT -s 198.19.255.1 -j DROP"),
        "the kernel needs nf_tables (or ip_tables) and containers the right to NET_ADMIN",
        "partition and every other fault of the network",
    ),
    AbilityTrial(
        "packets of a node",
        "can be delayed and lost",
        lambda reference: run_in_trial(reference, packets.trial_command("iptables")),
        "the kernel needs nfnetlink_queue and xt_NFQUEUE",
        "--nemesis=packets, slow-network, connection",
        (SupportsPacketShaping,),
    ),
    AbilityTrial(
        "freezing a node",
        "stops and continues",
        try_freeze,
        "choose an engine that runs as root, or boot its machine with control groups of version 2",
        "--nemesis=freeze",
        (SupportsFreezing,),
        needs_control_groups=True,
    ),
    AbilityTrial(
        "memory of a node",
        "can be limited",
        lambda reference: run_in_trial(reference, memory.command("look"), mem_limit=TRIAL_MEMORY),
        "choose an engine that runs as root, or boot its machine with control groups of version 2 and delegate "
        "`memory` to the engine's user",
        "--nemesis=memory",
        (SupportsMemoryLimit,),
        needs_control_groups=True,
    ),
    AbilityTrial(
        "power loss in a node",
        "what was fsynced stays, what was not is gone",
        _cut_power,
        "on the engine's machine, the kernel needs loop devices (5.8 or newer; `modprobe loop`) and ext4 with "
        "EXT4_IOC_SHUTDOWN, and a container the right to SYS_ADMIN",
        "--nemesis=power-loss, disk-full with --cluster=docker; the simulation's need nothing",
        (SupportsPowerLoss, SupportsDiskFull),
        needs_root=True,
    ),
)


class _NoImageError(Exception):
    """The engine has no node image yet."""


def find_missing_abilities(protocols: Collection[type], note: Progress) -> Mapping[type, str]:
    """Returns, for each protocol that the nodes of this process's engine cannot satisfy, the reason and the remedy.

    Other protocols can be satisfied, or only the start of a cluster can show that they cannot. This is so if the engine
    has no node image yet, or does not answer. ``note`` gets a line about each trial.
    """
    trials = [trial for trial in ABILITY_TRIALS if any(one in protocols for one in trial.protocols)]
    if not trials:
        return {}
    missing: dict[type, str] = {}
    try:
        machine = find_engine_machine()
        for trial in trials:
            try:
                trial.require(machine, partial(_find_image, trial, note), trusts_proof=True)
            except AbilityError as error:
                missing |= {one: f"{error}; {error.remedy}" for one in trial.protocols if one in protocols}
    except (_NoImageError, DockerEngineError, ImageError):
        pass  # the start of the cluster builds the image, or says more
    return missing


def _find_image(trial: AbilityTrial, note: Progress) -> str:
    if not image.exists():
        raise _NoImageError
    note(f"trying on the Docker engine: {trial.name} ...")
    return image.image_reference()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _last_line(error: Exception) -> str:
    """Returns the last line of an error: the end of a container's output. The lines before quote the whole command."""
    return str(error).strip().rpartition("\n")[2][-300:]
