"""The random nemesis: draws a schedule from a seed.

- There is an injection in each interval; the first comes after 2 s. Each fault lasts half an interval, and every fault
  is healed before the time limit.
- In a run with several faults, each injection draws one of them. Each fault occurs if time allows.
- About every third injection has a *companion*. This is another fault that begins while the first is active, lasts as
  long, and ends before the next injection. So at most two faults overlap, and the cluster has time to recover.
- Unless a target is requested, a fault and its companion leave a majority of the servers untouched. Otherwise nothing
  could be acknowledged, and a run with few operations proves little.
- With a trigger each fault is drawn once, in random order, and acts when its trigger fires. The first fault acts after
  N operations, the second after 2 N (or at the second occurrence of the event).

``FaultSchedule.omitted`` names the faults for which there was no time. Equal arguments give equal schedules.
"""

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE
from assay.nemesis.faults.fault import Census, Fault, Scope, get_declaration
from assay.nemesis.faults.process import require_whole_node
from assay.nemesis.schedule.catalogue import NONE, FaultCatalogue
from assay.nemesis.schedule.schedule import FIRST_INJECTION_AT, FaultSchedule, FaultStep, ScheduleError
from assay.nemesis.schedule.target import CLIENT_KINDS, ONE, Target, TargetKind
from assay.nemesis.schedule.trigger import Trigger, TriggerError, repeat_trigger

INTERVAL = 10.0
TIME_LIMIT = 30.0
COMPANION_PROBABILITY = 1 / 3
"""Probability that an injection of a combined run has a companion."""
EARLIEST_BEGIN, LATEST_BEGIN = 0.2, 0.8
"""Range of a companion's begin, as shares of the first fault's duration."""


def draw_schedule(
    seed: int,
    faults: Sequence[str],
    *,
    catalogue: FaultCatalogue,
    census: Census,
    interval: float = INTERVAL,
    time_limit: float = TIME_LIMIT,
    target: Target | None = None,
    trigger: Trigger | None = None,
) -> FaultSchedule:
    """Returns a schedule of these faults of ``catalogue``.

    ``interval`` and ``time_limit`` are seconds. With ``target`` None each fault chooses its own. Raises
    :class:`ScheduleError` for an unknown fault, for a target or a cluster that a fault does not support, and if no
    fault fits into the time limit.
    """
    names = sorted(set(faults) - {NONE})
    if not names:
        return FaultSchedule(seed)
    unknown = [name for name in names if name not in catalogue]
    if unknown:
        raise ScheduleError(f"there is no fault {', '.join(unknown)}; the faults are {', '.join(catalogue)}")
    for name in names:
        require_whole_node(name, target or ONE)
    rng = random.Random(seed)
    times = list_injection_times(interval, time_limit)
    # Also drawn if there is a trigger, because later draws of the same seed depend on it.
    plan = _plan_injections(
        rng, names, times, interval / 2, time_limit, lambda a, b: _is_compatible(catalogue[a], catalogue[b], census)
    )
    if trigger is not None:
        last = time_limit - interval / 2
        return _draw_triggered(seed, rng, names, catalogue, census, target, trigger, interval / 2, last)
    steps: list[FaultStep] = []
    for at, name, companion in plan:
        whom, parameters = catalogue[name].draw(rng, census, target)
        step = FaultStep(at, name, whom, interval / 2, parameters, rng.getrandbits(32))
        if (
            companion
            and _holds_all_targets(steps[-1], step)
            and catalogue[steps[-1].fault].scope.clashes(catalogue[name].scope)
        ):
            continue  # the first fault holds every possible node
        steps.append(msgspec.structs.replace(step, keep_majority=companion and target is None))
    taken = {step.fault for step in steps}
    return FaultSchedule(seed, tuple(steps), tuple(name for name in names if name not in taken))


