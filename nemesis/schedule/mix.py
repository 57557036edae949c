"""The mix: faults of every kind by weight, overlapping on purpose, as one schedule from a seed.

A run keeps to a few kinds of faults (swarm testing: Groce et al., ISSTA 2012), drawn by their weights. It goes in
episodes, with calm between them. An episode begins with one fault; others begin while it is in force, of other kinds:
those that take a server away fall on the same one, so that a majority is left in peace, and what only disturbs (one
connection, slow fsyncs, a clock, a consumer) falls anywhere. Two kinds are never alone: a controller's connection has a
server killed and started meanwhile, else nothing would be said on it; and a hold at an event that this run has seen has
another fault once the process stands.

Now and then an episode is a relay instead: leaders struck one after the other
(:mod:`assay.nemesis.faults.cascading_failover`); or one server is gone for so long that no one may still wait for it.

What loses data that were not on disk yet hits one and the same server all through a run: more than a minority's disks
no replicated log promises to do without. Where the contract expects it (``may_stall``), it now and then hits all, or
all go down in turn, and the last of them may lose its power (:mod:`assay.nemesis.faults.rolling_outage`).

Same arguments, same schedule.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE
from assay.nemesis.faults.cascading_failover import relay
from assay.nemesis.faults.connection import Line
from assay.nemesis.faults.consumer import ConsumerZooKeeperResets
from assay.nemesis.faults.fault import Census, Fault, Scope, strikes_everywhere
from assay.nemesis.faults.hold import Hold
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.kill_in_fsync import PowerLossInFsync
from assay.nemesis.faults.kill_in_write import PowerLossInWrite
from assay.nemesis.faults.link_set import LINKS, spared
from assay.nemesis.faults.membership import Membership
from assay.nemesis.faults.move import MoveReplicas
from assay.nemesis.faults.power_loss import PowerLoss
from assay.nemesis.faults.rolling_outage import Outage, OutagePowerLoss
from assay.nemesis.faults.slow_disk import SlowDisk
from assay.nemesis.faults.start_twice import StartTwice
from assay.nemesis.schedule.catalogue import Catalogue
from assay.nemesis.schedule.schedule import FIRST_AT, Schedule, ScheduleError, Step
from assay.nemesis.schedule.shape import Shape
from assay.nemesis.schedule.target import ONE, Kind, Target, named

WEIGHTS: Final[Mapping[str, float]] = {
    "kill": 4, "stop": 3, "freeze": 1, "restart": 1, "hold": 3, "power-loss": 2, "power-loss-in-fsync": 2,
    "kill-in-fsync": 3, "kill-in-write": 4, "power-loss-in-write": 2, "disk-error": 3, "slow-fsync": 2, "slow-disk": 2,
    "slow-network": 4, "truncate-tail": 0.5, "corrupt": 0.5, "garbage-tail": 1, "wipe": 1, "rollback": 1,
    "disk-full": 1, "controlled-shutdown": 1, "packets": 2, "clock": 1, "memory": 1, "move-replicas": 2,
    "membership": 1, "partition": 3, "partition-one-way": 2, "partition-fast-fail": 1,
    "partition-leader-and-follower": 2, "partition-follower-from-leader": 2, "partition-links": 2, "connection": 4,
    "connection-controller": 2, "zookeeper-expire": 2, "zookeeper-kill": 1, "zookeeper-pause": 1, "stop-consumer": 2,
    "kill-consumer": 2, "cut-consumer": 1, "consumer-from-coordinator": 2, "consumer-from-zookeeper": 2,
    "consumer-zookeeper-resets": 4,
}  # fmt: skip
KINDS: Final = (3, 6)
"""How many kinds of faults a run keeps to, at least and at most."""
LASTING: Final = (0.3, 0.5)
"""How long a fault lasts, in parts of the interval."""
AWAY_FOR: Final = (0.4, 0.5)
"""The same of one that takes servers away: longer than a session, and until others have taken over."""
LONGEST: Final = 0.6
"""The same of a controller's connection, on which nothing is said before a server has been missed."""
AWAY: Final = 0.75
"""For how much of that this server is away: long enough for the others to go on without it."""
CALM: Final = 0.5
"""Seconds between the last heal of an episode and the next, or the time limit."""
APART: Final = (0.6, 1.0)
"""From the begin of one episode to that of the next, in the same."""
COMPANIONS: Final = (0, 1, 1, 1, 2)
BEGINS: Final = (0.1, 0.7)
"""When a companion begins, in parts of the first fault's duration."""
OUTLASTS: Final = 1.0
"""By how many seconds the later of two faults lasts longer, where nothing may happen while both are in force."""
RELAYS: Final = 0.35
"""How often an episode is a relay (:mod:`assay.nemesis.faults.cascading_failover`)."""
ABSENCES: Final = 0.1
"""How often an episode is that one server is gone for so long that everyone has to do without it, and nothing else."""
ABSENT: Final = (8.0, 10.0)
"""Seconds."""
BLACKOUTS: Final = 0.2
"""How often, where a fault may strike all servers, an episode is that and nothing else."""
DARK: Final = (0.3, 1.5)
"""Seconds that a loss of power lasts."""
WORN: Final = (2.0, 4.0)
"""The same where it comes in an fsync, for which fsyncs are slow before, or at a change that is waited for."""
DOWN: Final = (2.0, 3.5)
"""Seconds from the first server that goes to the first that is back."""
RETURN: Final = 7.0
"""Seconds until all are."""
CONTROLLER: Final = f"connection-{Line.CONTROLLER}"
CONNECTIONS: Final = ("connection", *(f"connection-{line}" for line in Line))
PAIR: Final = f"partition-{Shape.LEADER_AND_FOLLOWER}"
SILENT: Final = ("zookeeper-kill", "zookeeper-pause")
"""During these a connection to ZooKeeper has nothing to be lost."""
CHANGED: Final = 3.0
"""Seconds that a change of members may go on after its heal was due: it waits for every replica to be copied back."""
HOLD, KILL, MOVE, MEMBERSHIP = Hold.name, Kill.name, MoveReplicas.name, Membership().name
OUTAGES: Final = (Outage.name, OutagePowerLoss.name)
AFTERMATH: Final[Mapping[str, float]] = {**dict.fromkeys(OUTAGES, RETURN), MEMBERSHIP: CHANGED}
"""How long what a fault leaves to be done takes at most: seconds, from its end, in which no episode begins."""


