"""Damage to the files of a killed process: a truncated tail, flipped bits, garbage at the end.

- ``truncate-tail``: the active file of each data folder loses its end
- ``corrupt``: one to three bits of the active file are flipped
- ``garbage-tail``: up to 4 KiB of garbage are appended to it: random bytes, zeros, or a copy of its last bytes

The process is killed first and started again at the heal, because only a dead process's files may be damaged. The
active file is the last by name in its folder (see :class:`assay.cluster.system.SupportsDataFiles`).

Two rules keep the damage within the promises of systems:

- *A survivor*: at most a minority of the servers is damaged, and no two servers lose data in files of the same path. So
  everything that a majority acknowledged is intact somewhere.
- *The region* (parameter ``region``): ``unflushed``, the default, damages only bytes after those that the system itself
  recorded as durable (``durable_size``), as an unclean stop may. ``file`` damages any byte. Then another contract
  applies. By the broker's contract, a broker with a damaged log never serves it: it hands over its leadership, and
  copies the log from the new leader. If such a run loses data, that is weaker evidence of a bug. A system that does
  not know what is durable has any byte damaged, too.

A process that has just flushed everything has nothing to damage, so the kill waits until there is unflushed data.

Proof: the damaged bytes were read back, and differ from the previous content.
"""

from __future__ import annotations

import asyncio
import enum
import posixpath
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from assay.cluster.node import Cluster, Node
from assay.cluster.system import SupportsDataFiles, System
from assay.nemesis.faults.fault import Census, Impact, Injection, on_each
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.process import draw_target, probe_processes
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, TargetError, TargetKind, count_targeted, servers

UNFLUSHED, FILE = "unflushed", "file"
GARBAGE = 4096
"""Maximum bytes of garbage: a page, because a file system leaves whole pages of earlier content."""
BITS = 3
"""Maximum number of flipped bits."""
POLL_SECONDS = 0.1
"""Seconds between two checks whether there is unflushed data."""
WAIT_SHARE = 0.5
"""Maximum wait for unflushed data, as a share of the fault's duration. Then the process is killed anyway."""
TOO_MANY = (TargetKind.HALF, TargetKind.MAJORITY, TargetKind.ALL)
"""Targets of half of the servers or more."""


class DamageKind(enum.StrEnum):
    TRUNCATE = "truncate-tail"
    CORRUPT = "corrupt"
    GARBAGE = "garbage-tail"


NO_DATA_FILES: Final = (
    "{system} does not say which files hold its data: define its methods data_files and durable_size "
    "(SupportsDataFiles)"
)


class FileDamage(Kill):
    """A kill, and damage while the process is dead."""

    descriptions: Mapping[DamageKind, str] = {
        DamageKind.TRUNCATE: "the process is killed and its newest files lose their ends",
        DamageKind.CORRUPT: "the process is killed and bits of its newest files are flipped",
        DamageKind.GARBAGE: "the process is killed and nonsense is added to its newest files",
    }
    capabilities: Sequence[type] = (SupportsDataFiles,)
    impact = Impact(ends_process=True, damages_files=True)

    def __init__(self, kind: DamageKind) -> None:
        self._kind = kind
        self.name = str(kind)
        self.description = self.descriptions[kind]

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if count_targeted(TargetKind.MINORITY, census.servers) < 1:
            raise ScheduleError(f"{self.name} needs three servers, so that it can damage a minority: set --nodes=3")
        if target is not None and target.kind in TOO_MANY:
            raise ScheduleError(
                f"{self.name} leaves a majority undamaged, so its target cannot be {target}: name fewer servers"
            )
        whom, _ = draw_target(rng, census, target)
        return whom, {"region": UNFLUSHED}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        if not isinstance(system, SupportsDataFiles):
            return NO_DATA_FILES.format(system=system.name)
        count = len(servers(cluster, system))
        if count and count_targeted(TargetKind.MINORITY, count) < 1:
            return (
                f"it needs three servers, so that it can damage a minority, but the cluster has {count}: set --nodes=3"
            )
        return await probe_processes(servers(cluster, system))

    async def inject(self, injection: Injection) -> None:
        system, region = injection.context.system, injection.step.parameters.get("region", UNFLUSHED)
        if not isinstance(system, SupportsDataFiles):
            raise TargetError(NO_DATA_FILES.format(system=system.name))
        if region not in (UNFLUSHED, FILE):
            raise TargetError(f"{self.name}: the parameter region is {region!r}; it must be {UNFLUSHED} or {FILE}")
        count = len(servers(injection.context.cluster, system))
        if len(injection.targets) > count_targeted(TargetKind.MINORITY, count):
            raise TargetError(
                f"{self.name} must leave a majority of the {count} servers undamaged, but its targets are "
                f"{', '.join(injection.names)}: name fewer"
            )
        patience = injection.step.duration * WAIT_SHARE
        while patience > 0 and not any((await self._damageable(injection, system, region)).values()):
            await asyncio.sleep(POLL_SECONDS)
            patience -= POLL_SECONDS
        await super().inject(injection)
        rng = random.Random(injection.seed)
        found = await self._damageable(injection, system, region)
        owners = _assign_files(rng, found)
        for name in injection.names:
            injection.evidence[name]["damageable"] = sum(owner == name for owner in owners.values())

        async def damage(node: Node) -> None:
            done: list[dict[str, Any]] = injection.evidence[node.name].setdefault("damage", [])
            for path in sorted(path for path, owner in owners.items() if owner == node.name):
                low, end = found[node.name][path].low, found[node.name][path].end
                done.append({"path": path, "durable": low, "size": end})
                done[-1] |= await _ACTIONS[self._kind](rng, node, path, low, end)

        await on_each(injection.targets, damage)

    async def _damageable(
        self, injection: Injection, system: SupportsDataFiles, region: Parameter
    ) -> dict[str, dict[str, _Region]]:
        """Returns, by node, the files that can be damaged."""
        found = {}
        for node in injection.targets:
            regions = await _find_active_files(system, node, whole=region == FILE)
            found[node.name] = {
                path: one for path, one in regions.items() if self._kind is DamageKind.GARBAGE or one.size
            }
        return found

    def find_missing_effect(self, injection: Injection) -> str | None:
        seen = {name: injection.evidence[name] for name in injection.names}
        unharmed = [name for name in seen if not any(one.get("changed") for one in seen[name].get("damage", []))]
        if len(unharmed) == len(seen) and not any(one.get("damageable") for one in seen.values()):
            return (
                f"no byte of {', '.join(unharmed)} was changed, because no file had bytes in the region that the "
                "fault may damage"
            )
        # Targets with nothing to damage are only killed, and the evidence says so.
        missed = [name for name in unharmed if seen[name].get("damageable")]
        return f"no byte of {', '.join(missed)} was changed" if missed else None


