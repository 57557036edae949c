"""The fault mix: draws a schedule of many kinds of faults, by weight, which deliberately overlap.

1. A run uses a few kinds of faults (swarm testing: Groce et al., ISSTA 2012), drawn by their weights.
2. The run consists of episodes, with pauses between them.
3. An episode begins with one fault, and faults of other kinds begin while it is active. Faults that take a server away
   hit the same server, so that a majority stays untouched. Faults that only disturb (one connection, slow fsyncs, a
   clock, a consumer) hit any node.
4. Two kinds need a second fault. During a fault of the controller's connection a server is killed and started, because
   otherwise the connection is silent. After ``hold`` has stopped a process at an event, another fault begins.
5. Some episodes are cascading failovers: leaders are struck one after the other
   (:mod:`assay.nemesis.faults.cascading_failover`). In other episodes one server is away for so long that the cluster
   must go on without it.
6. All faults of a run that lose or damage data hit the same server, because no replicated log survives the loss of a
   majority's disks.
7. If the contract allows it (``may_stall``), some episodes hit all servers, or take all servers down in turn. The last
   one may lose its power (:mod:`assay.nemesis.faults.rolling_outage`).

Equal arguments give equal schedules.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE
from assay.nemesis.faults.cascading_failover import draw_cascading_failover
from assay.nemesis.faults.connection import ConnectionKind
from assay.nemesis.faults.consumer import ConsumerZooKeeperResets
from assay.nemesis.faults.fault import Census, Fault, Scope, get_declaration
from assay.nemesis.faults.hold import HoldFault
from assay.nemesis.faults.kill import Kill, PowerLoss
from assay.nemesis.faults.kill_at_disk import PowerLossInFsync, PowerLossInWrite
from assay.nemesis.faults.link_set import LINKS, keep_links_of_minority
from assay.nemesis.faults.membership import MembershipFault
from assay.nemesis.faults.move import MoveReplicas
from assay.nemesis.faults.rolling_outage import Outage, OutagePowerLoss
from assay.nemesis.faults.slow_disk import SlowDisk
from assay.nemesis.faults.start_twice import StartTwice
from assay.nemesis.faults.upgrade import Upgrade
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import FIRST_INJECTION_AT, FaultSchedule, FaultStep, PartitionShape, ScheduleError
from assay.nemesis.schedule.target import ONE, Target, TargetKind, named_target

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
KIND_COUNTS: Final = (3, 6)
"""Minimum and maximum number of kinds of faults in a run."""
DURATION_SHARES: Final = (0.3, 0.5)
"""Range of a fault's duration, as shares of the interval."""
AWAY_SHARES: Final = (0.4, 0.5)
"""Such a range for faults that take servers away: longer than a session and a failover."""
CONTROLLER_SHARE: Final = 0.6
"""Duration of a fault of the controller's connection, as a share of the interval."""
KILL_SHARE: Final = 0.75
"""Duration of the kill during such a fault, as a share of the fault's duration: long enough for a failover."""
CALM_SECONDS: Final = 0.5
"""Seconds between the last heal of an episode and the next episode, or the time limit."""
EPISODE_SHARES: Final = (0.6, 1.0)
"""Range of the time between the begins of two episodes, as shares of the interval."""
COMPANION_COUNTS: Final = (0, 1, 1, 1, 2)
"""Numbers of companions: the faults that begin while the first fault of an episode is active."""
BEGIN_SHARES: Final = (0.1, 0.7)
"""Range of a companion's begin, as shares of the first fault's duration."""
OUTLAST_SECONDS: Final = 1.0
"""Seconds from the end of the first of two faults to the end of the later one, if the later one must outlast it.

The later fault must outlast the first if it may have no effect while the first is active (``_must_outlast``).
"""
CASCADE_PROBABILITY: Final = 0.35
"""Probability that an episode is a cascading failover (:mod:`assay.nemesis.faults.cascading_failover`)."""
ABSENCE_PROBABILITY: Final = 0.1
"""Probability that an episode is a long absence of one server, without which the cluster must go on."""
ABSENCE_SECONDS: Final = (8.0, 10.0)
"""Range of the duration of such an absence."""
BLACKOUT_PROBABILITY: Final = 0.2
"""Probability that an episode is a fault on all servers, if the contract allows one."""
POWER_LOSS_SECONDS: Final = (0.3, 1.5)
"""Range of the duration of a loss of power."""
AWAITED_LOSS_SECONDS: Final = (2.0, 4.0)
"""Range of the duration of a loss of power that waits for an fsync or for another change to the disk."""
OUTAGE_SECONDS: Final = (2.0, 3.5)
"""Seconds from the first server's stop to the first server's return."""
RETURN_SECONDS: Final = 7.0
"""Maximum seconds from the end of an outage's duration until all servers are back."""
CONTROLLER: Final = f"connection-{ConnectionKind.CONTROLLER}"
CONNECTIONS: Final = ("connection", *(f"connection-{kind}" for kind in ConnectionKind))
LEADER_AND_FOLLOWER: Final = f"partition-{PartitionShape.LEADER_AND_FOLLOWER}"
ZOOKEEPER_SILENT: Final = ("zookeeper-kill", "zookeeper-pause")
"""While one of these faults is active, a connection to ZooKeeper has no traffic."""
MEMBERSHIP_SECONDS: Final = 3.0
"""Seconds that a membership change may outlast its duration, until every replica is copied."""
HOLD, KILL, MOVE, MEMBERSHIP = HoldFault.name, Kill.name, MoveReplicas.name, MembershipFault().name
OUTAGES: Final = (Outage.name, OutagePowerLoss.name)
AFTERMATH: Final[Mapping[str, float]] = {**dict.fromkeys(OUTAGES, RETURN_SECONDS), MEMBERSHIP: MEMBERSHIP_SECONDS}
"""Maximum seconds from the end of a fault's duration until all servers are back. No episode begins in that time."""


