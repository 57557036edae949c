"""Every fault by name, and how names are written on the command line.

``partition,kill`` combines faults in one run; its canonical id is ``kill+partition``, sorted, so that test ids are
stable. ``none`` is a run without faults and stands alone. ``all`` means one run per fault.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.cluster.system import Movable, System
from assay.nemesis.clock import Clock
from assay.nemesis.consumer import (
    ConsumerFromCoordinator,
    ConsumerFromZooKeeper,
    CutConsumer,
    KillConsumer,
    StopConsumer,
)
from assay.nemesis.damage import Damage, Way
from assay.nemesis.expire import ZooKeeperExpire
from assay.nemesis.fast_fail import FastFail
from assay.nemesis.fault import Fault
from assay.nemesis.freeze import Freeze
from assay.nemesis.hold import Hold
from assay.nemesis.kill import Kill
from assay.nemesis.move import MoveReplicas
from assay.nemesis.one_way import OneWay
from assay.nemesis.partition import Partition, Shape
from assay.nemesis.power_loss import PowerLoss
from assay.nemesis.restart import Restart, RollingRestart
from assay.nemesis.stop import Stop
from assay.nemesis.zookeeper import ZooKeeperKill, ZooKeeperPause

NONE = "none"
ALL = "all"
SHAPES = frozenset(f"partition-{shape}" for shape in Shape)
"""Left out of ``all``: they are in ``partition``'s mix already."""


class FaultNameError(ValueError):
    """A name that is no fault, or a combination that makes no sense; the message lists what there is."""


@dataclass(frozen=True)
class Combination:
    """The faults of one run, sorted and without repetition; empty for ``none``."""

    names: tuple[str, ...]

    @property
    def id(self) -> str:
        """Stable part of a test id: ``kill+partition``, ``none``."""
        return "+".join(self.names) or NONE

    def __str__(self) -> str:
        return self.id


def catalogue() -> dict[str, Fault]:
    """All faults, sorted by name; a new mapping each time, for whoever wants to add faults of their own."""
    faults: Sequence[Fault] = (
        Clock(),
        ConsumerFromCoordinator(),
        ConsumerFromZooKeeper(),
        CutConsumer(),
        *(Damage(way) for way in Way),
        FastFail(),
        Freeze(),
        Hold(),
        Kill(),
        KillConsumer(),
        MoveReplicas(),
        OneWay(),
        Partition(),
        *(Partition(shape) for shape in Shape),
        PowerLoss(),
        Restart(),
        RollingRestart(),
        Stop(),
        StopConsumer(),
        ZooKeeperExpire(),
        ZooKeeperKill(),
        ZooKeeperPause(),
    )
    return {fault.name: fault for fault in sorted(faults, key=lambda fault: fault.name)}


def descriptions(faults: Mapping[str, Fault]) -> dict[str, str]:
    """Name to one line, ``none`` first, as ``--nemesis-list`` prints them."""
    return {NONE: "no fault at all", **{name: fault.description for name, fault in sorted(faults.items())}}


def parse(text: str, known: Iterable[str] | None = None) -> Combination:
    """One combination: ``partition,kill`` or ``kill+partition`` or ``none``. Raises :class:`FaultNameError`."""
    names = sorted({word.strip() for word in text.replace("+", ",").split(",")})
    known = sorted(catalogue() if known is None else known)
    if names == [NONE]:
        return Combination(())
    if NONE in names:
        raise FaultNameError(f"--nemesis={text}: none stands alone; repeat the option for a run without faults")
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise FaultNameError(f"--nemesis={text}: no fault {name!r}; {hint}there are {', '.join([NONE, *known])}")
    return Combination(tuple(names))


def select(options: Sequence[str], known: Iterable[str] | None = None) -> tuple[Combination, ...]:
    """The runs that the values of a repeated ``--nemesis`` ask for: each once, in the order asked for."""
    wanted: dict[Combination, None] = {}
    known = list(catalogue() if known is None else known)
    for text in options:
        everyone = [name for name in known if name not in SHAPES]
        combinations = [Combination((name,)) for name in everyone] if text == ALL else [parse(text, known)]
        wanted.update(dict.fromkeys(combinations))
    return tuple(wanted)


def lacking(fault: Fault, roles: Iterable[str]) -> list[str]:
    """The roles that a fault needs and a system with these roles lacks; empty when it has them all."""
    present = set(roles)
    return [role for role in fault.roles if role not in present]


def unsuited(fault: Fault, system: System) -> str | None:
    """Why a fault can never be injected into this system, wherever it runs, or None."""
    missing = lacking(fault, system.roles)
    if missing:
        return f"needs a node of role {', '.join(missing)}, which {system.name} has not"
    without = [capability.__name__ for capability in fault.capabilities if not isinstance(system, capability)]
    if without:
        return f"needs a system that is {', '.join(without)} (cluster/system.py), which {system.name} is not"
    if Movable in fault.capabilities and not system.keys():
        return f"needs a system with keys, which {system.name} has not"
    return None
