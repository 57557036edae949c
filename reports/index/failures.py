"""One failure, one entry: runs without a defect that failed, by system, workload, anomalies and shape.

The shape is that of a shrunk schedule: its kinds of faults, in order. Runs whose schedule was not made small go with
the one shape that is known of their anomalies; where there are several, or none, they are an entry of their own.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from assay.harness.core.failure_rate import Rate
from assay.reports.index.entry import CellKey, Entry, NightEntry, Standing, Stored
from assay.reports.index.known import Known, Mark

Key = tuple[str, str, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Failure:
    """``entries``: the runs that had it, newest first. ``rate``: of all runs of their cells that passed or failed.

    A pass whose run is no longer in the store says what was green, and is in no rate.
    """

    system: str
    workload: str
    anomalies: tuple[str, ...]
    shape: tuple[str, ...]
    entries: tuple[Entry, ...]
    rate: Rate
    since: Rate
    """The same of the runs that began with the first of these, or later."""
    nights: int
    """On how many nights it was seen."""
    new: bool
    """Not seen before the newest night."""
    tonight: bool
    green: str
    """The version of the last pass of its cells before the first of these runs; empty where none is stated."""
    suspects: tuple[str, ...]
    """The versions after ``green``, up to that of the first of these runs, as far as runs state them."""
    commits: tuple[str, ...]
    """After ``green``, up to the version of the first of these runs, the newest first; as far as nights record them."""
    mark: Mark | None
    expired: bool

    @property
    def counts(self) -> bool:
        """Is it new to someone: unmarked, or with a mark that is over?"""
        return self.mark is None or self.expired

    @property
    def example(self) -> Entry:
        """The run to repeat: one whose schedule is small, in the simulation, where a seed gives the same again."""
        return max(self.entries, key=lambda one: (bool(one.shape), one.cell.cluster == "sim", one.started))


def failures(store: Stored, known: Known) -> list[Failure]:
    """New ones first, then those of tonight, then the others; of each the latest first."""
    runs = [entry for entry in store.entries if not entry.cell.defect]
    groups = _grouped([entry for entry in runs if entry.standing is Standing.FAIL])
    by_cell: dict[CellKey, list[Entry]] = defaultdict(list)
    for entry in runs:
        if entry.standing in (Standing.PASS, Standing.FAIL) and not entry.gone:  # those that failed do not count either
            by_cell[entry.cell].append(entry)
    passes: dict[Hashable, list[Entry]] = defaultdict(list)
    for entry in runs:
        for place in _places(entry) if entry.standing is Standing.PASS else ():
            passes[place].append(entry)
    since = store.tonight.started if store.tonight else ""
    versions = _first_stated(runs)
    found = [
        _failure(key, group, by_cell, _green(group, passes), versions, store.nights, since, known)
        for key, group in groups.items()
    ]
    found.sort(key=lambda one: (one.entries[0].started, one.system, one.workload, one.anomalies), reverse=True)
    return sorted(found, key=lambda one: (not one.new, not one.tonight))


def _grouped(failed: Sequence[Entry]) -> dict[Key, list[Entry]]:
    shapes: dict[Key, set[tuple[str, ...]]] = defaultdict(set)
    for one in failed:
        if one.shape:
            shapes[_key(one, ())].add(one.shape)
    groups: dict[Key, list[Entry]] = defaultdict(list)
    for one in failed:
        known = shapes[_key(one, ())]
        groups[_key(one, one.shape or (next(iter(known)) if len(known) == 1 else ()))].append(one)
    return groups


def _key(entry: Entry, shape: tuple[str, ...]) -> Key:
    return entry.cell.system, entry.cell.workload, entry.anomalies, shape


def _failure(
    key: Key,
    group: list[Entry],
    by_cell: dict[CellKey, list[Entry]],
    green: str,
    versions: dict[str, str],
    nights: Sequence[NightEntry],
    since: str,
    known: Known,
) -> Failure:
    system, workload, anomalies, shape = key
    first = group[0]
    runs = [entry for cell in {entry.cell for entry in group} for entry in by_cell[cell]]
    mark = known.mark(system, workload, anomalies)
    return Failure(
        system=system,
        workload=workload,
        anomalies=anomalies,
        shape=shape,
        entries=tuple(reversed(group)),
        rate=Rate(len(group), len(runs)),
        since=Rate(len(group), sum(1 for one in runs if one.started >= first.started)),
        nights=len({entry.night for entry in group}),
        new=first.started >= since,
        tonight=group[-1].started >= since,
        green=green,
        suspects=_between(versions, green, first.version),
        commits=_commits(nights, green, first.version),
        mark=mark,
        expired=mark is not None and known.expired(mark),
    )


def _places(entry: Entry) -> set[Hashable]:
    """What makes a pass one of the same cell: a defect changes the system's name, a found schedule the faults'."""
    places: set[Hashable] = {entry.before, entry.planned}
    return places - {""}


def _green(group: Sequence[Entry], passes: dict[Hashable, list[Entry]]) -> str:
    """The version of the last pass before the first of these runs.

    For a variant of a system, such as one with a defect, the cell of its night's matrix says that; a pass of the plain
    system in another cell does so only where that one has none.
    """
    started = group[0].started

    def last(places: set[Hashable]) -> str:
        passed = [one for place in places for one in passes.get(place, ()) if one.started < started]
        return max(passed, key=lambda one: one.started).version if passed else ""

    every = {place for entry in group for place in _places(entry)}
    variants = all(entry.before != entry.cell for entry in group)
    return (last({entry.planned for entry in group if entry.planned}) if variants else "") or last(every)


def _first_stated(entries: Iterable[Entry]) -> dict[str, str]:
    """Each version with the time at which a run stated it first."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.version:
            found.setdefault(entry.version, entry.started)
    return found


def _between(versions: dict[str, str], green: str, red: str) -> tuple[str, ...]:
    """Without a version on both sides there is nothing between them."""
    if not (green and red):
        return ()
    return tuple(name for name, first in versions.items() if versions[green] < first <= versions[red])


def _commits(nights: Sequence[NightEntry], green: str, red: str) -> tuple[str, ...]:
    """From night to night back; nothing where a night in between does not say what it came after."""
    came = {night.version: night for night in reversed(nights) if night.after not in ("", night.version)}
    found: list[str] = []
    version = red
    while green and version != green:
        night = came.pop(version, None)
        if night is None:
            return ()
        found += night.commits
        version = night.after
    return tuple(found)
