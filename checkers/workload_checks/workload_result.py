"""Collects the findings of a check of a workload, and makes the judgement."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from assay.checkers.judging.verdict import (
    MOST_FINDINGS,
    MOST_OPERATIONS,
    CheckCoverage,
    Finding,
    Judgement,
    Verdict,
    limit_reasons,
)
from assay.checkers.times import shorten_times
from assay.harness.core.operation import Completed, Outcome

ALWAYS = "always"
"""Value of ``WorkloadAnomaly.exposed``: every claim is exposed."""
Fields = Mapping[int, Mapping[str, Any]]
"""Further fields of completions with plain values, by the index of the operation."""
NO_FIELDS: Final[Fields] = {}
MOST_VALUES: Final = 5
"""Maximum number of values that a claim names."""
NO_KEY_NAME = "the history"
"""Name of the object of operations without a key."""


@dataclass(frozen=True)
class WorkloadAnomaly:
    """An anomaly that the check of a workload can find, with the claims that it tests (``checkers.exposure``).

    - ``meaning``: a clause
    - ``claims``: the assertions of a history, in the plural: ``acknowledged adds``
    - ``exposed``: which claims the history could have contradicted: ``if a read was called later``, or ``ALWAYS``
    """

    meaning: str
    claims: str
    exposed: str


@dataclass
class WorkloadResult:
    """The findings of a check. ``examined``: the number of examined items by anomaly, such as reads.

    ``claims`` and ``exposed`` are counts by anomaly, added up over the keys (``checkers.exposure``). ``doubts`` are
    reasons not to pass. ``allowed`` maps anomalies that do not fail the history to the reason. ``counts`` has the
    number of findings by anomaly, including those beyond the first ``MOST_FINDINGS``, which are not kept.
    """

    examined: Mapping[str, int] = field(default_factory=dict)
    claims: Counter[str] = field(default_factory=Counter)
    exposed: Counter[str] = field(default_factory=Counter)
    doubts: list[str] = field(default_factory=list)
    allowed: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def count_claims(self, anomaly: str, claims: Iterable[bool]) -> None:
        """Counts claims of an anomaly. ``claims`` has True for each exposed claim, and False for each other one."""
        found = Counter(claims)
        self.claims[anomaly] += found.total()
        self.exposed[anomaly] += found[True]

    def add_finding(
        self,
        anomaly: str,
        key: str | None,
        claim: str | Callable[[], str],
        operations: Iterable[Completed],
        *,
        cycle: bool = False,
        reasons: Iterable[str] = (),
    ) -> None:
        """Adds a finding. ``claim``: its sentence, or a function that returns it and is called only if the finding is
        kept. ``operations`` contradict each other; the last one shows it.

        ``cycle``: each operation comes before the next, and the last before the first. ``reasons`` says why.
        """
        self.counts[anomaly] += 1
        if self.counts[anomaly] > MOST_FINDINGS:
            return
        involved = list({one.index: one for one in operations}.values())
        moments = [moment for one in involved for moment in (one.call, one.ret) if moment is not None]
        self.findings.append(
            Finding(
                anomaly=anomaly,
                key=key,
                claim=shorten_times(claim if isinstance(claim, str) else claim()),
                operations=tuple(one.index for one in involved[:MOST_OPERATIONS]),
                omitted=max(0, len(involved) - MOST_OPERATIONS),
                time=max(moments, default=None),
                since=min(moments, default=None),
                until=max(moments, default=None),
                cycle=cycle,
                reasons=tuple(map(shorten_times, reasons)),
            )
        )

    def to_judgement(self, operations: int, anomalies: Mapping[str, WorkloadAnomaly], seconds: float) -> Judgement:
        """Returns the judgement. ``anomalies``: all that the check can find."""
        forbidden = tuple(name for name in anomalies if name not in self.allowed)
        found = {name: self.counts[name] for name in anomalies if self.counts[name]}
        fails = any(name in forbidden for name in found)
        return Judgement(
            verdict=Verdict.FAIL if fails else Verdict.UNKNOWN if self.doubts else Verdict.PASS,
            anomalies=found,
            forbidden=forbidden,
            tolerated=tuple(self.allowed),
            reasons={name: f"tolerated because {why}" for name, why in self.allowed.items() if name in found},
            findings=tuple(sorted(self.findings, key=lambda one: one.anomaly in self.allowed)),
            examined=tuple(
                CheckCoverage(
                    check=name, rows=self.examined.get(name, 0), seconds=seconds, claims=self.claims[name],
                    exposed=self.exposed[name],
                )
                for name in anomalies
            ),
            unknown=tuple(limit_reasons(self.doubts, "reasons")),
            operations=operations,
            effects=0,
            seconds=seconds,
            engine="python",
            meanings={name: anomalies[name].meaning for name in found},
        )  # fmt: skip


def group_by_key(operations: Iterable[Completed]) -> dict[str | None, list[Completed]]:
    """Groups operations by key, in order of first occurrence."""
    groups: dict[str | None, list[Completed]] = {}
    for one in operations:
        groups.setdefault(one.operation.key, []).append(one)
    return groups


def select_ok(operations: Iterable[Completed], *verbs: str) -> list[Completed]:
    """Returns the acknowledged operations with one of these verbs."""
    return [one for one in operations if one.operation.f in verbs and one.completion.outcome is Outcome.OK]


def name_object(key: str | None, nameless: str = NO_KEY_NAME) -> str:
    return nameless if key is None else key


def list_elements(value: Any) -> list[Any]:
    """Returns the elements of a vector, a list or a set. Any other value is the only element."""
    if isinstance(value, dict) and value.keys() == {"set"}:
        return list(value["set"])
    return value if isinstance(value, list) else [value]


def describe_some(values: Sequence[Any], total: int | None = None) -> str:
    """Returns the first values and the number of the others: ``1, 2, 3, 4, 5 and 4 more``.

    ``total``: the number of all values, if ``values`` has only the first ``MOST_VALUES`` of them.
    """
    others = (len(values) if total is None else total) - MOST_VALUES
    more = f" and {others} more" if others > 0 else ""
    return f"{', '.join(map(str, values[:MOST_VALUES]))}{more}"
