"""Mixes: what a workload does in addition to its own traffic, to other settings, with clients of other habits.

A mix is a value. An experiment lists those that it can take on (``@experiment(mixes=...)``), ``--workload-mix`` chooses
among them, and :func:`mixed` makes one experiment of the two before anything is started: from there on a run with
mixes is a run like any other. What a mix leaves open is drawn from the run's seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from assay.checkers.judging.contract import Contract
from assay.cluster.system import SupportsSettings, System
from assay.harness.core.generator import Generator, Source, as_generator, mix, split_phases
from assay.harness.run.settings import ALL, NONE, Settings, SettingsError, derive

if TYPE_CHECKING:
    from assay.harness.run.experiment import Experiment

RANDOM: Final = "random"
"""As a choice: one to four mixes that go together and are promised, drawn from the run's seed."""
OWN_WEIGHT: Final = 100
MOST_DRAWN: Final = 4

Shares = Sequence[tuple[int, Source]]


def _nothing(system: System, settings: Settings) -> Shares:
    return ()


def _none(system: System, settings: Settings) -> Source:
    return None


def _same(contract: Contract, system: System) -> Contract:
    return contract


def _as_it_is(system: System) -> System:
    return system


@dataclass(frozen=True)
class WorkloadMix:
    """``adds``: generators for the main phase, each with its weight, where all of the workload's own weighs 100.
    ``closes``: what follows the last heal, before the workload's own later phases. ``settings`` of the system, and
    ``client``, options that its clients find in ``Endpoint.options``: values of which the seed draws one.
    ``system`` returns the system with what else the mix needs of it, ``contract`` the contract with what else is
    promised, or no longer. ``promised``: False of one that asks for what the system does not promise, to show that; it
    is there by its name alone, neither drawn nor one of ``all``.
    """

    name: str
    description: str
    adds: Callable[[System, Settings], Shares] = _nothing
    closes: Callable[[System, Settings], Source] = _none
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    client: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    system: Callable[[System], System] = _as_it_is
    contract: Callable[[Contract, System], Contract] = _same
    promised: bool = True


def combinations(options: Sequence[str], taken: Sequence[WorkloadMix]) -> tuple[tuple[str, ...], ...]:
    """The runs that ``--workload-mix`` asks for, each a sorted tuple of names; ``((),)`` when not given."""
    found: dict[tuple[str, ...], None] = {}
    for option in options or (NONE,):
        words = {word.strip() for word in option.replace("+", ",").split(",")}
        if words == {ALL}:
            found |= dict.fromkeys((one.name,) for one in taken if one.promised) or {(ALL,): None}
        else:
            found[tuple(sorted(words - {NONE, ""}))] = None
    return tuple(sorted(found))


def unfit(name: str, names: Sequence[str], taken: Sequence[WorkloadMix]) -> str | None:
    """Why an experiment of this name cannot take these mixes on; None when it can."""
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
            if shared := _clash(known[word], known[other]):
                return f"{asked}: {other} and {word} both choose {', '.join(shared)}"
    return None


def resolved(experiment: Experiment, settings: Settings) -> Settings:
    """The settings with the mixes that ``random`` stands for, if it does."""
    if settings.workload_mix != (RANDOM,):
        return settings
    chance = Random(derive(settings.seed, "workload-mix"))
    wanted = 1 + chance.randrange(MOST_DRAWN)
    drawn: list[WorkloadMix] = []
    promised = [one for one in experiment.mixes if one.promised]
    for one in chance.sample(promised, len(promised)):
        if len(drawn) < wanted and not any(_clash(one, other) for other in drawn):
            drawn.append(one)
    return replace(settings, workload_mix=tuple(sorted(one.name for one in drawn)))


def mixed(experiment: Experiment, settings: Settings) -> Experiment:
    """The experiment with the mixes that these settings name. Raises ``SettingsError`` for one that does not fit."""
    names = resolved(experiment, settings).workload_mix
    reason = unfit(experiment.name, names, experiment.mixes)
    if reason is not None:
        raise SettingsError(reason)
    chosen = [one for one in experiment.mixes if one.name in names]
    if not chosen:
        return experiment
    system, contract, options = experiment.system, experiment.contract, dict(experiment.client_options)
    for one in chosen:
        chance = Random(derive(settings.seed, "workload-mix", one.name))
        for name, values in one.settings.items():
            system = _set(system, one, name, chance.choice(values))
        system = one.system(system)
        options |= {name: chance.choice(values) for name, values in one.client.items()}
    for one in chosen:
        contract = one.contract(contract, system)

    def body(settings: Settings) -> Generator:
        main, *later = split_phases(experiment.generator(settings))
        shares = [share for one in chosen for share in one.adds(system, settings)]
        weights = [OWN_WEIGHT, *(weight for weight, _ in shares)]
        generator = mix(main, *(source for _, source in shares), weights=weights) if shares else main
        for one in chosen:
            closing = one.closes(system, settings)
            if closing is not None:
                generator = generator.then(as_generator(closing))
        for phase in later:
            generator = generator.then(phase)
        return generator

    return replace(experiment, system=system, contract=contract, body=body, client_options=options, mixes=())


def _set(system: System, one: WorkloadMix, name: str, value: str) -> System:
    if not isinstance(system, SupportsSettings):
        raise SettingsError(f"the mix {one.name} sets {name}, and {system.name} has no settings to be set here")
    try:
        return system.with_setting(name, value)
    except ValueError as error:
        raise SettingsError(f"the mix {one.name}: {error}") from None


def _clash(one: WorkloadMix, other: WorkloadMix) -> list[str]:
    """What both of them choose."""
    return sorted((one.settings.keys() & other.settings.keys()) | (one.client.keys() & other.client.keys()))


def listing(experiments: Mapping[str, Sequence[WorkloadMix]]) -> list[str]:
    """What ``--workload-mix-list`` prints: each mix in a line, and below it the tests that take it."""
    mixes = {one.name: one for taken in experiments.values() for one in taken}
    width = max((len(name) for name in mixes), default=0)
    lines = []
    for name, one in sorted(mixes.items()):
        takers = [test for test, taken in experiments.items() if any(other.name == name for other in taken)]
        asks = "" if one.promised else " (not promised: by its name alone)"
        lines += [f"{name:<{width}}  {one.description}{asks}", f"{'':<{width}}  {', '.join(takers)}"]
    return lines or ["none of these tests takes a mix"]
