"""Faults, the disturbances that they make together, and whether clients got something done in each.

A run in which nothing succeeded while a fault was in force shows nothing of the system under that fault, and must not
pass. But which of several faults keeps operations from their success at a moment cannot be said, and by design no one
serves what a dead server has led until its session is over: nothing need succeed in the second before that. So what is
asked is asked of a disturbance: faults that overlap, or follow each other so soon (``TOGETHER``) that no one could have
recovered in between.

- One that lasts as long as a failover does for clients, from its first strike to its last heal, must hold a success:
  an operation called and returned in it. That is the time until others have taken over (``Contract.failover``), and
  then that for which clients still wait for the one that is silent (``Contract.patience``).
- A shorter one need not, if clients were at work in it. But it lasts until they succeed again: when the next begins
  before that, the two are one.
- One that begins while all come back from a fault that may stall everything (``Contract.may_stall``), within the time
  of a failover and before anything has succeeded again, goes on with what that has begun: nothing need succeed in it.
- Something must have succeeded during at least one disturbance of the run, or during a fault that may stall everything
  and did not.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.checkers.engine import Engine, Row
from assay.checkers.judging.contract import Contract
from assay.checkers.sql_idioms import BEGUN, MAY_BEGIN, OF_ZOOKEEPER
from assay.checkers.times import seconds

TOGETHER: Final = 450_000_000
"""Nanoseconds from a heal to the next fault, at most, of faults that are one disturbance.

