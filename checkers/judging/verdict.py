"""What a check says: findings, and a verdict that is never a guess."""

import enum
from typing import Final

import msgspec

LONGEST_LIST: Final = 6
"""Operations of one finding that a person has to read, on the page, in a failing test's text and in a claim."""

MOST_OPERATIONS: Final = 20
"""Operations of one finding that ``verdict.json`` names; the rest is counted."""


class Verdict(enum.StrEnum):
    """``unknown``: the evidence supports neither answer, for the reasons given."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of an anomaly, with the operations that contradict each other."""

    anomaly: str
    key: str | None
    claim: str
    """One plain sentence with the real numbers."""
    operations: tuple[int, ...] = ()
    """Indexes into ``ops``, at most ``MOST_OPERATIONS``, those that contradict each other first."""
    omitted: int = 0
    """How many more operations are involved, which are not named."""
    time: int | None = None
    """Nanoseconds since the run began: the moment to look at."""
    leader: str | None = None
    epoch: int | None = None
    since: int | None = None
    until: int | None = None
    """From the first call to the last return of the operations that contradict each other: the cause lies there."""
    faults: tuple[int, ...] = ()
    """Ids of the faults in force at some moment of that time."""
    about: tuple[str, ...] = ()
    """The records, polls and answers that it is about: ``offset 36 of orders-2``."""
    same_cause_as: int | None = None
    """The place in the judgement's findings of the one beneath which this one is shown."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What one check looked at. ``rows`` 0 means that it had no data, and proves nothing."""

    check: str
    rows: int
    seconds: float
    note: str | None = None
    applies: bool = True
    """False: the history does not speak of what it is about, and need not; ``note`` says of what."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``verdict.json``."""

    verdict: Verdict
    anomalies: dict[str, int]
    """Every anomaly found, by name, with its number of instances, whether forbidden or tolerated."""
    forbidden: tuple[str, ...]
    tolerated: tuple[str, ...]
    reasons: dict[str, str] = {}
    """Why an anomaly is tolerated in this run, where the contract says so: for its faults, or in any run."""
    findings: tuple[Finding, ...]
    """Forbidden ones first; at most 20 per anomaly."""
    examined: tuple[Examined, ...]
    unknown: tuple[str, ...]
    """Why the verdict is unknown, or would be if nothing had failed."""
    operations: int
    effects: int
    seconds: float
    engine: str
    meanings: dict[str, str] = {}
    """What the anomalies named here mean, one clause each; empty in files of earlier versions."""
    interrupted: bool = False
    """The judging itself was stopped: only what ``examined`` names was looked at."""
    stages: dict[str, float] = {}
    """Seconds of each part of the work, of ``seconds`` and of what came before and after, in their order."""


def with_stage(judgement: Judgement, name: str, seconds: float, *, first: bool = False) -> Judgement:
    """The same, of which this part has taken so many seconds. ``first``: before the others."""
    one = {name: round(seconds, 6)}
    return msgspec.structs.replace(judgement, stages=one | judgement.stages if first else judgement.stages | one)


def beneath_of(judgement: Judgement, head: Finding) -> tuple[Finding, ...]:
    """What else was found of the same cause as ``head``, one of the judgement's findings."""
    place = next(place for place, finding in enumerate(judgement.findings) if finding is head)
    return tuple(finding for finding in judgement.findings if finding.same_cause_as == place)