def draw_mix(
    seed: int,
    faults: Sequence[str],
    *,
    catalogue: FaultCatalogue,
    census: Census,
    interval: float,
    time_limit: float,
    allowed_on_all: Collection[str] = (),
    events: Sequence[str] = (),
) -> FaultSchedule:
    """Returns a mixed schedule. Raises ``ScheduleError`` if no fault fits into the time.

    ``faults``: the faults that system and cluster support. ``allowed_on_all``: the faults that the contract allows on
    all servers at once. ``events``: the system's turning points.
    """
    rng = random.Random(seed)
    kinds = _draw_kinds(rng, sorted(faults), catalogue, census)
    if not kinds:
        raise ScheduleError("mix: no fault is possible with this system and this cluster: leave out --nemesis=mix")
    names = census.names or ("n1",)
    victim = named_target(names[rng.randrange(len(names))])
    on_all = {name: catalogue[name] for name in faults if name in allowed_on_all}
    steps: list[FaultStep] = []
    at = FIRST_INJECTION_AT
    while at + interval * CONTROLLER_SHARE <= time_limit - CALM_SECONDS:
        episode = _Episode(rng, catalogue, census, kinds, at, interval, victim.names[0], time_limit - CALM_SECONDS)
        draw = rng.random()
        if draw < CASCADE_PROBABILITY:
            steps += (
                draw_cascading_failover(rng, faults, catalogue, census, at, time_limit - CALM_SECONDS, events)
                or episode.steps()
            )
        elif draw < CASCADE_PROBABILITY + ABSENCE_PROBABILITY and (
            absence := _draw_absence(rng, faults, catalogue, census, at, time_limit)
        ):
            steps.append(absence)
        elif draw > 1 - BLACKOUT_PROBABILITY and (of_all := _draw_for_all(rng, on_all, census, at, time_limit, victim)):
            steps.append(of_all)
        else:
            steps += episode.steps()
        returned = max(step.until + AFTERMATH.get(step.fault, 0.0) for step in steps)
        at = max(at + interval * rng.uniform(*EPISODE_SHARES), returned + CALM_SECONDS)
    if not steps:
        raise ScheduleError(
            f"a fault from {FIRST_INJECTION_AT:g} s lasting {interval * CONTROLLER_SHARE:g} s is not healed before "
            f"{time_limit:g} s: raise --time-limit or lower --nemesis-interval"
        )
    return FaultSchedule(seed, tuple(sorted(steps, key=lambda step: step.at)))