def draw_mix(
    seed: int,
    faults: Sequence[str],
    *,
    catalogue: Catalogue,
    census: Census,
    interval: float,
    time_limit: float,
    everywhere: Collection[str] = (),
    events: Sequence[str] = (),
) -> Schedule:
    """``faults``: those that system and cluster can have. Raises ``ScheduleError`` when not one fits the time.

    ``everywhere``: those that may strike all servers at once, since what is promised holds then, too. ``events``: the
    system's turning points.
    """
    rng = random.Random(seed)
    kinds = _kinds(rng, sorted(faults), catalogue, census)
    if not kinds:
        raise ScheduleError("mix: there is no fault that this system and this cluster can have")
    names = census.names or ("n1",)
    victim = named(names[rng.randrange(len(names))])
    of_many = {name: catalogue[name] for name in faults if name in everywhere}
    steps: list[Step] = []
    at = FIRST_AT
    while at + interval * LONGEST <= time_limit - CALM:
        episode = _Episode(rng, catalogue, census, kinds, at, interval, victim.names[0], time_limit - CALM)
        kind = rng.random()
        if kind < RELAYS:
            steps += relay(rng, faults, catalogue, census, at, time_limit - CALM, events) or episode.steps()
        elif kind < RELAYS + ABSENCES and (absence := _absence(rng, faults, catalogue, census, at, time_limit)):
            steps.append(absence)
        elif kind > 1 - BLACKOUTS and (of_all := _of_all(rng, of_many, census, at, time_limit, victim)):
            steps.append(of_all)
        else:
            steps += episode.steps()
        returned = max(step.until + AFTERMATH.get(step.fault, 0.0) for step in steps)
        at = max(at + interval * rng.uniform(*APART), returned + CALM)
    if not steps:
        raise ScheduleError(
            f"a fault from {FIRST_AT:g} s lasting {interval * LONGEST:g} s is not healed before {time_limit:g} s: "
            "raise --time-limit or lower --nemesis-interval"
        )
    return Schedule(seed, tuple(sorted(steps, key=lambda step: step.at)))