The strikes of a relay (``assay.nemesis.faults.cascading_failover``) are closer to each other; episodes of the mix are
farther apart.
"""

ALIKE: Final = {
    "clock": "wrong_clock",
    "stop-consumer": "pauses_process and on_clients",
    "zookeeper-pause": f"pauses_process and {OF_ZOOKEEPER}",
}
"""Faults that a contract may name for what they do, and who does the same under another name or to a target of another
kind, as it declares it: the columns of its rows say so."""


@dataclass(frozen=True)
class FaultTimes:
    """One fault's life; times in nanoseconds since the run began, None for what did not happen.

    ``failed``: in a part that did not succeed later either; a heal is tried again until it does. ``hindered``: other
    faults kept it from being injected, in a schedule that allows for that.
    """

    id: int
    name: str
    injected: int | None
    healed: int | None
    failed: bool
    took_effect: bool
    hindered: bool = False
    why: str | None = None
    """What a failure of it said, in one line."""
    since: int | None = None
    """When it may have begun, if it did: before it was injected, and also where that failed half way."""
    like: tuple[str, ...] = ()
    """Others that it is as good as (``ALIKE``)."""

    @property
    def begun(self) -> bool:
        """Whether it did anything to its targets, as far as is known."""
        return self.injected is not None or self.since is not None

    def disturbs(self, start: int, end: int) -> bool:
        """Whether it may have been in the way at some moment of the closed interval."""
        since = self.injected if self.since is None else self.since
        return since is not None and since <= end and (self.healed is None or self.healed >= start)

    def overlaps(self, start: int, end: int, began: int | None = None) -> bool:
        """Whether it was in force at some moment of the closed interval; one that never healed lasts for ever.

        ``began``: when its injection did, for who asks what it may have done before that was complete.
        """
        since = self.injected if began is None or self.injected is None else began
        return since is not None and since <= end and (self.healed is None or self.healed >= start)


def faults(engine: Engine) -> list[FaultTimes]:
    """Every fault of the history, in the order of their ids."""
    alike = [f"max(case when {does} then 1 else 0 end) as alike_{at}, " for at, does in enumerate(ALIKE.values())]
    rows = engine.rows(
        f"select {''.join(alike)}id, min(fault) as fault, min(case when phase = 'injected' then time end) as injected, "
        "max(case when phase = 'healed' then time end) as healed, "
        "max(case when phase = 'healed' and took_effect then 1 else 0 end) as took_effect, "
        "max(case when phase = 'failed' then 1 else 0 end) as failed, "
        "max(case when phase = 'failed' and coalesce(stage, '') <> 'heal' then 1 else 0 end) as failed_otherwise, "
        "max(case when phase = 'failed' and stage = 'hindered' then 1 else 0 end) as hindered, "
        "min(case when phase = 'failed' then detail end) as failure, "
        f"case when max(case when {BEGUN} then 1 else 0 end) = 1 then {MAY_BEGIN} end as since "
        "from faults group by id"
    )
    return [
        FaultTimes(
            row["id"],
            row["fault"],
            row["injected"],
            row["healed"],
            failed=_failed(row),
            took_effect=bool(row["took_effect"]),
            hindered=bool(row["hindered"]),
            why=_why(row["failure"]),
            since=row["since"],
            like=tuple(name for at, name in enumerate(ALIKE) if row[f"alike_{at}"] and name != row["fault"]),
        )
        for row in sorted(rows, key=lambda row: row["id"])
    ]


def detail_of(text: str | None) -> Mapping[str, Any]:
    """What a row says beside its columns. It is for people to read, and may be anything in a history that came from
    elsewhere.
    """
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _why(failure: str | None) -> str | None:
    """Of the detail of a failure; of a traceback the last line."""
    reason = str(detail_of(failure).get("reason", ""))
    return reason.strip().splitlines()[-1] if reason.strip() else None


def _failed(row: Row) -> bool:
    """A heal is tried again until it succeeds."""
    return bool(row["failed_otherwise"] or (row["failed"] and row["healed"] is None))


@dataclass(frozen=True)
class Disturbance:
    """Faults that are one; ``begin`` and ``end`` in nanoseconds: the first strike, and the last heal."""

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


def disturbances(known: Sequence[FaultTimes], may_stall: Collection[str]) -> list[Disturbance]:
    """By time; without faults that were not healed, and those that may stall everything."""
    found: list[Disturbance] = []
    for fault in sorted(known, key=lambda fault: fault.injected or 0):
        if fault.injected is None or fault.healed is None or fault.name in may_stall:
            continue
        alone = Disturbance((fault,), fault.injected, fault.healed)
        if found and fault.injected <= found[-1].end + TOGETHER:
            found[-1] += alone
        else:
            found.append(alone)
    return found


def silences(
    known: Sequence[FaultTimes],
    contract: Contract,
    succeeded: Callable[[int, int], int],
    at_work: Callable[[int, int], int],
) -> list[str]:
    """A reason for each disturbance in which too little succeeded; or one for all, where none had to by itself.

    Both functions count operations from one time to another: ``succeeded`` those called and returned in it,
    ``at_work`` all that were called, returned or waited for in it.
    """
    wanted = contract.minimum_during_fault
    back = [fault.healed for fault in known if fault.name in contract.may_stall and fault.healed is not None]

    def stalled(one: Disturbance) -> bool:
        since = max((healed for healed in back if healed <= one.begin), default=None)
        soon = since is not None and one.begin - since < contract.failing_over
        return soon and not succeeded(since or 0, one.begin)

    reasons: list[str] = []
    quiet: list[Disturbance] = []
    unrecovered: Disturbance | None = None
    busy = any(
        fault.name in contract.may_stall
        and fault.injected is not None
        and fault.healed is not None
        and succeeded(fault.injected, fault.healed) >= wanted
        for fault in known
    )
    found = disturbances(known, contract.may_stall)
    for place, one in enumerate(found):
        during = succeeded(one.begin, one.end)
        whole = one if unrecovered is None else unrecovered + one
        unrecovered = None
        if during >= wanted:
            busy = True
        elif stalled(one):
            continue
        elif whole.end - whole.begin >= contract.failing_over:
            reasons.append(f"only {during} operations succeeded during {whole}, the contract asks for {wanted}")
        elif not at_work(one.begin, one.end):
            reasons.append(f"no client was at work during {one}")
        else:
            quiet.append(one)
            if place + 1 < len(found) and not succeeded(one.begin, found[place + 1].begin):
                unrecovered = whole
    if quiet and not busy and not reasons:
        names = "; ".join(str(one) for one in quiet)
        reasons.append(
            f"too few operations succeeded during {names}, each shorter than a failover "
            f"({seconds(contract.failing_over)}); the contract asks for {wanted} during one of them"
        )
    return reasons
