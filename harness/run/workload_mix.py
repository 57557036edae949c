"""Workload mixes: operations, settings and client options in addition to a workload's own.

A mix is a value. An experiment lists the mixes that it supports (``@experiment(mixes=...)``), and ``--workload-mix``
chooses among them. :func:`mixed` combines both to one experiment before anything is started, so a run with mixes is
like any other. Choices that a mix leaves open are drawn from the run's seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from assay.checkers.judging.contract import Contract
from assay.cluster.system import System
from assay.harness.core.generator import Source
from assay.harness.run.settings import ALL, NONE, Settings

RANDOM: Final = "random"
"""The name for one to four compatible, promised mixes, drawn from the run's seed."""
OWN_WEIGHT: Final = 100
MOST_DRAWN: Final = 4

Shares = Sequence[tuple[int, Source]]


def _no_shares(system: System, settings: Settings) -> Shares:
    return ()


def _no_source(system: System, settings: Settings) -> Source:
    return None


def _same_contract(contract: Contract, system: System) -> Contract:
    return contract


def _same_system(system: System) -> System:
    return system


@dataclass(frozen=True)
class WorkloadMix:
    """A workload mix.

    - ``adds``: generators for the main phase, each with its weight; the workload's own operations weigh 100.
    - ``closes``: what follows the last heal, before the workload's own later phases.
    - ``settings``: of the system. ``client``: options in ``Endpoint.options``. The seed draws one of the values of
      each.
    - ``system``: returns the system with further changes that the mix needs.
    - ``contract``: returns the contract with additional or fewer promises.
    - ``promised``: False for a mix that uses what the system does not promise, to show that. It must be named: it is
      neither drawn nor one of ``all``.
    """

    name: str
    description: str
    adds: Callable[[System, Settings], Shares] = _no_shares
    closes: Callable[[System, Settings], Source] = _no_source
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    client: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    system: Callable[[System], System] = _same_system
    contract: Callable[[Contract, System], Contract] = _same_contract
    promised: bool = True


def mix_combinations(options: Sequence[str], taken: Sequence[WorkloadMix]) -> tuple[tuple[str, ...], ...]:
    """Returns the runs that ``--workload-mix`` asks for, each a sorted tuple of names; ``((),)`` if it is not given."""
    found: dict[tuple[str, ...], None] = {}
    for option in options or (NONE,):
        words = {word.strip() for word in option.replace("+", ",").split(",")}
        if words == {ALL}:
            found |= dict.fromkeys((one.name,) for one in taken if one.promised) or {(ALL,): None}
        else:
            found[tuple(sorted(words - {NONE, ""}))] = None
    return tuple(sorted(found))


def check_mixes(name: str, names: Sequence[str], taken: Sequence[WorkloadMix]) -> str | None:
    """Returns an error if an experiment of this name cannot use these mixes; else None."""
    known = {one.name: one for one in taken}
    asked = "--workload-mix=" + ",".join(names)
    if names == (RANDOM,):
        if any(one.promised for one in taken):
            return None
        return f"{asked}: {name} takes no mixes" + (f" but what is not promised: {', '.join(known)}" if known else "")
    for word in names:
        if word not in known:
            return f"{asked}: {name} does not take the mix {word!r}; it takes: {', '.join(known) or 'none'}"
    for at, word in enumerate(names):
        for other in names[:at]:
            if shared := find_clash(known[word], known[other]):
                return f"{asked}: {other} and {word} both choose {', '.join(shared)}"
    return None


def find_clash(one: WorkloadMix, other: WorkloadMix) -> list[str]:
    """Returns the settings and options that both mixes choose."""
    return sorted((one.settings.keys() & other.settings.keys()) | (one.client.keys() & other.client.keys()))


def format_mix_list(experiments: Mapping[str, Sequence[WorkloadMix]]) -> list[str]:
    """Returns the lines of ``--workload-mix-list``: each mix, and below it the tests that support it."""
    mixes = {one.name: one for taken in experiments.values() for one in taken}
    width = max((len(name) for name in mixes), default=0)
    lines = []
    for name, one in sorted(mixes.items()):
        takers = [test for test, taken in experiments.items() if any(other.name == name for other in taken)]
        asks = "" if one.promised else " (not promised: by its name alone)"
        lines += [f"{name:<{width}}  {one.description}{asks}", f"{'':<{width}}  {', '.join(takers)}"]
    return lines or ["none of these tests takes a mix"]