def _absence(
    rng: random.Random, faults: Collection[str], catalogue: Catalogue, census: Census, at: float, time_limit: float
) -> Step | None:
    """A server that is killed, and missed for long; None where that cannot be, or time is short."""
    duration = min(rng.uniform(*ABSENT), time_limit - CALM - at)
    if KILL not in faults or duration < ABSENT[0]:
        return None
    target, parameters = catalogue[KILL].draw(rng, census, None)
    return Step(round(at, 3), KILL, target, round(duration, 3), parameters, rng.getrandbits(32))


def _of_all(
    rng: random.Random, among: Mapping[str, Fault], census: Census, at: float, time_limit: float, last: Target
) -> Step | None:
    """One of these faults that strikes all servers; None where none may, or time is short."""
    possible = {PowerLoss.name: DARK, PowerLossInFsync.name: WORN, PowerLossInWrite.name: WORN}
    if at + DOWN[1] + RETURN <= time_limit - CALM:
        possible |= dict.fromkeys(OUTAGES, DOWN)
    names = [name for name in possible if name in among]
    if not names:
        return None
    name = rng.choice(names)
    duration = round(rng.uniform(*possible[name]), 3)
    whom, parameters = among[name].draw(rng, census, Target(Kind.ALL))
    if name == OutagePowerLoss.name:
        parameters["last"] = last.names[0]
    return Step(round(at, 3), name, whom, duration, parameters, rng.getrandbits(32))


def weight(name: str) -> float:
    """Of a fault that came by a hook, as of an ordinary one."""
    return WEIGHTS.get(name, 1.0)


def mixable(catalogue: Catalogue) -> tuple[str, ...]:
    """Returns what the mix draws from: all faults but ``restart-rolling``, which others include, and ``start-twice``.

    A second start is an operator's error, and a system without a lock may lose all its data by it. So it comes only by
    its name.
    """
    return tuple(sorted({*WEIGHTS, *OUTAGES, *catalogue.all} & set(catalogue) - {"restart-rolling", StartTwice.name}))


def _kinds(rng: random.Random, faults: Sequence[str], catalogue: Catalogue, census: Census) -> list[str]:
    left = [name for name in faults if name not in OUTAGES and _drawable(catalogue[name], census)]
    wanted = rng.randint(*KINDS)
    kinds: list[str] = []
    while left and len(kinds) < wanted:
        kinds.append(rng.choices(left, [weight(name) for name in left])[0])
        left.remove(kinds[-1])
    return kinds


def _drawable(fault: Fault, census: Census) -> bool:
    try:
        fault.draw(random.Random(0), census, None)
    except ScheduleError:
        return False
    return True


