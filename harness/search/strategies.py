"""Hypothesis strategies that draw whole runs of at most ten seconds: new ones, and mutations of the corpus.

- Choices are few and coarse on purpose: times in twentieths of a second, a handful of durations and delays. A failure
  often needs two hits at the same moment, and few choices shrink fast.
- Triggers give exact moments. A step may wait for any event that the logs have shown, and strike at once or
  milliseconds later, on the node of the event. A step whose event never comes is left out.
- Each new example uses only a few faults and events, because many failures need the same fault twice (swarm testing:
  Groce et al., ISSTA 2012).
- Many examples have an aftershock: a second fault while the system still recovers from the first. Rarely used code runs
  at such times (failures during recovery: Gunawi et al., FATE and DESTINI, NSDI 2011).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import msgspec
from hypothesis import strategies as st

from assay.harness.search.example import Example
from assay.nemesis.faults.fault import Census, count_spares
from assay.nemesis.faults.hold import HoldFault
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.stop import Stop
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import CLIENT_KINDS, Target, TargetKind, named_target, parse_node_number
from assay.nemesis.schedule.trigger import OnEvent

TICKS_PER_SECOND: Final = 20
"""Times are multiples of a tick, 1/20 s."""
EARLIEST: Final = 0.5
MARGIN: Final = 0.5
"""Seconds between the last heal and the time limit."""
SHORTEST_RUN: Final = EARLIEST + 1
"""Seconds of the shortest run that has time for a step."""
MOST_STEPS: Final = 6
MOST_MORE_STEPS: Final = 2
"""Maximum number of steps of a new example, besides the first one and an aftershock. Mutations may add more."""
MOST_KINDS: Final = 3
"""Maximum number of kinds of faults, and of kinds of awaited events, in a new example."""
SMALLEST_CLUSTER: Final = 3
"""A system with fewer nodes is no cluster, and gets no further nodes."""
HOLD: Final = HoldFault().name
SERVER_OUTAGES: Final = frozenset({Kill().name, Stop().name, HOLD})
"""Faults that take one server away for a while: most failures of a replicated system need one."""
ONE_SERVER: Final = (TargetKind.ONE, TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.CONTROLLER, TargetKind.NAMED)
"""Targets that can be replaced by the server of an event."""
TIME_LIMITS: Final = (6.0, 8.0, 10.0)
"""Seconds. In a shorter run the system cannot recover, because recovery begins only when a session has expired."""
RATES: Final = (50.0, 100.0, 20.0, 200.0, 50.0)
"""Operations per second. More operations in flight find more, but cost time: two runs at 50 take as long as one at 100.
"""
CLIENTS: Final = (6, 3, 10)
DURATIONS: Final = (0.5, 2.0, 3.0, 0.2, 1.5, 2.0, 1.0, 3.0, 4.0)
"""Seconds, usually enough for the system to notice: a server counts as dead when its session of 1 to 3 s expires."""
LONG_DURATIONS: Final = (2.0, 3.0, 1.5)
"""Seconds that are enough for the system to notice, and fit into an example."""
DELAYS: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2)
"""Seconds from an awaited event to the fault."""
SHORT_DELAYS: Final = (0.005, 0.002, 0.001, 0.01, 0.0)
"""Seconds from an event of the recovery to the aftershock."""
NTH: Final = (1, 1, 1, 2, 3)
"""Which occurrence of an event a step waits for."""
_SELDOM: Final = st.integers(0, 4).map(lambda number: number == 4)
_MOSTLY: Final = st.integers(0, 4).map(lambda number: number != 4)
SEEDS: Final = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class SearchSpace:
    """Space of drawable examples.

    - ``events``: names that a step can wait for
    - ``turning_points``: the events at which another node takes charge
    - ``base``: the example whose values the drawn examples keep or vary
    - ``variants``: the values that each setting of the system may get
    - ``ensemble``: whether the system uses ZooKeeper
    """

    catalogue: FaultCatalogue
    base: Example
    faults: tuple[str, ...]
    keys: tuple[str, ...]
    events: tuple[str, ...] = ()
    turning_points: tuple[str, ...] = ()
    variants: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ensemble: bool = True
    clients: Callable[[int], int] = lambda nodes: 0
    """Returns the number of client nodes, by the number of servers."""
    resizable: bool = True
    """Whether an example may have more servers than ``base``."""
    groups: tuple[str, ...] = ()
    sessions: bool = False
    """Whether the clients have sessions with ZooKeeper."""

    def census(self, nodes: int, zookeepers: int) -> Census:
        spare = count_spares(self.catalogue[name] for name in self.faults)
        return Census(nodes, zookeepers, self.keys, self.clients(nodes), self.groups, self.sessions, spare)


@st.composite
def draw_example(draw: st.DrawFn, space: SearchSpace, corpus: Sequence[Example]) -> Example:
    """Draws a new example, or mutates one of the corpus in one to three ways."""
    if not corpus or draw(st.integers(0, 2)) == 0:
        return make_playable(draw(_new_example(space)), space)
    example = corpus[draw(st.integers(0, len(corpus) - 1))]
    for _ in range(draw(st.integers(1, 3))):
        example = draw(_mutate_example(example, space, corpus))
    return make_playable(example, space)


@st.composite
def _new_example(draw: st.DrawFn, space: SearchSpace) -> Example:
    base = space.base
    more = space.resizable and base.nodes >= SMALLEST_CLUSTER  # two more servers at most
    nodes = base.nodes + 2 if more and draw(_SELDOM) else base.nodes
    zookeepers = 3 if space.ensemble and base.zookeepers < 3 and draw(_SELDOM) else base.zookeepers
    limit = draw(st.sampled_from([limit for limit in TIME_LIMITS if limit <= base.time_limit] or [base.time_limit]))
    example = Example(
        seed=draw(SEEDS),
        schedule=FaultSchedule(0),
        nodes=nodes,
        zookeepers=zookeepers,
        concurrency=draw(st.sampled_from(CLIENTS)),
        rate=draw(st.sampled_from(RATES)),
        time_limit=limit,
        configuration=draw(_draw_configuration(space)),
    )
    narrow = draw(_narrow_space(space))
    # The first step waits for no event, because it must provoke them. It is early, because recovery takes time.
    first = draw(_draw_step(example, replace(narrow, events=())))
    first = msgspec.structs.replace(
        first,
        at=EARLIEST + round((first.at - EARLIEST) * TICKS_PER_SECOND) // 3 / TICKS_PER_SECOND,
        duration=draw(st.sampled_from(LONG_DURATIONS)) if draw(_MOSTLY) else first.duration,
    )
    steps = [first, *draw(st.lists(_draw_step(example, narrow), max_size=MOST_MORE_STEPS))]
    if bool(narrow.events) and draw(_MOSTLY):
        steps.append(draw(_draw_aftershock(draw(st.sampled_from(steps)), example, narrow)))
    return msgspec.structs.replace(example, schedule=FaultSchedule(0, tuple(sorted(steps, key=lambda step: step.at))))


@st.composite
def _narrow_space(draw: st.DrawFn, space: SearchSpace) -> SearchSpace:
    """Returns a space with few faults and few events."""
    fault = st.sampled_from(space.faults)
    if usual := [name for name in space.faults if name in SERVER_OUTAGES]:
        fault = st.one_of(st.sampled_from(usual), fault)
    faults = draw(st.lists(fault, min_size=1, max_size=MOST_KINDS, unique=True))
    events: list[str] = []
    if space.events:
        events = draw(st.lists(_draw_event(space), min_size=1, max_size=MOST_KINDS, unique=True))
    return replace(space, faults=tuple(faults), events=tuple(events))


def _restrict_to_used(example: Example, space: SearchSpace) -> SearchSpace:
    """Returns a space with the faults and awaited events that the example has already."""
    steps = example.schedule.steps
    faults = {step.fault for step in steps} & set(space.faults)
    events = {step.trigger.event for step in steps if isinstance(step.trigger, OnEvent)} & set(space.events)
    return replace(space, faults=tuple(sorted(faults)) or space.faults, events=tuple(sorted(events)) or space.events)


def _draw_event(space: SearchSpace) -> st.SearchStrategy[str]:
    """Draws an event to wait for: usually a turning point, if there are any."""
    points = [event for event in space.events if event in space.turning_points]
    everything = st.sampled_from(space.events)
    return st.one_of(st.sampled_from(points), st.sampled_from(points), everything) if points else everything


@st.composite
def _draw_configuration(draw: st.DrawFn, space: SearchSpace) -> tuple[str, ...]:
    chosen = {word.partition("=")[0]: word for word in space.base.configuration}
    for name, values in space.variants:
        if name not in chosen and draw(_MOSTLY):
            chosen[name] = f"{name}={draw(st.sampled_from(values))}"
    return tuple(chosen.values())


@st.composite
def _draw_step(draw: st.DrawFn, example: Example, space: SearchSpace) -> FaultStep:
    at = (
        draw(st.integers(int(EARLIEST * TICKS_PER_SECOND), int((example.time_limit - 1) * TICKS_PER_SECOND)))
        / TICKS_PER_SECOND
    )
    name = draw(st.sampled_from(space.faults))
    seed = draw(SEEDS)
    # Each fault draws its own parameters, from the seed drawn here.
    target, parameters = space.catalogue[name].draw(Random(seed), space.census(example.nodes, example.zookeepers), None)
    if name == HOLD and bool(space.events) and draw(st.booleans()):
        # By default the fault holds a process at an event of its start. Here it may be an event that a fault provokes.
        parameters = {"event": draw(_draw_event(space))}
    step = FaultStep(at, name, target, draw(st.sampled_from(DURATIONS)), parameters, seed)
    if draw(st.integers(0, 2)) == 0:
        step = msgspec.structs.replace(step, target=draw(_draw_target(example, space, step.target)))
    if bool(space.events) and draw(st.booleans()):
        step = draw(_add_trigger(step, space))
    return step


@st.composite
def _draw_target(draw: st.DrawFn, example: Example, space: SearchSpace, given: Target) -> Target:
    """Draws another server, or the leader or a follower of a key, if the fault targets servers."""
    if given.kind in (
        TargetKind.ZOOKEEPER,
        TargetKind.ZOOKEEPERS,
        *CLIENT_KINDS,
        TargetKind.HALF,
        TargetKind.ALL,
        TargetKind.MINORITY,
        TargetKind.SPARE,
    ):
        return given
    if bool(space.keys) and draw(st.booleans()):
        return Target(
            draw(st.sampled_from([TargetKind.LEADER, TargetKind.FOLLOWER])), key=draw(st.sampled_from(space.keys))
        )
    return named_target(f"n{draw(st.integers(1, example.nodes))}")


@st.composite
def _add_trigger(draw: st.DrawFn, step: FaultStep, space: SearchSpace) -> FaultStep:
    trigger = OnEvent(
        draw(_draw_event(space)),
        nth=draw(st.sampled_from(NTH)),
        delay=draw(st.sampled_from(DELAYS)),
        within=5.0,
        optional=True,
    )
    target = step.target
    if target.kind in ONE_SERVER and draw(st.integers(0, 2)):
        target = Target(TargetKind.ORIGIN)
    return msgspec.structs.replace(step, trigger=trigger, target=target)


@st.composite
def _draw_aftershock(draw: st.DrawFn, first: FaultStep, example: Example, space: SearchSpace) -> FaultStep:
    """Draws a long fault that waits for an event after ``first``. Usually it is the same kind of fault as ``first``.

    It hits the server of the event, or the leader or sometimes a follower of the event's key.
    """
    if first.fault in space.faults and draw(_MOSTLY):
        space = replace(space, faults=(first.fault,))
    again = draw(_draw_step(example, space))
    trigger = OnEvent(draw(_draw_event(space)), delay=draw(st.sampled_from(SHORT_DELAYS)), within=5.0, optional=True)
    kinds = (
        [TargetKind.ORIGIN, TargetKind.LEADER, TargetKind.ORIGIN, TargetKind.LEADER, TargetKind.FOLLOWER]
        if space.keys
        else [TargetKind.ORIGIN]
    )
    if first.fault == HOLD and "event" in first.parameters and draw(_MOSTLY):
        # While the process is held at the event, another node is hit.
        trigger = msgspec.structs.replace(trigger, event=str(first.parameters["event"]))
        kinds = [TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.ONE] if space.keys else [TargetKind.ONE]
    target = Target(draw(st.sampled_from(kinds))) if again.target.kind in ONE_SERVER else again.target
    lasting = draw(st.sampled_from(LONG_DURATIONS))
    return msgspec.structs.replace(again, at=first.at, trigger=trigger, target=target, duration=lasting)


@st.composite
def _mutate_example(draw: st.DrawFn, example: Example, space: SearchSpace, corpus: Sequence[Example]) -> Example:
    steps = list(example.schedule.steps)
    how = draw(st.integers(0, 12))  # from 8 on, an aftershock is added
    place = draw(st.integers(0, len(steps) - 1)) if steps else 0
    change = msgspec.structs.replace
    if how in (1, 3, 8, 9, 10) and draw(st.booleans()):
        space = _restrict_to_used(example, space)
    if how == 0:
        return change(example, seed=draw(SEEDS))
    if how == 1 and len(steps) < MOST_STEPS:
        steps.append(draw(_draw_step(example, space)))
    elif how == 2 and len(steps) > 1:
        del steps[place]
    elif how == 3 and steps:
        steps[place] = draw(_draw_step(example, space))
    elif how == 4 and steps:
        shift = draw(st.integers(-TICKS_PER_SECOND, TICKS_PER_SECOND)) / TICKS_PER_SECOND
        steps[place] = change(steps[place], at=max(EARLIEST, steps[place].at + shift))
    elif how == 5 and steps and space.events:
        steps[place] = draw(_add_trigger(steps[place], space))
    elif how == 6 and steps:
        steps[place] = change(steps[place], target=draw(_draw_target(example, space, steps[place].target)))
    elif how == 7 and steps:
        steps[place] = change(steps[place], duration=draw(st.sampled_from(DURATIONS)))
    elif how >= 8 and steps and space.events and len(steps) < MOST_STEPS:
        steps.append(draw(_draw_aftershock(steps[place], example, space)))
    else:
        other = corpus[draw(st.integers(0, len(corpus) - 1))]
        steps = [*steps, *other.schedule.steps][:MOST_STEPS]
    return change(example, schedule=FaultSchedule(0, tuple(sorted(steps, key=lambda step: step.at))))


def make_playable(example: Example, space: SearchSpace) -> Example:
    """Returns a playable copy: each step ends in time and names existing nodes, and the contract still applies.

    All faults of a run that lose unsynced data (a power loss, damage) hit the same server. Contracts promise only
    that acknowledged records survive if at most one server loses data.
    """
    steps = sorted(
        (fit_step_into_run(step, example, space) for step in example.schedule.steps), key=lambda step: step.at
    )
    return msgspec.structs.replace(example, schedule=FaultSchedule(0, tuple(steps)))


def fit_step_into_run(step: FaultStep, example: Example, space: SearchSpace, earliest: float = 0.0) -> FaultStep:
    """Returns a playable copy of one step, see :func:`make_playable`, that starts at ``earliest`` or later."""
    servers = example.nodes
    if step.target.kind is TargetKind.NAMED and any(parse_node_number(name) > servers for name in step.target.names):
        step = msgspec.structs.replace(step, target=named_target("n1"))
    if space.catalogue[step.fault].impact.loses_data:
        step = msgspec.structs.replace(step, target=named_target(f"n{1 + example.seed % servers}"))
    return _fit_into_time(step, example.time_limit, earliest)


def _fit_into_time(step: FaultStep, limit: float, earliest: float) -> FaultStep:
    last = limit - MARGIN
    at = max(earliest, min(step.at, last - 0.5))
    trigger = step.trigger
    if trigger is None:
        return msgspec.structs.replace(step, at=at, duration=min(step.duration, last - at))
    # The awaited event may be seconds away, for example a session expiry: waiting gets most of the remaining time.
    at = max(earliest, min(at, limit / 2))
    delay = min(trigger.delay, 0.2)
    duration = min(step.duration, (last - at - delay) / 3)
    within = min(trigger.within, last - at - delay - duration)
    return msgspec.structs.replace(
        step, at=at, duration=duration, trigger=msgspec.structs.replace(trigger, delay=delay, within=within)
    )
