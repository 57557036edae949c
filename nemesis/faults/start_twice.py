"""Start twice: starts a second copy of a live process, with the same command and directory.

An operator may do so by mistake, or a supervisor that has lost track of a process. The system must stop the copy before
it changes anything: the first process lives on, no file changes, and nothing is lost. The copy belongs to the fault, so
its end is not an unexpected exit. The heal kills the copy if it still lives. This fault never restarts the first
process. If the first process ends, the run reports that.

Proof: the first process was running before. The copy either exited by itself with a status, or lived for at least
``ACCEPTED_SECONDS``. The evidence has the number of ``changes`` that the copy made to files of the data folder. If the
copy may have made more changes, ``not_proved`` says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from assay.cluster.node import Node, ProcessState
from assay.cluster.second_copy import SupportsSecondCopy
from assay.cluster.system import SupportsDataFolder
from assay.nemesis.faults.abilities import SECOND_COPY
from assay.nemesis.faults.fault import LINGER_SECONDS, Impact, Injection
from assay.nemesis.faults.process import ServerFault, evidence_of, find_unseen, read_status

ACCEPTED_SECONDS: Final = 2.0
"""Seconds after which the system counts as having accepted the copy."""


class StartTwice(ServerFault):
    """Starts a second copy of the targets' processes; see the module."""

    name = "start-twice"
    description = "a second copy of the process is started beside the first, on the same data; killed at the heal"
    abilities = (SECOND_COPY,)
    impact = Impact()
    lingers = LINGER_SECONDS  # maximum seconds beyond the duration while it has no effect yet

    async def strike(self, injection: Injection, node: Node) -> None:
        seen = evidence_of(injection, node)
        seen["before"] = await read_status(node)
        if seen["before"]["state"] != ProcessState.RUNNING:
            return  # the copy would be the node's only process, with its data and address, until the heal kills it
        seen["started"] = asyncio.get_running_loop().time()
        system = injection.context.system
        data = system.data_folder(node) if isinstance(system, SupportsDataFolder) else None
        await cast(SupportsSecondCopy, node).start_second(data)

    async def observe_node(self, injection: Injection, node: Node) -> None:
        await super().observe_node(injection, node)
        seen = evidence_of(injection, node)
        if "started" in seen:
            seen["second"] = asdict(await cast(SupportsSecondCopy, node).second())
            seen["lived"] = asyncio.get_running_loop().time() - seen["started"]

    async def undo(self, injection: Injection, node: Node) -> None:
        await cast(SupportsSecondCopy, node).end_second()
        evidence_of(injection, node)["after"] = await read_status(node)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        if "before" in seen and seen["before"]["state"] != ProcessState.RUNNING:
            return "was not running when its copy was to be started"
        if (missing := find_unseen(seen, "before", "second")) is not None:
            return missing
        copy = seen["second"]
        if copy["alive"]:
            return None if seen["lived"] >= ACCEPTED_SECONDS else f"its copy had not lived for {ACCEPTED_SECONDS:g} s"
        return "its copy was killed, and did not end by itself" if copy["exit_status"] is None else None
