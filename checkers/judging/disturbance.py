"""Disturbances: groups of faults, and whether clients' operations succeeded in each.

A run without successes during a fault proves nothing about the system under that fault, so it must not pass. But when
faults follow each other, the tester cannot tell which of them prevents a success. For example, no broker serves the
partitions of a dead leader until its session expires, even if another fault begins before. So the rule is about
disturbances: faults that overlap, or follow each other so soon (``MAX_GAP``) that recovery in between was impossible.

- A disturbance that lasts as long as a failover, from its first injection to its last heal, must contain a success: an
  operation called and returned in it. A failover is the time until other servers take over (``Contract.failover``),
  plus the time for which clients still wait for the silent server (``Contract.patience``).
- A shorter disturbance need not contain a success if clients were at work in it. If the next disturbance begins before
  the next success, the two are merged.
- A fault of ``Contract.may_stall`` may stall everything, also for a while after its heal. This stall ends with the
  first success after the heal, and after the time of a failover at the latest. A disturbance that begins during the
  stall need not contain a success. An example is a wrong clock on a server that a disk error has just ended. If the
  disturbance begins while the fault is active, it must end within the contract's deadline for recovery.
- At least one disturbance of the run must contain a success. A success during a fault that may stall everything also
  suffices.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.checkers.engine import Engine, Row
from assay.checkers.judging.contract import Contract
from assay.checkers.sql_idioms import EARLIEST_BEGIN, HAS_BEGUN, TARGETS_ZOOKEEPER
from assay.checkers.times import NANOSECONDS, format_seconds
from assay.harness.core.printable import count_noun

MAX_GAP: Final = 450_000_000
"""Maximum nanoseconds from a heal to the next fault of one disturbance.

The faults of a cascading failover (``assay.nemesis.faults.cascading_failover``) have shorter gaps. Between
faults that are drawn at random (``assay.nemesis.schedule.mix``), gaps are longer.
"""

EQUIVALENT: Final = {
    "clock": "wrong_clock",
    "stop-consumer": "pauses_process and on_clients",
    "zookeeper-pause": f"pauses_process and {TARGETS_ZOOKEEPER}",
}
"""Names in a contract that also stand for other faults of equal effect.