@dataclass
class _Episode:
    """One fault, and those that begin while it is in force."""

    rng: random.Random
    catalogue: Catalogue
    census: Census
    kinds: Sequence[str]
    at: float
    interval: float
    victim: str
    end: float

    def steps(self) -> list[Step]:
        rng = self.rng
        name = rng.choices(self.kinds, [weight(name) for name in self.kinds])[0]
        first = self._step(name, self.at, self.interval * rng.uniform(*self._lasting(name)))
        steps = [first]
        if first.fault == CONTROLLER:
            first = steps[0] = msgspec.structs.replace(first, duration=self.interval * LONGEST)
            if KILL in self.catalogue:
                away = round(AWAY * first.duration, 3)
                steps.append(Step(round(self.at + 0.2, 3), KILL, ONE, away, {}, rng.getrandbits(32)))
            return steps
        begins, companions = BEGINS, rng.choice(COMPANIONS)
        if first.fault == HOLD:
            first = steps[0] = msgspec.structs.replace(first, parameters={"seen": True})
            begins, companions = (0.6, 0.8), max(1, companions)
        for _ in range(companions):
            others = [name for name in self.kinds if all(self._together(step.fault, name) for step in steps)]
            if not others:
                break
            name = rng.choices(others, [weight(name) for name in others])[0]
            begin = max(self.at + first.duration * rng.uniform(*begins), steps[-1].at)
            shortest, longest = (self.interval * part for part in self._lasting(name))
            if begin + shortest > self.end:
                break
            step = self._step(name, begin, min(rng.uniform(shortest, longest), self.end - begin))
            if any(self._outlasts(step, other) for other in steps):
                until = max(step.until, *(other.until + OUTLASTS for other in steps))
                if until > self.end:
                    break
                step = msgspec.structs.replace(step, duration=round(until - step.at, 3))
            steps.append(msgspec.structs.replace(step, keep_majority=self._heavy(name)))
        return steps

    def _step(self, name: str, at: float, duration: float) -> Step:
        target, parameters = self.catalogue[name].draw(self.rng, self.census, None)
        if self.catalogue[name].impact.loses_data:
            target = named(self.victim)
        if LINKS in parameters:
            target, parameters = spared(self.rng, self.census, str(parameters[LINKS]))
        step = Step(round(at, 3), name, target, round(duration, 3), parameters, self.rng.getrandbits(32))
        # A controller that is slow, or cut off, may take no order meanwhile.
        return msgspec.structs.replace(step, yields=name == MOVE)

    def _together(self, first: str, second: str) -> bool:
        one, two = self.catalogue[first], self.catalogue[second]
        if first == second or second in (CONTROLLER, HOLD) or Scope.NODE in (one.scope, two.scope):
            return False
        if PAIR in (first, second):
            return False  # alone it leaves no majority in peace
        if two.impact.loses_data or (_on_one(one, two) and self._heavy(first) and self._heavy(second)):
            return False  # the same server twice, or the only other one
        if strikes_everywhere(two) or (strikes_everywhere(one) and one.scope.clashes(two.scope)):
            return False
        if first in SILENT and second in (*CONNECTIONS, ConsumerZooKeeperResets.name):
            return False
        # A move waits for servers that are away.
        return MOVE not in (first, second) or not (self._heavy(first) or self._heavy(second))

    def _lasting(self, name: str) -> tuple[float, float]:
        return AWAY_FOR if self._heavy(name) else LASTING

    def _outlasts(self, later: Step, first: Step) -> bool:
        """Has the later one to go on when the first is healed, so that something happens, or it strikes anything?

        Who hears nothing of ZooKeeper puts no one in the place of a server that is away; and the links of a server that
        is dead, of which the others know, are quiet.
        """
        if any(
            deaf.parameters.get("connection") == Line.ZOOKEEPER and self._heavy(away.fault)
            for deaf, away in ((later, first), (first, later))
        ):
            return True
        cut = self.catalogue[later.fault].impact.cuts_links and self._heavy(later.fault)
        return cut and self._heavy(first.fault) and self.catalogue[first.fault].impact.stops_work

    def _heavy(self, name: str) -> bool:
        """Does it take servers away from the others? One that is late with everything is as good as gone."""
        fault = self.catalogue[name]
        ours = fault.impact.stops_work or fault.scope is Scope.NETWORK or isinstance(fault, SlowDisk)
        return ours and CLIENT_ROLE not in fault.roles


def _on_one(first: Fault, second: Fault) -> bool:
    """Can the two not be in force on one node? The disks of servers are no matter of ZooKeeper's nodes."""
    of_servers = ZOOKEEPER_ROLE not in (*first.roles, *second.roles)
    return first.scope is second.scope or (of_servers and first.scope.clashes(second.scope))
