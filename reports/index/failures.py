"""Groups failed runs of systems without a planted defect into failures, by system, workload, anomalies and shape.

The shape is the sequence of fault kinds in a shrunk schedule. If runs with these anomalies have only one known shape, a
run without a shrunk schedule counts as a run of this shape. Otherwise such runs form a failure of their own.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from assay.harness.core.failure_rate import FailureRate
from assay.reports.index.entry import CellKey, Entry, NightEntry, RunVerdict, StoreContents
from assay.reports.index.known import KnownFailures, Mark

Key = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""System, workload, anomalies and shape of a failure."""


@dataclass(frozen=True)
class Failure:
    """A failure. ``entries``: the failed runs, the newest first.

    ``rate``: share of the failed runs among all runs of their cells that passed or failed. A pass whose run is no
    longer in the store counts for ``last_pass_version``, but not for a rate.
    """

    system: str
    workload: str
    anomalies: tuple[str, ...]
    shape: tuple[str, ...]
    entries: tuple[Entry, ...]
    rate: FailureRate
    since: FailureRate
    """The failure rate since the first failed run began."""
    nights: int
    """Number of nights on which the failure occurred."""
    new: bool
    """Whether the failure first occurred on the newest night."""
    tonight: bool
    """Whether the failure occurred on the newest night."""
    last_pass_version: str
    """The version of the last pass of its cells before the first failed run; empty if unknown."""
    suspects: tuple[str, ...]
    """The known versions after ``last_pass_version``, up to the version of the first failed run."""
    commits: tuple[str, ...]
    """The known commits after ``last_pass_version``, up to the version of the first failed run, the newest first."""
    mark: Mark | None
    """The mark by which a user declared the failure as known."""
    expired: bool
    """Whether the mark has expired."""

    @property
    def fails_night(self) -> bool:
        """Whether the failure makes the night fail: it has no mark, or an expired mark."""
        return self.mark is None or self.expired

    @property
    def example(self) -> Entry:
        """The run to repeat. Runs with a shrunk schedule are preferred, then simulated runs, which are reproducible."""
        return max(self.entries, key=lambda one: (bool(one.shape), one.cell.cluster == "sim", one.started))


def group_failures(store: StoreContents, known: KnownFailures) -> list[Failure]:
    """Returns the failures: new ones first, then other failures of the newest night, then the rest, each the latest
    first."""
    runs = [entry for entry in store.entries if not entry.cell.defect]
    groups = _group_by_key([entry for entry in runs if entry.verdict is RunVerdict.FAIL])
    by_cell: dict[CellKey, list[Entry]] = defaultdict(list)
    for entry in runs:
        # Runs that are no longer in the store do not count, whether they passed or failed.
        if entry.verdict in (RunVerdict.PASS, RunVerdict.FAIL) and not entry.gone:
            by_cell[entry.cell].append(entry)
    passes: dict[Hashable, list[Entry]] = defaultdict(list)
    for entry in runs:
        for place in _identify_cells(entry) if entry.verdict is RunVerdict.PASS else ():
            passes[place].append(entry)
    night_started = store.tonight.started if store.tonight else ""
    versions = _find_first_times(runs)
    found = [
        _build_failure(
            key, group, by_cell, _find_last_pass(group, passes), versions, store.nights, night_started, known
        )
        for key, group in groups.items()
    ]
    found.sort(key=lambda one: (one.entries[0].started, one.system, one.workload, one.anomalies), reverse=True)
    return sorted(found, key=lambda one: (not one.new, not one.tonight))


def _group_by_key(failed: Sequence[Entry]) -> dict[Key, list[Entry]]:
    shapes: dict[Key, set[tuple[str, ...]]] = defaultdict(set)
    for one in failed:
        if one.shape:
            shapes[_make_key(one, ())].add(one.shape)
    groups: dict[Key, list[Entry]] = defaultdict(list)
    for one in failed:
        known = shapes[_make_key(one, ())]
        groups[_make_key(one, one.shape or (next(iter(known)) if len(known) == 1 else ()))].append(one)
    return groups


def _make_key(entry: Entry, shape: tuple[str, ...]) -> Key:
    return entry.cell.system, entry.cell.workload, entry.anomalies, shape


def _build_failure(
    key: Key,
    group: list[Entry],
    by_cell: dict[CellKey, list[Entry]],
    last_pass_version: str,
    versions: dict[str, str],
    nights: Sequence[NightEntry],
    night_started: str,
    known: KnownFailures,
) -> Failure:
    system, workload, anomalies, shape = key
    first = group[0]
    runs = [entry for cell in {entry.cell for entry in group} for entry in by_cell[cell]]
    mark = known.find_mark(system, workload, anomalies)
    return Failure(
        system=system,
        workload=workload,
        anomalies=anomalies,
        shape=shape,
        entries=tuple(reversed(group)),
        rate=FailureRate(len(group), len(runs)),
        since=FailureRate(len(group), sum(1 for one in runs if one.started >= first.started)),
        nights=len({entry.night for entry in group}),
        new=first.started >= night_started,
        tonight=group[-1].started >= night_started,
        last_pass_version=last_pass_version,
        suspects=_list_versions_between(versions, last_pass_version, first.version),
        commits=_list_commits_between(nights, last_pass_version, first.version),
        mark=mark,
        expired=mark is not None and known.is_expired(mark),
    )


def _identify_cells(entry: Entry) -> set[Hashable]:
    """Returns up to two identifiers of the entry's cell. A pass belongs to the cell if it has one of them.

    They are the cell without the defect, and the name of the cell in the night's matrix. ``Entry.cell`` is not enough,
    because its system may include a defect, and its nemesis may be a found schedule.
    """
    places: set[Hashable] = {entry.pass_cell, entry.night_cell}
    return places - {""}


def _find_last_pass(group: Sequence[Entry], passes: dict[Hashable, list[Entry]]) -> str:
    """Returns the version of the last pass before the first run of ``group``.

    For a variant of a system, such as one with a defect, passes of its cell in the night's matrix take precedence. If
    there are none, passes of the plain system count.
    """
    started = group[0].started

    def find_last(places: set[Hashable]) -> str:
        passed = [one for place in places for one in passes.get(place, ()) if one.started < started]
        return max(passed, key=lambda one: one.started).version if passed else ""

    every = {place for entry in group for place in _identify_cells(entry)}
    variants = all(entry.pass_cell != entry.cell for entry in group)
    return (find_last({entry.night_cell for entry in group if entry.night_cell}) if variants else "") or find_last(
        every
    )


def _find_first_times(entries: Iterable[Entry]) -> dict[str, str]:
    """Returns each version with the first time at which a run reported it."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.version:
            found.setdefault(entry.version, entry.started)
    return found


def _list_versions_between(versions: dict[str, str], passed: str, failed: str) -> tuple[str, ...]:
    """Returns the versions after ``passed`` up to ``failed``; empty if either is unknown."""
    if not (passed and failed):
        return ()
    return tuple(name for name, first in versions.items() if versions[passed] < first <= versions[failed])


def _list_commits_between(nights: Sequence[NightEntry], passed: str, failed: str) -> tuple[str, ...]:
    """Returns the commits after the version ``passed`` up to ``failed``, night by night.

    Returns no commits if a night between them has no known predecessor.
    """
    night_by_version = {
        night.version: night for night in reversed(nights) if night.previous_version not in ("", night.version)
    }
    found: list[str] = []
    version = failed
    while passed and version != passed:
        night = night_by_version.pop(version, None)
        if night is None:
            return ()
        found += night.commits
        version = night.previous_version
    return tuple(found)
