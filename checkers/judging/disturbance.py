"""Disturbances: groups of faults, and whether clients' operations succeeded in each.

A run without successes during a fault shows nothing of the system under that fault, and must not pass. But the fault
that prevents a success cannot be singled out. By design, no one serves the partitions of a dead leader until its
session is over, so nothing need succeed in the second before that. So the rule is about disturbances: faults that
overlap, or follow each other so soon (``MAX_GAP``) that recovery in between was impossible.

- A disturbance that lasts as long as a failover, from its first strike to its last heal, must contain a success: an
  operation called and returned in it. A failover is the time until others have taken over (``Contract.failover``), plus
  the time for which clients still wait for the silent server (``Contract.patience``).
- A shorter one need not contain a success if clients were at work in it. But it lasts until they succeed again: if the
  next one begins before that, the two are one.
- After a fault that may stall everything (``Contract.may_stall``), a disturbance may begin within the time of a
  failover and before anything has succeeded again. It continues that stall, so nothing need succeed in it.
- Something must have succeeded during at least one disturbance of the run, or during a fault that may stall everything
  and did not.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.checkers.engine import Engine, Row
from assay.checkers.judging.contract import Contract
from assay.checkers.sql_idioms import EARLIEST_BEGIN, HAS_BEGUN, TARGETS_ZOOKEEPER
from assay.checkers.times import NANOSECONDS, seconds
from assay.harness.core.printable import count_noun

MAX_GAP: Final = 450_000_000
"""Maximum nanoseconds from a heal to the next fault of one disturbance.

The faults of a cascading failover (``assay.nemesis.faults.cascading_failover``) are closer to each other; episodes of
the mix are farther apart.
"""

EQUIVALENT: Final = {
    "clock": "wrong_clock",
    "stop-consumer": "pauses_process and on_clients",
    "zookeeper-pause": f"pauses_process and {TARGETS_ZOOKEEPER}",
}
"""Faults whose name in a contract stands for all faults of equal effect, with the condition that identifies those. They
have another name or targets of another kind.
"""


@dataclass(frozen=True)
class FaultTimes:
    """Lifetime of a fault; times are nanoseconds since the run began, None for what did not happen.

    ``failed``: some part failed for good; a heal is retried until it succeeds. ``hindered``: other faults kept it from
    being injected, in a schedule that allows that.
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
    since: int | None = None
    """The earliest time at which it may have begun: before its injection was complete, also if that failed half way."""
    like: tuple[str, ...] = ()
    """Names of other faults with an equal effect (``EQUIVALENT``)."""

    @property
    def begun(self) -> bool:
        """Whether it did anything to its targets, as far as is known."""
        return self.injected is not None or self.since is not None

    def disturbs(self, start: int, end: int) -> bool:
        """Returns whether it may have been active at some moment of the closed interval, also before its injection was
        complete."""
        since = self.injected if self.since is None else self.since
        return since is not None and since <= end and (self.healed is None or self.healed >= start)

    def overlaps(self, start: int, end: int, began: int | None = None) -> bool:
        """Returns whether it was active at some moment of the closed interval. A fault that never healed lasts for
        ever.

        ``began``: the begin of its injection, for callers that count the fault as active from then on.
        """
        since = self.injected if began is None or self.injected is None else began
        return since is not None and since <= end and (self.healed is None or self.healed >= start)


def read_faults(engine: Engine) -> list[FaultTimes]:
    """Returns every fault of the history, ordered by id."""
    flags = [f"max(case when {test} then 1 else 0 end) as like_{at}, " for at, test in enumerate(EQUIVALENT.values())]
    rows = engine.rows(
        f"select {''.join(flags)}id, min(fault) as fault, min(case when phase = 'injected' then time end) as injected, "
        "max(case when phase = 'healed' then time end) as healed, "
        "max(case when phase = 'healed' and took_effect then 1 else 0 end) as took_effect, "
        "max(case when phase = 'failed' then 1 else 0 end) as failed, "
        "max(case when phase = 'failed' and coalesce(stage, '') <> 'heal' then 1 else 0 end) as failed_otherwise, "
        "max(case when phase = 'failed' and stage = 'hindered' then 1 else 0 end) as hindered, "
        "min(case when phase = 'failed' then detail end) as failure, "
        f"case when max(case when {HAS_BEGUN} then 1 else 0 end) = 1 then {EARLIEST_BEGIN} end as since "
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
            since=row["since"],
            like=tuple(name for at, name in enumerate(EQUIVALENT) if row[f"like_{at}"] and name != row["fault"]),
        )
        for row in sorted(rows, key=lambda row: row["id"])
    ]