async def _truncate(rng: random.Random, node: Node, path: str, low: int, end: int) -> dict[str, Any]:
    cut = rng.randrange(low, end)
    await node.truncate_file(path, cut)
    now = (await node.find_files(path)).get(path)
    return {"cut_to": cut, "changed": now == cut}


async def _flip_bits(rng: random.Random, node: Node, path: str, low: int, end: int) -> dict[str, Any]:
    flips: dict[int, int] = {}
    for _ in range(rng.randint(1, BITS)):
        flips.setdefault(rng.randrange(low, end), 1 << rng.randrange(8))
    changed = True
    for position, bit in sorted(flips.items()):
        before = await node.read_range(path, position, 1)
        wanted = bytes([before[0] ^ bit]) if before else b""
        await node.write_range(path, position, wanted)
        changed = changed and bool(before) and await node.read_range(path, position, 1) == wanted
    return {"flipped": [{"byte": position, "bit": bit} for position, bit in sorted(flips.items())], "changed": changed}


async def _add_garbage(rng: random.Random, node: Node, path: str, low: int, end: int) -> dict[str, Any]:
    length = rng.randint(1, GARBAGE)
    kind = rng.choice(["random", "zeros", "stale"])
    nonsense = rng.randbytes(length) if kind == "random" else bytes(length)
    if kind == "stale" and end:
        nonsense = await node.read_range(path, max(0, end - length), length)
    await node.write_range(path, end, nonsense)
    back = await node.read_range(path, end, len(nonsense) + 1)
    return {"added": len(nonsense), "kind": kind, "changed": back == nonsense}


_ACTIONS: Mapping[DamageKind, Callable[[random.Random, Node, str, int, int], Awaitable[dict[str, Any]]]] = {
    DamageKind.TRUNCATE: _truncate,
    DamageKind.CORRUPT: _flip_bits,
    DamageKind.GARBAGE: _add_garbage,
}
"""Functions that damage one file, in its bytes from ``low`` to ``end``, and return what they did."""


@dataclass(frozen=True)
class _Region:
    """The bytes of a file that may be damaged: from ``low`` to its ``end``."""

    low: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.low


async def _find_active_files(system: SupportsDataFiles, node: Node, *, whole: bool) -> dict[str, _Region]:
    """Returns the last file of each folder, with its region.

    A file that the system removes meanwhile is left out, such as that of a replica that moves away.
    """
    files: dict[str, int] = {}
    for pattern in system.data_files(node):
        files |= await node.find_files(pattern)
    newest = {posixpath.dirname(path): path for path in sorted(files)}
    found: dict[str, _Region] = {}
    for path in newest.values():
        with suppress(FileNotFoundError):
            durable = None if whole else await system.durable_size(node, path)
            found[path] = _Region(durable or 0, files[path])
    return found


def _assign_files(rng: random.Random, found: Mapping[str, Mapping[str, _Region]]) -> dict[str, str]:
    """Assigns each path to one node that has it. Nodes take turns, nodes with the fewest files first."""
    owners: dict[str, str] = {}
    names = sorted(found, key=lambda name: (len(found[name]), name))
    left = {name: rng.sample(sorted(found[name]), len(found[name])) for name in names}
    while any(left.values()):
        for name in names:
            path = next((path for path in left[name] if path not in owners), None)
            if path is not None:
                owners[path] = name
            left[name] = [path for path in left[name] if path not in owners]
    return owners
