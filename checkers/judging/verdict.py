"""Results of judging: findings, coverage of the checks, and the verdict."""

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

LONGEST_LIST: Final = 6
"""Maximum number of operations per finding in the report, in a failing test's text and in a claim."""

MOST_FINDINGS: Final = 20
"""Maximum number of findings per anomaly; further ones are only counted."""

MOST_OPERATIONS: Final = 20
"""Maximum number of operations per finding that ``verdict.json`` names; further ones are only counted."""

MOST_REASONS: Final = 20
"""Maximum number of similar reasons not to pass, such as one for each key; further ones are only counted."""


def limit_reasons(reasons: Sequence[str], kind: str = "keys") -> list[str]:
    """Returns the first reasons not to pass, and the number of the others. ``kind``: of what each reason is about."""
    others = len(reasons) - MOST_REASONS
    return [*reasons[:MOST_REASONS], *([f"and {others} {kind} more"] if others > 0 else [])]


class Verdict(enum.StrEnum):
    """``unknown``: the evidence supports neither answer, for the reasons given."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


class CycleBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A case of a refutation, in which the operations form a cycle."""

    given: tuple[str, ...]
    """Clauses: the choices that make the case."""
    operations: tuple[int, ...]
    """The operations of the cycle, in its order."""
    reasons: tuple[str, ...]
    """Why each operation comes before the next one, the last before the first."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of an anomaly, with the operations that contradict each other."""

    anomaly: str
    key: str | None
    claim: str
    """A plain sentence with the real numbers."""
    operations: tuple[int, ...] = ()
    """At most ``MOST_OPERATIONS`` indexes into ``ops``. Operations that contradict each other come first."""
    omitted: int = 0
    """Number of further operations that are involved but not named."""
    time: int | None = None
    """Nanoseconds since the run began: the moment to look at."""
    leader: str | None = None
    epoch: int | None = None
    since: int | None = None
    until: int | None = None
    """``since``, ``until``: from the first call to the last return of the operations that contradict each other. The
    cause lies in this interval."""
    faults: tuple[int, ...] = ()
    """Ids of the faults that were active in this interval."""
    about: tuple[str, ...] = ()
    """The records, polls and answers that contradict each other: ``offset 36 of orders-2``."""
    same_cause_as: int | None = None
    """Index of another finding of the judgement, beneath which this finding is shown."""
    first_time: int | None = None
    """Time of the first contradiction. ``operations`` begin with the two operations nearest in time, which may be
    later. None if the check does not tell, and in files of earlier versions."""
    first_operation: int | None = None
    """The operation that showed the contradiction at ``first_time``."""
    cycle: bool = False
    """Whether ``operations`` begin with a cycle, in its order; False in files of earlier versions."""
    reasons: tuple[str, ...] = ()
    """For a cycle, why each operation comes before the next one, the last before the first. Empty if the check does not
    tell."""
    branches: tuple[CycleBranch, ...] = ()
    """For a refutation by cases, the cycle of each case (the first few)."""


class CheckCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """Amount of data that one check examined. A check with 0 ``rows`` had no data, and proves nothing."""

    check: str
    rows: int
    seconds: float
    claims: int | None = None
    """Number of assertions of the history that the check tests. None if the check was not run, and in files of earlier
    versions."""
    exposed: int | None = None
    """Number of claims that the history could have contradicted (``assay.checkers.exposure``)."""
    note: str | None = None
    applies: bool = True
    """False if the history has no data on the check's subject, and needs none. ``note`` names the subject."""


class OperationCount(msgspec.Struct, frozen=True):
    """Operations of one kind by outcome. ``answered``: operations that ended ok or were refused."""

    ok: int = 0
    fail: int = 0
    info: int = 0
    answered: int = 0

    @property
    def issued(self) -> int:
        return self.ok + self.fail + self.info

    def __add__(self, other: "OperationCount") -> "OperationCount":
        return OperationCount(
            self.ok + other.ok, self.fail + other.fail, self.info + other.info, self.answered + other.answered
        )

    def __str__(self) -> str:
        """Returns ``381 ok, 2 failed, 3 unknown`` without the zeros."""
        named = ((self.ok, "ok"), (self.fail, "failed"), (self.info, "unknown"))
        return ", ".join(f"{many:,} {name}" for many, name in named if many) or "none"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``verdict.json``."""

    verdict: Verdict
    anomalies: dict[str, int]
    """Every anomaly found, by name, with its number of instances, whether forbidden or tolerated."""
    forbidden: tuple[str, ...]
    tolerated: tuple[str, ...]
    reasons: dict[str, str] = {}
    """By tolerated anomaly, the reason that the contract gives."""
    findings: tuple[Finding, ...]
    """Forbidden ones first; at most ``MOST_FINDINGS`` per anomaly."""
    examined: tuple[CheckCoverage, ...]
    unknown: tuple[str, ...]
    """Reasons not to pass. They make the verdict unknown unless a forbidden anomaly makes it fail."""
    warnings: tuple[str, ...] = ()
    """Weaknesses of the run that change no verdict, such as a low share of exposed claims."""
    operations: int
    kinds: dict[str, OperationCount] = {}
    """The operations by kind (``f``); empty in files of earlier versions."""
    effects: int
    seconds: float
    engine: str
    meanings: dict[str, str] = {}
    """By anomaly in this judgement, a clause with its meaning; empty in files of earlier versions."""
    interrupted: bool = False
    """The judging itself was stopped: only the checks in ``examined`` were run."""
    stages: dict[str, float] = {}
    """Seconds of each stage of the work, in order. ``seconds`` includes only the stages of the judging itself."""

    @property
    def violations(self) -> dict[str, int]:
        """The forbidden anomalies that were found, with their numbers of instances."""
        return {name: count for name, count in self.anomalies.items() if count and name in self.forbidden}


def add_stage(judgement: Judgement, name: str, seconds: float, *, first: bool = False) -> Judgement:
    """Returns the judgement with the seconds of a further stage. ``first``: before the other stages."""
    one = {name: round(seconds, 6)}
    return msgspec.structs.replace(judgement, stages=one | judgement.stages if first else judgement.stages | one)


def find_beneath(judgement: Judgement, head: Finding) -> tuple[Finding, ...]:
    """Returns the findings that are shown beneath ``head``, one of the judgement's findings."""
    index = next(index for index, finding in enumerate(judgement.findings) if finding is head)
    return tuple(finding for finding in judgement.findings if finding.same_cause_as == index)