def _draw_absence(
    rng: random.Random, faults: Collection[str], catalogue: FaultCatalogue, census: Census, at: float, time_limit: float
) -> FaultStep | None:
    """Returns a kill after which the server stays away for long; None if that is not possible, or time is short."""
    duration = min(rng.uniform(*ABSENCE_SECONDS), time_limit - CALM_SECONDS - at)
    if KILL not in faults or duration < ABSENCE_SECONDS[0]:
        return None
    target, parameters = catalogue[KILL].draw(rng, census, None)
    return FaultStep(round(at, 3), KILL, target, round(duration, 3), parameters, rng.getrandbits(32))


def _draw_for_all(
    rng: random.Random, among: Mapping[str, Fault], census: Census, at: float, time_limit: float, last: Target
) -> FaultStep | None:
    """Returns a fault that strikes all servers; None if no fault may, or time is short."""
    possible = {
        PowerLoss.name: POWER_LOSS_SECONDS,
        PowerLossInFsync.name: AWAITED_LOSS_SECONDS,
        PowerLossInWrite.name: AWAITED_LOSS_SECONDS,
    }
    if at + OUTAGE_SECONDS[1] + RETURN_SECONDS <= time_limit - CALM_SECONDS:
        possible |= dict.fromkeys(OUTAGES, OUTAGE_SECONDS)
    names = [name for name in possible if name in among]
    if not names:
        return None
    name = rng.choice(names)
    duration = round(rng.uniform(*possible[name]), 3)
    whom, parameters = among[name].draw(rng, census, Target(TargetKind.ALL))
    if name == OutagePowerLoss.name:
        parameters["last"] = last.names[0]
    return FaultStep(round(at, 3), name, whom, duration, parameters, rng.getrandbits(32))


def get_weight(name: str) -> float:
    """Returns the weight of a fault. A fault from a plugin has weight 1."""
    return WEIGHTS.get(name, 1.0)


def list_mixable(catalogue: FaultCatalogue) -> tuple[str, ...]:
    """Returns the faults that the mix draws from: all except ``restart-rolling``, ``start-twice`` and ``upgrade``.

    ``restart-rolling`` would add nothing, because other faults of the mix have the same effects. A second start is an
    operator's error, and may destroy all data of a system without a lock. So ``start-twice`` only runs if it is
    requested by name. An upgrade is for good, and few systems name a new image.
    """
    undrawn = {"restart-rolling", StartTwice.name, Upgrade.name}
    return tuple(sorted({*WEIGHTS, *OUTAGES, *catalogue.in_nemesis_all} & set(catalogue) - undrawn))


def _draw_kinds(rng: random.Random, faults: Sequence[str], catalogue: FaultCatalogue, census: Census) -> list[str]:
    left = [name for name in faults if name not in OUTAGES and _is_drawable(catalogue[name], census)]
    wanted = rng.randint(*KIND_COUNTS)
    kinds: list[str] = []
    while left and len(kinds) < wanted:
        kinds.append(rng.choices(left, [get_weight(name) for name in left])[0])
        left.remove(kinds[-1])
    return kinds


def _is_drawable(fault: Fault, census: Census) -> bool:
    try:
        fault.draw(random.Random(0), census, None)
    except ScheduleError:
        return False
    return True