def list_injection_times(interval: float, time_limit: float) -> list[float]:
    """Returns the seconds at which faults begin, at least one. Each fault is healed before the limit."""
    if interval <= 0:
        raise ScheduleError(f"--nemesis-interval={interval:g} must be above 0 s")
    times: list[float] = []
    while (at := FIRST_INJECTION_AT + len(times) * interval) + interval / 2 < time_limit:
        times.append(at)
    if not times:
        raise ScheduleError(
            f"a fault from {FIRST_INJECTION_AT:g} s lasting {interval / 2:g} s is not healed before {time_limit:g} s: "
            "raise --time-limit or lower --nemesis-interval"
        )
    return times


def _is_compatible(first: Fault, second: Fault, census: Census) -> bool:
    """Returns whether both can be active while a majority of the servers is untouched.

    If only one server may be affected, it must be possible to inject both into that server.
    """
    if Scope.NODE in (first.scope, second.scope):
        return False  # A frozen machine cannot be changed, not even as the other end of a cut link.
    everywhere = any(get_declaration(fault, "everywhere") for fault in (first, second))
    # Faults of consumers hit client nodes, and no majority of client nodes needs to stay untouched.
    of_clients = [CLIENT_ROLE in fault.roles for fault in (first, second)]
    if any(of_clients):
        if everywhere and first.scope.clashes(second.scope):
            return False  # a fault declared ``everywhere`` may hit any node, including client nodes
        return not all(of_clients) or census.clients > 1 or first.scope != second.scope
    # Two faults of ZooKeeper hit its nodes, and other faults hit the servers.
    on_zookeepers = ZOOKEEPER_ROLE in first.roles and ZOOKEEPER_ROLE in second.roles
    nodes = census.zookeepers if on_zookeepers else census.servers
    if everywhere:
        return False  # alone it may leave no node untouched
    return (nodes - 1) // 2 > 1 or not first.scope.clashes(second.scope)


def _holds_all_targets(first: FaultStep, second: FaultStep) -> bool:
    """Returns whether the first step holds every node that the second could hit."""
    of_clients = second.target.kind in CLIENT_KINDS
    return first.target.kind is (TargetKind.CONSUMERS if of_clients else TargetKind.ALL)


def _draw_triggered(
    seed: int,
    rng: random.Random,
    names: Sequence[str],
    catalogue: Mapping[str, Fault],
    census: Census,
    target: Target | None,
    trigger: Trigger,
    duration: float,
    last: float,
) -> FaultSchedule:
    """Returns one step per fault. All are armed at the time of the first injection, and may act until ``last``."""
    steps = []
    for number, name in enumerate(rng.sample(names, len(names)), 1):
        whom, parameters = catalogue[name].draw(rng, census, target)
        try:
            wait = repeat_trigger(trigger, number, 0.9 * (last - FIRST_INJECTION_AT))
        except TriggerError as error:
            raise ScheduleError(str(error)) from None
        step = FaultStep(FIRST_INJECTION_AT, name, whom, duration, parameters, rng.getrandbits(32), trigger=wait)
        steps.append(msgspec.structs.replace(step, keep_majority=number > 1 and target is None))
    return FaultSchedule(seed, tuple(steps))


def _plan_injections(
    rng: random.Random,
    names: Sequence[str],
    times: Sequence[float],
    duration: float,
    time_limit: float,
    compatible: Callable[[str, str], bool],
) -> list[tuple[float, str, bool]]:
    """Returns time and fault of each injection, by time, and whether the fault is a companion."""
    due = rng.sample(names, len(names))
    plan: list[tuple[float, str, bool]] = []
    for number, at in enumerate(times):
        name = due.pop(0) if due else rng.choice(names)
        plan.append((at, name, False))
        slack = time_limit - (at + duration)
        # Drawn even if unused, so that the rest of the schedule does not depend on the time limit.
        wanted, part = rng.random() < COMPANION_PROBABILITY, rng.uniform(EARLIEST_BEGIN, LATEST_BEGIN)
        must_fit = len(due) > len(times) - number - 1
        offset = min(part * duration, slack / 2)
        others = [other for other in (due or names) if other != name and compatible(name, other)]
        if others and (wanted or must_fit) and offset >= EARLIEST_BEGIN * duration:
            companion = others[0] if due else rng.choice(others)
            if due:
                due.remove(companion)
            plan.append((at + offset, companion, True))
    return plan
