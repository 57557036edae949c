"""The random nemesis: a schedule drawn from a seed.

The rule of the interval: from injection to injection, the first after 2 s, each fault lasts half of it, and every fault
is healed before the time limit. In a combined run each injection draws one of the faults, so that each occurs while
time allows; about every third injection has a *companion*, another fault that begins while the first is in force and,
lasting as long, ends before the next injection. So at most two faults overlap, and there are calm times to recover in.
Unless a target is asked for, the two leave a majority of the servers in peace: else nothing can be acknowledged
then, and a run in which little happened proves little.
With a trigger each fault is drawn once, and acts when it is fulfilled: the first after N operations, the second after
2 N (or at the event's second time), each in the order drawn.

Faults for which there is no time, companions included, are named in ``Schedule.omitted``; never left out in silence.

Same arguments, same schedule.
"""

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE
from assay.nemesis.faults.fault import Census, Fault, Scope, strikes_everywhere
from assay.nemesis.faults.process import whole
from assay.nemesis.schedule.catalogue import NONE, Catalogue
from assay.nemesis.schedule.schedule import FIRST_AT, Schedule, ScheduleError, Step
from assay.nemesis.schedule.target import OF_CLIENTS, ONE, Kind, Target
from assay.nemesis.schedule.trigger import Trigger, TriggerError, numbered

INTERVAL = 10.0
TIME_LIMIT = 30.0
COMPANION = 1 / 3
"""How often an injection of a combined run has a companion."""
EARLIEST, LATEST = 0.2, 0.8
"""When a companion begins, in parts of the first fault's duration."""


def draw(
    seed: int,
    faults: Sequence[str],
    *,
    catalogue: Catalogue,
    census: Census,
    interval: float = INTERVAL,
    time_limit: float = TIME_LIMIT,
    target: Target | None = None,
    trigger: Trigger | None = None,
) -> Schedule:
    """A schedule of these faults of ``catalogue``. ``interval`` and ``time_limit`` in seconds; ``target`` None lets
    each fault choose.

    Raises :class:`ScheduleError` when not even one fault fits into the time limit, for an unknown fault, and for a
    target or a cluster that a fault cannot do with.
    """
    names = sorted(set(faults) - {NONE})
    if not names:
        return Schedule(seed)
    unknown = [name for name in names if name not in catalogue]
    if unknown:
        raise ScheduleError(f"no fault {', '.join(unknown)}; there are {', '.join(catalogue)}")
    for name in names:
        whole(name, target or ONE)
    rng = random.Random(seed)
    times = injection_times(interval, time_limit)
    plan = _assign(
        rng, names, times, interval / 2, time_limit, lambda a, b: _compatible(catalogue[a], catalogue[b], census)
    )
    if trigger is not None:
        last = time_limit - interval / 2
        return _triggered(seed, rng, names, catalogue, census, target, trigger, interval / 2, last)
    steps: list[Step] = []
    for at, name, companion in plan:
        whom, parameters = catalogue[name].draw(rng, census, target)
        step = Step(at, name, whom, interval / 2, parameters, rng.getrandbits(32))
        if (
            companion
            and _leaves_none(steps[-1], step)
            and catalogue[steps[-1].fault].scope.clashes(catalogue[name].scope)
        ):
            continue  # every such node is held already
        steps.append(msgspec.structs.replace(step, keep_majority=companion and target is None))
    taken = {step.fault for step in steps}
    return Schedule(seed, tuple(steps), tuple(name for name in names if name not in taken))


def injection_times(interval: float, time_limit: float) -> list[float]:
    """Seconds at which faults begin such that each, lasting half an interval, ends before the limit. At least one."""
    if interval <= 0:
        raise ScheduleError(f"the interval must be above 0 s, got {interval:g} s")
    times: list[float] = []
    while (at := FIRST_AT + len(times) * interval) + interval / 2 < time_limit:
        times.append(at)
    if not times:
        raise ScheduleError(
            f"a fault from {FIRST_AT:g} s lasting {interval / 2:g} s is not healed before {time_limit:g} s: "
            "raise --time-limit or lower --nemesis-interval"
        )
    return times


def _compatible(first: Fault, second: Fault, census: Census) -> bool:
    """May both be in force with a majority left in peace? Where only one server may suffer, both must fit on it."""
    if Scope.NODE in (first.scope, second.scope):
        return False  # nothing can be done to a frozen machine, not even as the other end of a cut link
    # Faults of consumers share the nodes that these live on, of which no majority must be left in peace.
    of_clients = [CLIENT_ROLE in fault.roles for fault in (first, second)]
    if any(of_clients):
        if (strikes_everywhere(first) or strikes_everywhere(second)) and first.scope.clashes(second.scope):
            return False  # it takes any nodes, clients' among them
        return not all(of_clients) or census.clients > 1 or first.scope != second.scope
    # Faults of ZooKeeper share its nodes as the others share the servers.
    both_keepers = ZOOKEEPER_ROLE in first.roles and ZOOKEEPER_ROLE in second.roles
    nodes = census.zookeepers if both_keepers else census.servers
    if strikes_everywhere(first) or strikes_everywhere(second):
        return False  # it leaves no one in peace by itself
    return (nodes - 1) // 2 > 1 or not first.scope.clashes(second.scope)


def _leaves_none(first: Step, second: Step) -> bool:
    """Does the first hold every node that the second could hit?"""
    of_clients = second.target.kind in OF_CLIENTS
    return first.target.kind is (Kind.CONSUMERS if of_clients else Kind.ALL)


def _triggered(
    seed: int,
    rng: random.Random,
    names: Sequence[str],
    known: Mapping[str, Fault],
    census: Census,
    target: Target | None,
    trigger: Trigger,
    duration: float,
    last: float,
) -> Schedule:
    """One step per fault, all armed at the first injection's time; they may act until the second ``last``."""
    steps = []
    for number, name in enumerate(rng.sample(names, len(names)), 1):
        whom, parameters = known[name].draw(rng, census, target)
        try:
            wait = numbered(trigger, number, 0.9 * (last - FIRST_AT))
        except TriggerError as error:
            raise ScheduleError(str(error)) from None
        step = Step(FIRST_AT, name, whom, duration, parameters, rng.getrandbits(32), trigger=wait)
        steps.append(msgspec.structs.replace(step, keep_majority=number > 1 and target is None))
    return Schedule(seed, tuple(steps))


def _assign(
    rng: random.Random,
    names: Sequence[str],
    times: Sequence[float],
    duration: float,
    time_limit: float,
    compatible: Callable[[str, str], bool],
) -> list[tuple[float, str, bool]]:
    """Which fault at which time, sorted by time, and whether it is a companion."""
    due = rng.sample(names, len(names))
    plan: list[tuple[float, str, bool]] = []
    for number, at in enumerate(times):
        name = due.pop(0) if due else rng.choice(names)
        plan.append((at, name, False))
        slack = time_limit - (at + duration)
        # Drawn whether used or not, so that the rest of the schedule does not hang on the time limit.
        wanted, part = rng.random() < COMPANION, rng.uniform(EARLIEST, LATEST)
        pressed = len(due) > len(times) - number - 1
        offset = min(part * duration, slack / 2)
        others = [other for other in (due or names) if other != name and compatible(name, other)]
        if others and (wanted or pressed) and offset >= EARLIEST * duration:
            companion = others[0] if due else rng.choice(others)
            if due:
                due.remove(companion)
            plan.append((at + offset, companion, True))
    return plan