@dataclass
class _Episode:
    """A first fault, and its companions: faults that begin while it is active.

    - ``at``: the injection of the first fault, in seconds of the run
    - ``interval``: seconds, of which durations and the time to the next episode are shares
    - ``end``: the time at which all its faults must be healed
    """

    rng: random.Random
    catalogue: FaultCatalogue
    census: Census
    kinds: Sequence[str]
    at: float
    interval: float
    victim: str
    end: float

    def steps(self) -> list[FaultStep]:
        rng = self.rng
        name = rng.choices(self.kinds, [get_weight(name) for name in self.kinds])[0]
        first = self._step(name, self.at, self.interval * rng.uniform(*self._duration_range(name)))
        steps = [first]
        if first.fault == CONTROLLER:
            first = steps[0] = msgspec.structs.replace(first, duration=self.interval * CONTROLLER_SHARE)
            if KILL in self.catalogue:
                away = round(KILL_SHARE * first.duration, 3)
                steps.append(FaultStep(round(self.at + 0.2, 3), KILL, ONE, away, {}, rng.getrandbits(32)))
            return steps
        begins, companions = BEGIN_SHARES, rng.choice(COMPANION_COUNTS)
        if first.fault == HOLD:
            first = steps[0] = msgspec.structs.replace(first, parameters={"seen": True})
            begins, companions = (0.6, 0.8), max(1, companions)
        for _ in range(companions):
            others = [name for name in self.kinds if all(self._can_overlap(step.fault, name) for step in steps)]
            if not others:
                break
            name = rng.choices(others, [get_weight(name) for name in others])[0]
            begin = max(self.at + first.duration * rng.uniform(*begins), steps[-1].at)
            shortest, longest = (self.interval * part for part in self._duration_range(name))
            if begin + shortest > self.end:
                break
            step = self._step(name, begin, min(rng.uniform(shortest, longest), self.end - begin))
            if any(self._must_outlast(step, other) for other in steps):
                until = max(step.until, *(other.until + OUTLAST_SECONDS for other in steps))
                if until > self.end:
                    break
                step = msgspec.structs.replace(step, duration=round(until - step.at, 3))
            steps.append(msgspec.structs.replace(step, keep_majority=self._takes_servers_away(name)))
        return steps

    def _step(self, name: str, at: float, duration: float) -> FaultStep:
        target, parameters = self.catalogue[name].draw(self.rng, self.census, None)
        if self.catalogue[name].impact.loses_data:
            target = named_target(self.victim)
        if LINKS in parameters:
            target, parameters = keep_links_of_minority(self.rng, self.census, str(parameters[LINKS]))
        step = FaultStep(round(at, 3), name, target, round(duration, 3), parameters, self.rng.getrandbits(32))
        # A move may be skipped (``yields``) without being a failed fault: a slow or isolated controller may accept no
        # order.
        return msgspec.structs.replace(step, yields=name == MOVE)

    def _can_overlap(self, first: str, second: str) -> bool:
        one, two = self.catalogue[first], self.catalogue[second]
        if first == second or second in (CONTROLLER, HOLD) or Scope.NODE in (one.scope, two.scope):
            return False
        if LEADER_AND_FOLLOWER in (first, second):
            return False  # alone it already disturbs a majority
        if two.impact.loses_data or (
            _clash_on_one_node(one, two) and self._takes_servers_away(first) and self._takes_servers_away(second)
        ):
            return False  # both faults would hit one server, or take a majority of the servers away
        # A fault that is declared ``everywhere`` may strike any number of servers.
        if get_declaration(two, "everywhere") or (get_declaration(one, "everywhere") and one.scope.clashes(two.scope)):
            return False
        if first in ZOOKEEPER_SILENT and second in (*CONNECTIONS, ConsumerZooKeeperResets.name):
            return False
        # A move waits for servers that are away.
        return MOVE not in (first, second) or not (self._takes_servers_away(first) or self._takes_servers_away(second))

    def _duration_range(self, name: str) -> tuple[float, float]:
        return AWAY_SHARES if self._takes_servers_away(name) else DURATION_SHARES

    def _must_outlast(self, later: FaultStep, first: FaultStep) -> bool:
        """Returns whether the later fault must outlast the first, because it may have no effect while both are active.

        There are two cases:

        - Either fault cuts a connection to ZooKeeper, and the other takes a server away. A controller without this
          connection does not replace the server until the connection is back.
        - The first fault stops a server, and the later fault cuts its links. The links are silent once the others know
          that the server is dead.
        """
        if any(
            one.parameters.get("connection") == ConnectionKind.ZOOKEEPER and self._takes_servers_away(other.fault)
            for one, other in ((later, first), (first, later))
        ):
            return True
        cut = self.catalogue[later.fault].impact.cuts_links and self._takes_servers_away(later.fault)
        return cut and self._takes_servers_away(first.fault) and self.catalogue[first.fault].impact.stops_work

    def _takes_servers_away(self, name: str) -> bool:
        """Returns whether a fault takes servers away from the others. A server with a slow disk counts as away."""
        fault = self.catalogue[name]
        takes_away = fault.impact.stops_work or fault.scope is Scope.NETWORK or isinstance(fault, SlowDisk)
        return takes_away and CLIENT_ROLE not in fault.roles


def _clash_on_one_node(first: Fault, second: Fault) -> bool:
    """Returns whether the two faults cannot be active on one node.

    A fault of ZooKeeper's nodes never clashes with a fault of a server's disk, because these are different nodes.
    """
    of_servers = ZOOKEEPER_ROLE not in (*first.roles, *second.roles)
    return first.scope is second.scope or (of_servers and first.scope.clashes(second.scope))