The key is the fault's name in the contract. The value is an SQL condition that selects the other faults, which have
another name, or targets of another kind.
"""


LATE_SECONDS: Final = 1.0
"""Minimum delay of a fault in seconds that a reason names."""
ADVICE_IF_LATE: Final = "if nodes answer slowly, raise --nemesis-interval and --time-limit"


@dataclass(frozen=True)
class FaultTimes:
    """Lifetime of a fault. Times are nanoseconds since the run began, and None for a step that did not happen.

    ``failed``: a part of the fault failed, and no retry succeeded. ``hindered``: other faults prevented its injection,
    and the schedule allows that.
    """

    id: int
    name: str
    injected: int | None
    healed: int | None
    failed: bool
    took_effect: bool
    hindered: bool = False
    why: str | None = None
    """The message of its failure, in one line."""
    earliest_begin: int | None = None
    """The earliest time at which the fault may have begun. The injection may have completed later, or have failed."""
    like: tuple[str, ...] = ()
    """Names of other faults with an equal effect (``EQUIVALENT``)."""
    delay: float = 0.0
    """Seconds by which its injection ended later than the schedule plans its begin; 0 if it waited for a trigger."""
    planned_seconds: float | None = None
    """The duration that the schedule plans; None if it is unknown."""

    @property
    def is_cut_short(self) -> bool:
        """Whether the fault was healed in less than half of the time that was planned."""
        if self.planned_seconds is None or self.injected is None or self.healed is None:
            return False
        return 2 * (self.healed - self.injected) < self.planned_seconds * NANOSECONDS

    def describe_lateness(self) -> str:
        """Describes by how much the fault began late or was cut short, with advice; empty if neither is so.

        Faults are injected and healed one after the other. So slow nodes delay faults, and the last one may begin when
        the main phase has ended.
        """
        clauses = [] if self.delay < LATE_SECONDS else [f"began {self.delay:.1f} s later than planned"]
        if self.is_cut_short:
            active = ((self.healed or 0) - (self.injected or 0)) / NANOSECONDS
            clauses.append(f"was active for {active:.1f} s of {self.planned_seconds:g} s")
        return f"it {' and '.join(clauses)}; {ADVICE_IF_LATE}" if clauses else ""

    @property
    def has_begun(self) -> bool:
        """Whether the injection is known to have begun."""
        return self.injected is not None or self.earliest_begin is not None

    def may_overlap(self, start: int, end: int) -> bool:
        """Returns whether the fault may have been active at some moment of the closed interval. It may be active before
        its injection is complete."""
        begin = self.injected if self.earliest_begin is None else self.earliest_begin
        return begin is not None and begin <= end and (self.healed is None or self.healed >= start)

    def overlaps(self, start: int, end: int, injection_start: int | None = None) -> bool:
        """Returns whether the fault was active at some moment of the closed interval. An unhealed fault never ends.

        ``injection_start``: if it is given, a fault that was injected counts as active from then on. Otherwise the
        fault counts as active from the end of its injection.
        """
        begin = self.injected if injection_start is None or self.injected is None else injection_start
        return begin is not None and begin <= end and (self.healed is None or self.healed >= start)


def read_faults(engine: Engine) -> list[FaultTimes]:
    """Returns every fault of the history, ordered by id."""
    # `like_N`: whether the fault fulfils the condition number N of `EQUIVALENT`
    flags = [
        f"max(case when {condition} then 1 else 0 end) as like_{index}, "
        for index, condition in enumerate(EQUIVALENT.values())
    ]
    rows = engine.rows(
        f"select {''.join(flags)}id, min(fault) as fault, min(case when phase = 'injected' then time end) as injected, "
        "max(case when phase = 'healed' then time end) as healed, "
        "max(case when phase = 'healed' and took_effect then 1 else 0 end) as took_effect, "
        "max(case when phase = 'failed' then 1 else 0 end) as failed, "
        "max(case when phase = 'failed' and coalesce(stage, '') <> 'heal' then 1 else 0 end) as failed_otherwise, "
        "max(case when phase = 'failed' and stage = 'hindered' then 1 else 0 end) as hindered, "
        "min(case when phase = 'failed' then detail end) as failure, "
        "min(case when phase = 'intended' then detail end) as plan, "
        "min(case when phase = 'injected' then detail end) as injection, "
        f"case when max(case when {HAS_BEGUN} then 1 else 0 end) = 1 then {EARLIEST_BEGIN} end as earliest_begin "
        "from faults group by id"
    )
    return [
        FaultTimes(
            row["id"],
            row["fault"],
            row["injected"],
            row["healed"],
            failed=_has_failed(row),
            took_effect=bool(row["took_effect"]),
            hindered=bool(row["hindered"]),
            why=_find_failure_reason(row["failure"]),
            earliest_begin=row["earliest_begin"],
            like=tuple(name for index, name in enumerate(EQUIVALENT) if row[f"like_{index}"] and name != row["fault"]),
            **_read_plan(row),
        )
        for row in sorted(rows, key=lambda row: row["id"])
    ]


def parse_detail(text: str | None) -> Mapping[str, Any]:
    """Parses the detail of a row of ``faults``. Returns an empty mapping for a detail that is no JSON object."""
    try:
        detail = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return detail if isinstance(detail, dict) else {}


def _find_failure_reason(failure: str | None) -> str | None:
    """Returns the reason in a failure's detail; for a traceback its last line."""
    reason = str(parse_detail(failure).get("reason", ""))
    return reason.strip().splitlines()[-1] if reason.strip() else None


def _read_plan(row: Row) -> dict[str, float]:
    """Returns the fields of :class:`FaultTimes` that compare the fault with its plan, as far as they are recorded."""
    plan, injection = _read_numbers(row["plan"]), _read_numbers(row["injection"])
    found = {"planned_seconds": plan["duration"]} if "duration" in plan else {}
    if "at" in plan and "at" in injection and "trigger" not in parse_detail(row["injection"]):
        took = (row["injected"] - injection["began"]) / NANOSECONDS if "began" in injection else 0.0
        found["delay"] = max(0.0, injection["at"] - plan["at"] + took)
    return found


def _read_numbers(detail: str | None) -> dict[str, float]:
    return {name: value for name, value in parse_detail(detail).items() if isinstance(value, int | float)}


def _has_failed(row: Row) -> bool:
    """Returns whether a part failed for good. A failed heal does not count if a retry succeeded."""
    return bool(row["failed_otherwise"] or (row["failed"] and row["healed"] is None))