def parse_detail(text: str | None) -> Mapping[str, Any]:
    """Parses the detail of a row of ``faults``. A detail that is no JSON object, as in foreign histories, is empty."""
    try:
        detail = json.loads(text or "{}")
    except ValueError:
        return {}
    return detail if isinstance(detail, dict) else {}


def _find_failure_reason(failure: str | None) -> str | None:
    """Returns the reason in a failure's detail; for a traceback its last line."""
    reason = str(parse_detail(failure).get("reason", ""))
    return reason.strip().splitlines()[-1] if reason.strip() else None


def _has_failed(row: Row) -> bool:
    """Returns whether a part failed for good. A heal is retried until it succeeds, so a failed try does not count."""
    return bool(row["failed_otherwise"] or (row["failed"] and row["healed"] is None))


@dataclass(frozen=True)
class Disturbance:
    """Faults that count as one. ``begin``, ``end``: nanoseconds of the first injection and of the last heal."""

    faults: tuple[FaultTimes, ...]
    begin: int
    end: int

    def __add__(self, later: "Disturbance") -> "Disturbance":
        return Disturbance((*self.faults, *later.faults), self.begin, max(self.end, later.end))

    def __str__(self) -> str:
        return "; ".join(
            f"fault {one.id} ({one.name}, {seconds(one.injected or 0)} to {seconds(one.healed or 0)})"
            for one in self.faults
        )


def find_disturbances(faults: Sequence[FaultTimes], may_stall: Collection[str]) -> list[Disturbance]:
    """Returns the disturbances by time, without unhealed faults and those that may stall everything."""
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
    """Returns a reason for each disturbance in which too little succeeded. If each was too short to need a success,
    returns at most one reason for all of them.

    Both functions count operations in an interval: ``count_succeeded`` those called and returned in it,
    ``count_at_work`` all that were called, returned or pending in it. ``describe_failures`` says with which errors the
    latter ended.
    """
    wanted = contract.minimum_during_fault
    stall_heals = [fault.healed for fault in faults if fault.name in contract.may_stall and fault.healed is not None]

    def continues_stall(one: Disturbance) -> bool:
        since = max((healed for healed in stall_heals if healed <= one.begin), default=None)
        soon = since is not None and one.begin - since < contract.failing_over
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
        elif merged.end - merged.begin >= contract.failing_over:
            reasons.append(
                f"only {count_noun(during, 'operation')} succeeded during {merged}, the contract asks for {wanted}"
                f"{_add(describe_failures(merged.begin, merged.end))}; if the design allows that, give a failover and "
                f"patience of more than {(merged.end - merged.begin) / NANOSECONDS:.3g} s in all, or name the fault in "
                "may_stall"
            )
        elif not count_at_work(one.begin, one.end):
            reasons.append(f"no client was at work during {one}; raise --rate, or see why clients do not connect")
        else:
            without_success.append(one)
            if index + 1 < len(found) and not count_succeeded(one.begin, found[index + 1].begin):
                unrecovered = merged
    if without_success and not any_success and not reasons:
        names = "; ".join(str(one) for one in without_success)
        first = without_success[0]
        reasons.append(
            f"too few operations succeeded during {names}, each shorter than a failover "
            f"({seconds(contract.failing_over)}: failover and patience); the contract asks for {wanted} during one of "
            f"them{_add(describe_failures(first.begin, first.end))}; let faults last longer (--nemesis-interval)"
        )
    return reasons


def _add(clause: str) -> str:
    return f"; {clause}" if clause else ""
