"""What a fault does to its targets, in the terms in which checks and reports ask."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Impact:
    """Declared by each fault; the fields are columns of the history's ``faults`` rows.

    A fault that sets none of them leaves processes, links, files, clocks and replicas alone (a slow
    disk).
    """

    ends_process: bool = False
    """The targets' main processes end; what they had in memory is gone."""
    pauses_process: bool = False
    """The targets' main processes stand still, and go on with all that they knew."""
    gradual: bool = False
    """Processes end or stand still some time while the fault is in force, not all of them at the injection."""
    cuts_links: bool = False
    """Packets between the targets and other nodes, or among ZooKeeper's, are lost or rejected. Clients that are no
    targets are spared."""
    loses_unsynced: bool = False
    """What the targets had written and not fsynced may be gone. Containers get disks of their own for it."""
    damages_files: bool = False
    """The targets' files are changed."""
    wrong_clock: bool = False
    """The targets' wall clocks are wrong."""
    moves_replicas: bool = False
    """Replicas are assigned to other servers than before."""

    @property
    def beside_main(self) -> Impact:
        """Of the same fault, of a process beside the main one."""
        return replace(self, ends_process=False, pauses_process=False)

    @property
    def stops_work(self) -> bool:
        """No process of the targets works at some time while the fault is in force."""
        return self.ends_process or self.pauses_process

    @property
    def changes_members(self) -> bool:
        """Servers leave or join, with all replicas that they have or get."""
        return self.ends_process and self.moves_replicas

    @property
    def loses_data(self) -> bool:
        """What the targets hold on disk may be less afterwards, or wrong."""
        return self.loses_unsynced or self.damages_files
