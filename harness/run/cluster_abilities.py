"""Faults that the nodes of a cluster cannot suffer, found before the cluster starts.

A cluster takes half a minute to start, so a fault that it cannot inject is refused earlier if possible. Some reasons
show only when it has started, such as a process that cannot load a library. They are found by ``Fault.probe``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from assay.cluster.node import SupportsDiskErrors, SupportsDiskFull, SupportsPowerLoss, SupportsSlowDisk
from assay.cluster.system import System
from assay.harness.run.settings import DOCKER, SSH
from assay.nemesis.faults.abilities import Ability
from assay.nemesis.faults.fault import Fault, get_declaration

NEED_FOLDER = (SupportsPowerLoss, SupportsDiskFull, SupportsSlowDisk, SupportsDiskErrors)
"""Protocols that a container satisfies only if the system says where its data are."""
NO_SPARES = "hosts have no spare node, which could join; use --cluster=docker"


@dataclass(frozen=True)
class ClusterAbilities:
    """The abilities of the nodes of one kind of cluster.

    ``missing``: the protocols of nodes (:mod:`assay.cluster.node`) that they cannot satisfy, with reason and remedy.
    """

    cluster: str
    missing: Mapping[type, str]

    def explain_refusal(self, fault: Fault, system: System) -> str | None:
        """Returns why this fault cannot be injected, and the remedy; None if it can, or if only the start shows it."""
        for ability in _list_abilities(fault):
            reason = self.missing.get(ability.protocol)
            if reason is None and self.cluster == DOCKER and ability.protocol in NEED_FOLDER:
                from assay.cluster.docker.disk import explain_missing_folder

                reason = explain_missing_folder(system)
            if reason is not None:
                return f"--nemesis={fault.name} is not available here: {ability.format_refusal('a node', reason)}"
        if self.cluster == SSH and get_declaration(fault, "spares"):
            return f"--nemesis={fault.name} is not available here: {NO_SPARES}"
        return None


def examine_cluster(cluster: str, faults: Iterable[Fault], note: Callable[[str], None]) -> ClusterAbilities:
    """Returns the abilities of a kind of cluster. Only those that these faults need are examined.

    ``note`` gets a line about each examination that takes a while.
    """
    protocols = {ability.protocol for fault in faults for ability in _list_abilities(fault)}
    missing: Mapping[type, str] = {}
    if cluster == DOCKER and protocols:
        from assay.cluster.docker.ability_trials import find_missing_abilities

        missing = find_missing_abilities(protocols, note)
    elif cluster == SSH:
        from assay.cluster.hosts.cluster import MISSING_ABILITIES

        missing = MISSING_ABILITIES
    return ClusterAbilities(cluster, missing)


def _list_abilities(fault: Fault) -> Iterable[Ability]:
    return get_declaration(fault, "abilities") or ()
