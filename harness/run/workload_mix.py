"""Workload mixes: operations, settings and client options in addition to a workload's own.

An experiment lists the mixes that it supports (``@experiment(mixes=...)``), and ``--workload-mix`` chooses among them.
``experiment.apply_mixes`` merges an experiment and the chosen mixes into one experiment before anything is started.
Choices that a mix leaves open are drawn from the run's seed.
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
"""Value of the option that draws one to four compatible mixes from the run's seed."""
OWN_WEIGHT: Final = 100
MOST_DRAWN: Final = 4

WeightedSources = Sequence[tuple[int, Source]]


@dataclass(frozen=True)
class WorkloadMix:
    """A workload mix.

    - ``adds``: generators for the main phase, each with its weight; the workload's own operations weigh 100.
    - ``closes``: the generator that follows the last heal, before the workload's own later phases.
    - ``settings``: settings of the system, each with the values that the seed chooses from.
    - ``client``: options in ``Endpoint.options``, each with the values that the seed chooses from.
    - ``system``: returns the system with further changes that the mix needs.
    - ``contract``: returns the contract with additional or fewer promises.
    - ``promised``: False for a mix that provokes anomalies which the system allows. Neither ``random`` nor ``all``
      includes it; a user must name it.
    """

    name: str
    description: str
    adds: Callable[[System, Settings], WeightedSources] = lambda system, settings: ()
    closes: Callable[[System, Settings], Source] = lambda system, settings: None
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    client: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    system: Callable[[System], System] = lambda system: system
    contract: Callable[[Contract, System], Contract] = lambda contract, system: contract
    promised: bool = True


def list_mix_combinations(options: Sequence[str], supported: Sequence[WorkloadMix]) -> tuple[tuple[str, ...], ...]:
    """Returns the combinations that ``--workload-mix`` asks for, each a sorted tuple of names.

    Returns ``((),)`` if the option is not given.
    """
    found: dict[tuple[str, ...], None] = {}
    for option in options or (NONE,):
        words = {word.strip() for word in option.replace("+", ",").split(",")}
        if words == {ALL}:
            found |= dict.fromkeys((one.name,) for one in supported if one.promised) or {(ALL,): None}
        else:
            found[tuple(sorted(words - {NONE, ""}))] = None
    return tuple(sorted(found))


def check_mixes(name: str, names: Sequence[str], supported: Sequence[WorkloadMix]) -> str | None:
    """Returns an error if an experiment of this name cannot use these mixes; else None."""
    known = {one.name: one for one in supported}
    option = "--workload-mix=" + ",".join(names)
    if names == (RANDOM,):
        if any(one.promised for one in supported):
            return None
        remedy = (
            f"choose by name what the system does not promise: {', '.join(known)}" if known else "leave out this option"
        )
        return f"{option}: {name} takes no mixes; {remedy}"
    for word in names:
        if word not in known:
            return f"{option}: {name} does not take the mix {word!r}; it takes: {', '.join(known) or 'none'}"
    for at, word in enumerate(names):
        for other in names[:at]:
            if shared := find_clash(known[word], known[other]):
                return f"{option}: the mixes {other} and {word} both choose {', '.join(shared)}: name only one of them"
    return None


def find_clash(one: WorkloadMix, other: WorkloadMix) -> list[str]:
    """Returns the settings and options that both mixes choose."""
    return sorted((one.settings.keys() & other.settings.keys()) | (one.client.keys() & other.client.keys()))


def format_mix_list(experiments: Mapping[str, Sequence[WorkloadMix]]) -> list[str]:
    """Returns the lines of ``--workload-mix-list``: each mix, and below it the tests that support it."""
    mixes = {one.name: one for supported in experiments.values() for one in supported}
    width = max((len(name) for name in mixes), default=0)
    lines = []
    for name, one in sorted(mixes.items()):
        takers = [test for test, supported in experiments.items() if any(other.name == name for other in supported)]
        remark = "" if one.promised else " (provokes anomalies that the system allows; only used if it is named)"
        lines += [f"{name:<{width}}  {one.description}{remark}", f"{'':<{width}}  {', '.join(takers)}"]
    return lines or ["no test among these takes a mix"]
