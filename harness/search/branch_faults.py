"""Draws the faults of a branch: usually one or two, at the fork point or at an event soon after.

A branch begins where new behaviour was observed. Its faults resemble the aftershocks of ``strategies``: faults that
strike while the system recovers from another one. They come within milliseconds, hit the node of the event or a leader,
and last.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from assay.harness.search.example import Example
from assay.harness.search.fork_server import ForkPoint
from assay.harness.search.strategies import (
    DURATIONS,
    LONG_DURATIONS,
    MARGIN,
    ONE_SERVER,
    SERVER_OUTAGES,
    SHORT_DELAYS,
    TICKS_PER_SECOND,
    SearchSpace,
    fit_step_into_run,
)
from assay.nemesis.schedule.schedule import FaultStep
from assay.nemesis.schedule.target import Target, TargetKind, named_target
from assay.nemesis.schedule.trigger import OnEvent

SHARE_WITHOUT_FAULTS: Final = 0.1
"""Share of the branches without further faults: they differ from the run only in their random numbers."""
FAULT_COUNTS: Final = (1, 1, 2)
"""Possible numbers of faults. With many faults at once no operation succeeds, and the run shows nothing."""
SHARE_REPEATED: Final = 0.2
"""Share of the faults that repeat a kind of fault of the run."""
SHARE_OUTAGES: Final = 0.6
"""Share of the other faults that are outages of one server (``SERVER_OUTAGES``)."""
SHARE_TRIGGERED: Final = 0.5
"""Share of the faults that wait for an event."""
SHARE_TURNING_POINTS: Final = 0.7
"""Share of the awaited events that are turning points, if any are known."""
SHARE_LONG: Final = 0.7
"""Share of the faults that last long enough for the system to notice."""
DELAYS: Final = (0.0, *SHORT_DELAYS, 0.05, 0.2)
"""Seconds from the fork point to a fault that does not wait for an event."""


def draw_branch_steps(rng: Random, fork_point: ForkPoint, space: SearchSpace) -> Sequence[FaultStep]:
    """Draws the faults of a branch, in the order of their times. Each of them ends before the run's main phase ends."""
    example, at = fork_point.example, fork_point.at
    # No fault fits in if the main phase is nearly over.
    if rng.random() < SHARE_WITHOUT_FAULTS or example.time_limit - MARGIN - at < 2 / TICKS_PER_SECOND:
        return ()
    steps = [_draw_step(rng, fork_point, space) for _ in range(rng.choice(FAULT_COUNTS))]
    return sorted((fit_step_into_run(step, example, space, at) for step in steps), key=lambda step: step.at)


def _draw_step(rng: Random, fork_point: ForkPoint, space: SearchSpace) -> FaultStep:
    name = _draw_fault(rng, fork_point.example, space)
    seed = rng.getrandbits(32)
    census = space.census(fork_point.example.nodes, fork_point.example.zookeepers)
    drawn, parameters = space.catalogue[name].draw(Random(seed), census, None)
    duration = rng.choice(LONG_DURATIONS if rng.random() < SHARE_LONG else DURATIONS)
    if not space.events or rng.random() >= SHARE_TRIGGERED:
        key = fork_point.key if fork_point.key in space.keys else None
        target = _draw_target(rng, drawn, _find_event_server(fork_point) or drawn, space, key)
        return FaultStep(fork_point.at + rng.choice(DELAYS), name, target, duration, parameters, seed)
    target = _draw_target(rng, drawn, Target(TargetKind.ORIGIN), space)  # the node of the event that the step waits for
    trigger = OnEvent(_draw_event(rng, space), delay=rng.choice(SHORT_DELAYS), within=5.0, optional=True)
    step = FaultStep(fork_point.at, name, target, duration, parameters, seed)
    return msgspec.structs.replace(step, trigger=trigger)


def _draw_fault(rng: Random, example: Example, space: SearchSpace) -> str:
    repeated = sorted({step.fault for step in example.schedule.all_steps} & set(space.faults))
    if repeated and rng.random() < SHARE_REPEATED:
        return rng.choice(repeated)
    usual = [name for name in space.faults if name in SERVER_OUTAGES]
    return rng.choice(usual if usual and rng.random() < SHARE_OUTAGES else space.faults)


def _draw_target(
    rng: Random, drawn: Target, event_target: Target, space: SearchSpace, key: str | None = None
) -> Target:
    """Draws another target for a fault of one server: ``event_target``, or a leader or sometimes a follower.

    ``key``: the key of that leader or follower, if given.
    """
    if drawn.kind not in ONE_SERVER:
        return drawn
    key_targets = (Target(TargetKind.LEADER, key), Target(TargetKind.LEADER, key), Target(TargetKind.FOLLOWER, key))
    return rng.choice([event_target, event_target, *key_targets] if space.keys else [event_target])


def _find_event_server(fork_point: ForkPoint) -> Target | None:
    """Returns the server on which the fork point's event occurred, or None if it was no server."""
    servers = {f"n{number}" for number in range(1, fork_point.example.nodes + 1)}
    return named_target(fork_point.node) if fork_point.node in servers else None


def _draw_event(rng: Random, space: SearchSpace) -> str:
    points = [event for event in space.events if event in space.turning_points]
    return rng.choice(points if points and rng.random() < SHARE_TURNING_POINTS else space.events)