@dataclass(frozen=True)
class Disturbance:
    """Faults that are judged together. ``begin``, ``end``: nanoseconds of the first injection and of the last heal."""

    faults: tuple[FaultTimes, ...]
    begin: int
    end: int

    def __add__(self, later: "Disturbance") -> "Disturbance":
        return Disturbance((*self.faults, *later.faults), self.begin, max(self.end, later.end))

    def describe_lateness(self) -> str:
        """Describes a fault that began late or was cut short, with advice; empty if there is none."""
        return next(filter(None, (one.describe_lateness() for one in self.faults)), "")

    def __str__(self) -> str:
        return "; ".join(
            f"fault {one.id} ({one.name}, {format_seconds(one.injected or 0)} to {format_seconds(one.healed or 0)})"
            for one in self.faults
        )


def find_disturbances(faults: Sequence[FaultTimes], may_stall: Collection[str]) -> list[Disturbance]:
    """Returns the disturbances, ordered by time. Ignores unhealed faults and faults that may stall everything."""
    found: list[Disturbance] = []
    for fault in sorted(faults, key=lambda fault: fault.injected or 0):
        if fault.injected is None or fault.healed is None or fault.name in may_stall:
            continue
        alone = Disturbance((fault,), fault.injected, fault.healed)
        if found and fault.injected <= found[-1].end + MAX_GAP:
            found[-1] += alone
        else:
            found.append(alone)
    return found


def find_silences(
    faults: Sequence[FaultTimes],
    contract: Contract,
    count_succeeded: Callable[[int, int], int],
    count_at_work: Callable[[int, int], int],
    describe_failures: Callable[[int, int], str] = lambda begin, end: "",
) -> list[str]:
    """Returns a reason for each disturbance in which too few operations succeeded.

    If each disturbance was too short to need a success, returns at most one reason for all of them.

    - ``count_succeeded``: counts the successful operations that were called and returned in an interval
    - ``count_at_work``: counts the operations that were called, returned or pending in an interval
    - ``describe_failures``: describes the errors of the operations that ``count_at_work`` counts
    """
    wanted = contract.minimum_during_fault
    stalls = [fault for fault in faults if fault.name in contract.may_stall and fault.injected is not None]
    stall_heals = [fault.healed for fault in stalls if fault.healed is not None]

    def continues_stall(one: Disturbance) -> bool:
        active = [fault for fault in stalls if fault.overlaps(one.begin, one.begin)]
        if any(fault.healed is None or one.end <= fault.healed + contract.deadline for fault in active):
            return True
        since = max((healed for healed in stall_heals if healed <= one.begin), default=None)
        soon = since is not None and one.begin - since < contract.failover_nanoseconds
        return soon and not count_succeeded(since or 0, one.begin)

    reasons: list[str] = []
    without_success: list[Disturbance] = []
    unrecovered: Disturbance | None = None
    any_success = any(
        fault.name in contract.may_stall
        and fault.injected is not None
        and fault.healed is not None
        and count_succeeded(fault.injected, fault.healed) >= wanted
        for fault in faults
    )
    found = find_disturbances(faults, contract.may_stall)
    for index, one in enumerate(found):
        during = count_succeeded(one.begin, one.end)
        merged = one if unrecovered is None else unrecovered + one
        unrecovered = None
        if during >= wanted:
            any_success = True
        elif continues_stall(one):
            continue
        elif merged.end - merged.begin >= contract.failover_nanoseconds:
            advice = (
                f"if the design allows that, set failover and patience in the contract to more than "
                f"{(merged.end - merged.begin) / NANOSECONDS:.3g} s in sum, or name the fault in may_stall"
            )
            if any(fault.is_cut_short for fault in merged.faults):
                advice = merged.describe_lateness()
            reasons.append(
                f"only {count_noun(during, 'operation')} succeeded during {merged}, the contract asks for {wanted}"
                f"{_append(describe_failures(merged.begin, merged.end))}; {advice}"
            )
        elif not count_at_work(one.begin, one.end):
            advice = one.describe_lateness() or "raise --rate, or see why clients do not connect"
            reasons.append(f"no client was at work during {one}; {advice}")
        else:
            without_success.append(one)
            if index + 1 < len(found) and not count_succeeded(one.begin, found[index + 1].begin):
                unrecovered = merged
    if without_success and not any_success and not reasons:
        names = "; ".join(str(one) for one in without_success)
        first = without_success[0]
        reasons.append(
            f"too few operations succeeded during {names}, each shorter than a failover "
            f"({format_seconds(contract.failover_nanoseconds)}: failover and patience); the contract asks for {wanted} "
            f"during one of them{_append(describe_failures(first.begin, first.end))}; "
            f"{first.describe_lateness() or 'let faults last longer (--nemesis-interval)'}"
        )
    return reasons


def _append(clause: str) -> str:
    return f"; {clause}" if clause else ""
