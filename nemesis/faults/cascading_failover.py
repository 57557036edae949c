"""Cascading failover: faults strike the leader of a key, then its successor, and so on, several times in a row.

After a failover some work takes seconds. Followers learn where the new leader epoch begins, truncate
records that only they have, and rejoin. A second failover in these seconds interrupts this work. In the histories of
KIP-101 and KIP-279 acknowledged records were lost after two failovers, never after one. Raft's figure 8 is another
example.

- Each strike begins soon after the previous server is back. Two strikes overlap by at most ``OVERLAP`` seconds, so that
  a majority is up nearly all the time.
- The first strike may hit a follower. The follower then returns while its leader is being replaced.
- The last strike may wait for an event of the recovery (a new leader, a rejoined replica), and act within milliseconds.
"""

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from assay.nemesis.faults.fault import Census
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.stop import Freeze, Stop
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import FaultStep
from assay.nemesis.schedule.target import Target, TargetKind
from assay.nemesis.schedule.trigger import OnEvent

STRIKES: Final = (Kill.name, Kill.name, Stop.name, Freeze.name)
"""Faults that strikes are drawn from. Each takes one server away from all others.

Faults that cut links are excluded, because a strike may begin or be healed while the previous one is active. The rules
of a frozen machine cannot be changed then.
"""
STRIKE_COUNTS: Final = (2, 4)
"""Minimum and maximum number of strikes before the one that waits for an event."""
SHORT_SECONDS: Final = (0.4, 1.5)
"""Range of short strikes: the server may be back before its session expires."""
LONG_SECONDS: Final = (1.5, 3.5)
"""Range of long strikes: a successor has time to take over."""
OVERLAP: Final = 0.3
"""Maximum seconds from the next strike's begin to a server's return."""
PAUSE: Final = 0.15
"""Maximum seconds from a server's return to the next strike."""
EVENT_DELAYS: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.03)
"""Seconds from an event to the strike that waits for it."""
EVENT_TIMEOUT: Final = 2.5
"""Seconds that the last strike waits for its event."""


def draw_cascading_failover(
    rng: random.Random,
    faults: Sequence[str],
    catalogue: FaultCatalogue,
    census: Census,
    at: float,
    end: float,
    events: Sequence[str] = (),
) -> list[FaultStep]:
    """Returns steps from ``at`` that are healed before ``end`` (seconds); none if no key has a leader or time is short.

    ``faults``: the faults that system and cluster support. ``events``: the events that the last strike may wait for.
    """
    strikes = [name for name in STRIKES if name in faults]
    if not strikes or not census.keys or census.servers < 3:
        return []
    key, usual = rng.choice(census.keys), rng.choice(strikes)

    def step(at: float, duration: float, kind: TargetKind) -> FaultStep:
        name = usual if rng.random() < 0.7 else rng.choice(strikes)
        target, parameters = catalogue[name].draw(rng, census, Target(kind, key=key))
        return FaultStep(round(at, 3), name, target, round(duration, 3), parameters, rng.getrandbits(32))

    steps: list[FaultStep] = []
    for number in range(rng.randint(*STRIKE_COUNTS)):
        duration = rng.uniform(*rng.choice((SHORT_SECONDS, LONG_SECONDS)))
        if at + duration > end:
            break
        steps.append(
            step(at, duration, TargetKind.FOLLOWER if number == 0 and rng.random() < 0.4 else TargetKind.LEADER)
        )
        at += duration + rng.uniform(-OVERLAP, PAUSE)
    if steps and events and rng.random() < 0.6:
        steps += _draw_waiting_strike(
            rng, step(0.0, rng.uniform(*SHORT_SECONDS), TargetKind.LEADER), steps[-1], events, end
        )
    return steps


def _draw_waiting_strike(
    rng: random.Random, strike: FaultStep, last: FaultStep, events: Sequence[str], end: float
) -> list[FaultStep]:
    """Returns a strike that waits for an event; none if time is short.

    The wait begins just after the begin of the strike ``last``, or just before its heal.
    """
    at = round(last.at + rng.choice((0.05, last.duration - 0.1)), 3)
    trigger = OnEvent(rng.choice(events), delay=rng.choice(EVENT_DELAYS), within=EVENT_TIMEOUT, optional=True)
    target = rng.choice((strike.target, Target(TargetKind.ORIGIN)))  # the leader, or the node that logs the event
    waiting = msgspec.structs.replace(strike, at=at, trigger=trigger, target=target)
    return [waiting] if waiting.until <= end else []
