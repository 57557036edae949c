"""Effects of a fault on its targets, in the terms that checks and reports use."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Impact:
    """Declared by each fault. The fields are columns of the history's ``faults`` rows.

    A fault that sets none of them leaves processes, links, files, clocks and replicas alone (a slow disk).
    """

    ends_process: bool = False
    """The targets' main processes end and lose their memory."""
    pauses_process: bool = False
    """The targets' main processes are paused, and continue with their memory intact."""
    gradual: bool = False
    """Processes end or are paused at different times while the fault is active, not all at the injection."""
    cuts_links: bool = False
    """Packets between the targets and other nodes, or among ZooKeeper's nodes, are lost or rejected.

    Client nodes are only affected as targets.
    """
    loses_unsynced: bool = False
    """The targets' unsynced data may be lost. Containers get separate disks for it."""
    damages_files: bool = False
    """The targets' files are changed."""
    wrong_clock: bool = False
    """The targets' wall clocks are wrong."""
    moves_replicas: bool = False
    """Replicas are assigned to other servers than before."""

    @property
    def beside_main(self) -> Impact:
        """Impact of the same fault on a sidecar."""
        return replace(self, ends_process=False, pauses_process=False)

    @property
    def stops_work(self) -> bool:
        """Whether the targets' processes do not work at some time while the fault is active."""
        return self.ends_process or self.pauses_process

    @property
    def changes_members(self) -> bool:
        """Whether servers leave or join, with all their replicas."""
        return self.ends_process and self.moves_replicas

    @property
    def loses_data(self) -> bool:
        """Whether the targets' disks may have less data afterwards, or wrong data."""
        return self.loses_unsynced or self.damages_files
