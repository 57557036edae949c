"""What Hypothesis draws: whole runs of at most ten seconds, new ones and changes of those that reached something new.

Choices are few and coarse on purpose (times in twentieths of a second, a handful of durations and delays): the same
moment must be hit twice for a failure to be found, and what is drawn from few is made small quickly. Exact moments come
from triggers: a step may wait for any event that the system's logs have been seen to speak of, and act at once or
some milliseconds later, on the node where it appeared. One that waits in vain is left out.

Each new example keeps to a few faults and a few events: one that uses a little of everything hardly ever does the same
thing twice, which is what many failures need (swarm testing: Groce et al., ISSTA 2012). And many have an aftershock:
the next fault while the system still recovers from the last, which is where its rarely used code runs (failures
during recovery: Gunawi et al., FATE and DESTINI, NSDI 2011).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import msgspec
from hypothesis import strategies as st

from assay.harness.search.example import Example
from assay.nemesis.faults.fault import Census, spares
from assay.nemesis.faults.hold import Hold
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.stop import Stop
from assay.nemesis.schedule.catalogue import Catalogue
from assay.nemesis.schedule.schedule import Schedule, Step
from assay.nemesis.schedule.target import OF_CLIENTS, Kind, Target, named, number
from assay.nemesis.schedule.trigger import OnEvent

GRID: Final = 20
"""Times are multiples of 1/20 s."""
EARLIEST: Final = 0.5
MARGIN: Final = 0.5
"""Seconds between the last heal and the time limit."""
LEAST: Final = EARLIEST + 1
"""Seconds of the shortest run in which a step can be drawn."""
MOST_STEPS: Final = 6
MOST_FURTHER: Final = 2
"""Steps besides the first and its aftershock, in a new example: changes add more."""
MOST_KINDS: Final = 3
"""Of faults, and of events to wait for, in a new example."""
CLUSTERED: Final = 3
HOLD: Final = Hold().name
MAINSTAYS: Final = frozenset({Kill().name, Stop().name, HOLD})
"""What takes one server away for a while: hardly any failure of a replicated system does without it."""
ONE_SERVER: Final = (Kind.ONE, Kind.LEADER, Kind.FOLLOWER, Kind.CONTROLLER, Kind.NAMED)
"""Targets that can as well be the server on which an event appeared."""
TIME_LIMITS: Final = (6.0, 8.0, 10.0)
"""Seconds; less shows no recovery, which begins when a session of some seconds has expired."""
RATES: Final = (50.0, 100.0, 20.0, 200.0, 50.0)
"""Operations a second. Much of what goes wrong goes wrong with what is under way at that moment; but a run costs what
its operations cost, and there are two of 50 in the time of one of 100.
"""
CLIENTS: Final = (6, 3, 10)
DURATIONS: Final = (0.5, 2.0, 3.0, 0.2, 1.5, 2.0, 1.0, 3.0, 4.0)
"""Mostly long enough to be noticed: a server is taken for dead when its session of a second or three has expired."""
LASTING: Final = (2.0, 3.0, 1.5)
"""What surely is, within what an example has time for."""
DELAYS: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2)
SOON: Final = (0.005, 0.002, 0.001, 0.01, 0.0)
"""Seconds from what recovery does to the aftershock."""
NTH: Final = (1, 1, 1, 2, 3)
_SELDOM: Final = st.integers(0, 4).map(lambda number: number == 4)
_MOSTLY: Final = st.integers(0, 4).map(lambda number: number != 4)
SEEDS: Final = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Terrain:
    """What may be drawn. ``events``: names that a step can wait for; ``turning_points``: those in which the system says
    that another node is in charge; ``base``: what is not varied, or varied from.
    """

    catalogue: Catalogue
    base: Example
    faults: tuple[str, ...]
    keys: tuple[str, ...]
    events: tuple[str, ...] = ()
    turning_points: tuple[str, ...] = ()
    variants: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ensemble: bool = True
    clients: Callable[[int], int] = lambda nodes: 0
    """How many nodes clients live on, by the number of the servers."""
    resizable: bool = True
    """Can the servers be more than ``base`` has?"""
    groups: tuple[str, ...] = ()
    sessions: bool = False

    def census(self, nodes: int, zookeepers: int) -> Census:
        spare = spares(self.catalogue[name] for name in self.faults)
        return Census(nodes, zookeepers, self.keys, self.clients(nodes), self.groups, self.sessions, spare)


@st.composite
def examples(draw: st.DrawFn, terrain: Terrain, corpus: Sequence[Example]) -> Example:
    """A new example, or one of the corpus changed in one to three ways."""
    if not corpus or draw(st.integers(0, 2)) == 0:
        return tidy(draw(_fresh(terrain)), terrain)
    example = corpus[draw(st.integers(0, len(corpus) - 1))]
    for _ in range(draw(st.integers(1, 3))):
        example = draw(_changed(example, terrain, corpus))
    return tidy(example, terrain)


@st.composite
def _fresh(draw: st.DrawFn, terrain: Terrain) -> Example:
    base = terrain.base
    # What was asked for, or two more; a system of one node is not one of several.
    more = terrain.resizable and base.nodes >= CLUSTERED
    nodes = base.nodes + 2 if more and draw(_SELDOM) else base.nodes
    zookeepers = 3 if terrain.ensemble and base.zookeepers < 3 and draw(_SELDOM) else base.zookeepers
    limit = draw(st.sampled_from([limit for limit in TIME_LIMITS if limit <= base.time_limit] or [base.time_limit]))
    example = Example(
        seed=draw(SEEDS),
        schedule=Schedule(0),
        nodes=nodes,
        zookeepers=zookeepers,
        concurrency=draw(st.sampled_from(CLIENTS)),
        rate=draw(st.sampled_from(RATES)),
        time_limit=limit,
        configuration=draw(_configuration(terrain)),
    )
    narrow = draw(_narrowed(terrain))
    # The first waits for nothing: events are what something has provoked. It is early, for recovery takes its time.
    first = draw(_step(example, replace(narrow, events=())))
    first = msgspec.structs.replace(
        first,
        at=EARLIEST + round((first.at - EARLIEST) * GRID) // 3 / GRID,
        duration=draw(st.sampled_from(LASTING)) if draw(_MOSTLY) else first.duration,
    )
    steps = [first, *draw(st.lists(_step(example, narrow), max_size=MOST_FURTHER))]
    if bool(narrow.events) and draw(_MOSTLY):
        steps.append(draw(_aftershock(draw(st.sampled_from(steps)), example, narrow)))
    return msgspec.structs.replace(example, schedule=Schedule(0, tuple(sorted(steps, key=lambda step: step.at))))


@st.composite
def _narrowed(draw: st.DrawFn, terrain: Terrain) -> Terrain:
    """The same with few faults and few events."""
    fault = st.sampled_from(terrain.faults)
    if usual := [name for name in terrain.faults if name in MAINSTAYS]:
        fault = st.one_of(st.sampled_from(usual), fault)
    faults = draw(st.lists(fault, min_size=1, max_size=MOST_KINDS, unique=True))
    events: list[str] = []
    if terrain.events:
        events = draw(st.lists(_event(terrain), min_size=1, max_size=MOST_KINDS, unique=True))
    return replace(terrain, faults=tuple(faults), events=tuple(events))


def _kin(example: Example, terrain: Terrain) -> Terrain:
    """The same with the faults that the example has already, and the events that it waits for."""
    steps = example.schedule.steps
    faults = {step.fault for step in steps} & set(terrain.faults)
    events = {step.trigger.event for step in steps if isinstance(step.trigger, OnEvent)} & set(terrain.events)
    return replace(
        terrain, faults=tuple(sorted(faults)) or terrain.faults, events=tuple(sorted(events)) or terrain.events
    )


def _event(terrain: Terrain) -> st.SearchStrategy[str]:
    """What to wait for: mostly a turning point, where those are known."""
    points = [event for event in terrain.events if event in terrain.turning_points]
    everything = st.sampled_from(terrain.events)
    return st.one_of(st.sampled_from(points), st.sampled_from(points), everything) if points else everything


@st.composite
def _configuration(draw: st.DrawFn, terrain: Terrain) -> tuple[str, ...]:
    chosen = {word.partition("=")[0]: word for word in terrain.base.configuration}
    for name, values in terrain.variants:
        if name not in chosen and draw(_MOSTLY):
            chosen[name] = f"{name}={draw(st.sampled_from(values))}"
    return tuple(chosen.values())


@st.composite
def _step(draw: st.DrawFn, example: Example, terrain: Terrain) -> Step:
    at = draw(st.integers(int(EARLIEST * GRID), int((example.time_limit - 1) * GRID))) / GRID
    name = draw(st.sampled_from(terrain.faults))
    seed = draw(SEEDS)
    # What a fault draws is its own business; its seed is ours.
    target, parameters = terrain.catalogue[name].draw(
        Random(seed), terrain.census(example.nodes, example.zookeepers), None
    )
    if name == HOLD and bool(terrain.events) and draw(st.booleans()):
        # In the middle of what else provokes it, and not only at a start.
        parameters = {"event": draw(_event(terrain))}
    step = Step(at, name, target, draw(st.sampled_from(DURATIONS)), parameters, seed)
    if draw(st.integers(0, 2)) == 0:
        step = msgspec.structs.replace(step, target=draw(_target(example, terrain, step.target)))
    if bool(terrain.events) and draw(st.booleans()):
        step = draw(_triggered(step, terrain))
    return step


@st.composite
def _target(draw: st.DrawFn, example: Example, terrain: Terrain, given: Target) -> Target:
    """Another server, or the leader of some key, where the fault is one of servers."""
    if given.kind in (Kind.ZOOKEEPER, Kind.ZOOKEEPERS, *OF_CLIENTS, Kind.HALF, Kind.ALL, Kind.MINORITY, Kind.SPARE):
        return given
    if bool(terrain.keys) and draw(st.booleans()):
        return Target(draw(st.sampled_from([Kind.LEADER, Kind.FOLLOWER])), key=draw(st.sampled_from(terrain.keys)))
    return named(f"n{draw(st.integers(1, example.nodes))}")


@st.composite
def _triggered(draw: st.DrawFn, step: Step, terrain: Terrain) -> Step:
    trigger = OnEvent(
        draw(_event(terrain)),
        nth=draw(st.sampled_from(NTH)),
        delay=draw(st.sampled_from(DELAYS)),
        within=5.0,
        optional=True,
    )
    target = step.target
    if target.kind in ONE_SERVER and draw(st.integers(0, 2)):
        target = Target(Kind.ORIGIN)
    return msgspec.structs.replace(step, trigger=trigger, target=target)


@st.composite
def _aftershock(draw: st.DrawFn, first: Step, example: Example, terrain: Terrain) -> Step:
    """Right after this step, and lasting: on the next event of some kind the server where it appeared, or the leader,
    now and then a follower, of what it is about; mostly with the same fault.
    """
    if first.fault in terrain.faults and draw(_MOSTLY):
        terrain = replace(terrain, faults=(first.fault,))
    again = draw(_step(example, terrain))
    trigger = OnEvent(draw(_event(terrain)), delay=draw(st.sampled_from(SOON)), within=5.0, optional=True)
    kinds = [Kind.ORIGIN, Kind.LEADER, Kind.ORIGIN, Kind.LEADER, Kind.FOLLOWER] if terrain.keys else [Kind.ORIGIN]
    if first.fault == HOLD and "event" in first.parameters and draw(_MOSTLY):
        # While the process stands there, and on someone else.
        trigger = msgspec.structs.replace(trigger, event=str(first.parameters["event"]))
        kinds = [Kind.LEADER, Kind.FOLLOWER, Kind.ONE] if terrain.keys else [Kind.ONE]
    target = Target(draw(st.sampled_from(kinds))) if again.target.kind in ONE_SERVER else again.target
    lasting = draw(st.sampled_from(LASTING))
    return msgspec.structs.replace(again, at=first.at, trigger=trigger, target=target, duration=lasting)


@st.composite
def _changed(draw: st.DrawFn, example: Example, terrain: Terrain, corpus: Sequence[Example]) -> Example:
    steps = list(example.schedule.steps)
    how = draw(st.integers(0, 12))
    place = draw(st.integers(0, len(steps) - 1)) if steps else 0
    change = msgspec.structs.replace
    if how in (1, 3, 8, 9, 10) and draw(st.booleans()):
        terrain = _kin(example, terrain)
    if how == 0:
        return change(example, seed=draw(SEEDS))
    if how == 1 and len(steps) < MOST_STEPS:
        steps.append(draw(_step(example, terrain)))
    elif how == 2 and len(steps) > 1:
        del steps[place]
    elif how == 3 and steps:
        steps[place] = draw(_step(example, terrain))
    elif how == 4 and steps:
        shift = draw(st.integers(-GRID, GRID)) / GRID
        steps[place] = change(steps[place], at=max(EARLIEST, steps[place].at + shift))
    elif how == 5 and steps and terrain.events:
        steps[place] = draw(_triggered(steps[place], terrain))
    elif how == 6 and steps:
        steps[place] = change(steps[place], target=draw(_target(example, terrain, steps[place].target)))
    elif how == 7 and steps:
        steps[place] = change(steps[place], duration=draw(st.sampled_from(DURATIONS)))
    elif how >= 8 and steps and terrain.events and len(steps) < MOST_STEPS:
        steps.append(draw(_aftershock(steps[place], example, terrain)))
    else:
        other = corpus[draw(st.integers(0, len(corpus) - 1))]
        steps = [*steps, *other.schedule.steps][:MOST_STEPS]
    return change(example, schedule=Schedule(0, tuple(sorted(steps, key=lambda step: step.at))))


def tidy(example: Example, terrain: Terrain) -> Example:
    """The same, such that it can be played: every step ends in time, names a node that exists, and the contract holds.

    What loses data that were not on disk yet (a power loss, damage) hits one and the same server all through the run:
    of what a majority acknowledged something is left elsewhere. More than that no such system promises.
    """
    steps = sorted((tidied(step, example, terrain) for step in example.schedule.steps), key=lambda step: step.at)
    return msgspec.structs.replace(example, schedule=Schedule(0, tuple(steps)))


def tidied(step: Step, example: Example, terrain: Terrain, earliest: float = 0.0) -> Step:
    """One step of it, likewise. ``earliest``: it is not known before that."""
    servers = example.nodes
    if step.target.kind is Kind.NAMED and any(number(name) > servers for name in step.target.names):
        step = msgspec.structs.replace(step, target=named("n1"))
    if terrain.catalogue[step.fault].impact.loses_data:
        step = msgspec.structs.replace(step, target=named(f"n{1 + example.seed % servers}"))
    return _in_time(step, example.time_limit, earliest)


def _in_time(step: Step, limit: float, earliest: float) -> Step:
    last = limit - MARGIN
    at = max(earliest, min(step.at, last - 0.5))
    trigger = step.trigger
    if trigger is None:
        return msgspec.structs.replace(step, at=at, duration=min(step.duration, last - at))
    # What it waits for may be seconds away, when servers notice that another is gone: most of what is left is for that.
    at = max(earliest, min(at, limit / 2))
    delay = min(trigger.delay, 0.2)
    duration = min(step.duration, (last - at - delay) / 3)
    within = min(trigger.within, last - at - delay - duration)
    return msgspec.structs.replace(
        step, at=at, duration=duration, trigger=msgspec.structs.replace(trigger, delay=delay, within=within)
    )
