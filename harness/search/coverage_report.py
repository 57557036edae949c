"""Coverage reports of searches: each search leaves a file in the store, and ``assay search show`` sums them up per
test.

A search that finds nothing proves only as much as it has reached. So a report has two parts:

- each feature (``states``) with the number of examples that reached it
- what could have been reached: the system's turning points, the faults that could be drawn, lines and branches
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from assay.harness.core.files import read_json, write_atomically
from assay.harness.run.store import to_safe_name
from assay.harness.search.code_coverage.coverage_file import Count, ModuleCoverage, merge_searches

SEARCHES: Final = "searches"
"""The folder of the store that holds the reports."""
NO_FAULT: Final = "nothing"
"""Stands for the active faults if there were none."""

_EVENT: Final = re.compile(r"(\S+) x\d+")
_EVENT_DURING: Final = re.compile(r"(\S+) during (\S+)")
_INJECTED: Final = re.compile(r"(\S+) injected")
"""Patterns of features (``coverage_features``)."""


class CoverageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage of one search, or of several searches of one test.

    - ``states``: each feature, with the number of examples that reached it
    - ``events``: the turning points that the system declares; an example may reach further events
    - ``faults``: the faults that could be drawn
    """

    test: str
    started: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    examples: Count
    verdicts: dict[str, Count]
    states: dict[str, Count]
    events: tuple[str, ...]
    faults: tuple[str, ...]
    searches: Count = 1
    code: tuple[ModuleCoverage, ...] = ()
    """Lines and branches of the system; empty if they were not counted."""

    @property
    def event_counts(self) -> dict[str, int]:
        """Returns each event of the logs with its number of examples."""
        return _sum_counts((match[1], many) for match, many in self._match_features(_EVENT))

    @property
    def fault_counts(self) -> dict[str, int]:
        """Returns each injected fault with its number of examples."""
        return _sum_counts((match[1], many) for match, many in self._match_features(_INJECTED))

    @property
    def events_during(self) -> dict[str, dict[str, int]]:
        """Returns, by active fault or ``nothing``, each event with a lower bound of the number of its examples.

        Examples are counted by combination of active faults. The bound is the count of the most frequent combination.
        """
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for match, many in self._match_features(_EVENT_DURING):
            for fault in match[2].split("+"):
                counts[fault][match[1]] = max(counts[fault][match[1]], many)
        return {fault: dict(events) for fault, events in counts.items()}

    @property
    def sequences(self) -> dict[str, int]:
        """Returns two or three consecutive events of one node about one key, with their number of examples."""
        return {state: many for state, many in self.states.items() if " > " in state}

    @property
    def missing_events(self) -> list[str]:
        """Returns the turning points that no example reached."""
        return sorted(set(self.events) - self.event_counts.keys())

    @property
    def missing_faults(self) -> list[str]:
        """Returns the faults that no example injected, although they could be drawn."""
        return sorted(set(self.faults) - self.fault_counts.keys())

    def _match_features(self, pattern: re.Pattern[str]) -> Iterable[tuple[re.Match[str], int]]:
        for state, many in self.states.items():
            if match := pattern.fullmatch(state):
                yield match, many


def store_report(store: Path, report: CoverageReport) -> Path:
    """Writes the report into the store and returns its file."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    path = store / SEARCHES / f"{to_safe_name(report.test)}-{moment}Z.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.encode(report, order="sorted"))
    return path


def load_reports(path: Path) -> list[CoverageReport]:
    """Reads one report, or all reports of a store, and sums up the searches of each test.

    Raises ``FileNotFoundError`` if there is none, and ``ValueError`` for a file that is no report.
    """
    folder = path / SEARCHES
    files = [path] if path.is_file() else sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(
            f"{path} holds no coverage report: run a search, pytest workloads/ --explore=10min, and give its store"
        )
    by_test: defaultdict[str, list[CoverageReport]] = defaultdict(list)
    for file in files:
        report = _read_report(file)
        by_test[report.test].append(report)
    return [merge_reports(reports) for _, reports in sorted(by_test.items())]


def merge_reports(reports: Sequence[CoverageReport]) -> CoverageReport:
    """Sums up the searches of one test."""
    return CoverageReport(
        test=reports[0].test,
        started=min(one.started for one in reports),
        seconds=sum(one.seconds for one in reports),
        examples=sum(one.examples for one in reports),
        verdicts=_sum_counts(pair for one in reports for pair in one.verdicts.items()),
        states=_sum_counts(pair for one in reports for pair in one.states.items()),
        events=tuple(sorted({event for one in reports for event in one.events})),
        faults=tuple(sorted({fault for one in reports for fault in one.faults})),
        searches=sum(one.searches for one in reports),
        code=merge_searches([one.code for one in sorted(reports, key=lambda one: one.started)]),
    )


def find_rarest(counts: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Returns at most ``most`` entries, those with the fewest examples first."""
    return sorted(counts.items(), key=lambda pair: (pair[1], pair[0]))[:most]


def _read_report(file: Path) -> CoverageReport:
    try:
        return read_json(file, CoverageReport)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} is no coverage report of a search, move it away: {error}") from error


def _sum_counts(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name, many in pairs:
        total[name] += many
    return dict(total)
