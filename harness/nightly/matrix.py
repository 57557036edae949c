"""Reads ``nightly.toml``: blocks of lists whose combinations are the cells of a night. docs/guide/nightly.md has the
keys.

Unknown keys, invalid values, missing files and duplicate cell names are errors. Their messages name the place and the
valid choices.

A night begins with the cells that failed last time. Then come the other cells, those that ran longest ago first.
"""

import difflib
import glob
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from assay.harness.core.files import decode_toml, read_file
from assay.harness.nightly.night_record import (
    NOT_CAUSED_BY_CELL,
    AttemptResult,
    CellKind,
    MatrixCell,
    NightError,
    group_by_cell,
    needs_attention,
)
from assay.harness.run.settings import CLUSTERS, SIM, SettingsError, parse_budget, parse_choice
from assay.harness.run.systems import find_system

ANY: Final = "any"
"""The nemesis of a search that may use every fault that suits the system."""
NIGHT_OPTIONS: Final = ("--seed", "--store", "--cluster", "--nemesis", "--replay", "--explore", "-n", "--numprocesses")
"""Options that a block may not have, because the night sets them. For a canary it also sets ``--defect``. ``-n`` is one
of them, because a cell is one process.
"""
MOST_REPEATS: Final = 100_000
MOST_CELLS: Final = 50_000


class MatrixBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block of the file, such as ``[[run]]``. ``KEYS`` has the keys of each kind. ``label``: a part of cell names."""

    workloads: tuple[str, ...] = ()
    nemeses: tuple[str, ...] = ()
    clusters: tuple[str, ...] = (SIM,)
    defects: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    budget: str = ""
    system: str | None = None
    label: str = ""
    options: tuple[str, ...] = ()
    repeat: Annotated[int, msgspec.Meta(ge=1, le=MOST_REPEATS)] = 1
    timeout: str = "10min"


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file.

    - ``systems``: by name, the class of a system: ``package.module:Class``
    - ``shrink``: the time for shrinking each new failure; empty: no shrinking
    """

    systems: Annotated[dict[str, str], msgspec.Meta(min_length=1)]
    shrink: str = ""
    run: tuple[MatrixBlock, ...] = ()
    explore: tuple[MatrixBlock, ...] = ()
    canary: tuple[MatrixBlock, ...] = ()
    schedule: tuple[MatrixBlock, ...] = ()


COMMON_KEYS: Final = ("workloads", "system", "label", "options", "repeat", "timeout")
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    CellKind.RUN: (*COMMON_KEYS, "nemeses", "clusters"),
    CellKind.EXPLORE: (*COMMON_KEYS, "nemeses", "budget"),
    CellKind.CANARY: (*COMMON_KEYS, "nemeses", "clusters", "defects"),
    CellKind.SCHEDULE: (*COMMON_KEYS, "schedules", "clusters"),
}
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    CellKind.RUN: ("workloads",), CellKind.EXPLORE: ("workloads", "budget"), CellKind.CANARY: (),
    CellKind.SCHEDULE: ("workloads", "schedules"),
}  # fmt: skip


@dataclass(frozen=True)
class CellVariant:
    """The values in which the cells of a block differ."""

    workload: str
    nemesis: str
    cluster: str
    arguments: tuple[str, ...]


def read_plan(path: Path) -> tuple[tuple[MatrixCell, ...], float]:
    """Returns the cells, in the order of the file, and the seconds for shrinking each new failure.

    Raises :class:`NightError`.
    """
    try:
        table = decode_toml(read_file(path))
    except FileNotFoundError:
        raise NightError(
            f"there is no {path}: write it (docs/guide/nightly.md), or name another with --matrix"
        ) from None
    except (OSError, ValueError) as error:
        raise NightError(f"{path}: {error}") from error
    cells: list[MatrixCell] = []
    where = ""
    try:
        _require_keys([field.name for field in msgspec.structs.fields(Matrix)], table)
        matrix = msgspec.convert(table, Matrix)
        shrink = parse_seconds("shrink", matrix.shrink) if matrix.shrink else 0.0
        for kind in CellKind:
            for number, block in enumerate(getattr(matrix, kind), start=1):
                where = f" [[{kind}]] number {number}:"
                _require_keys(KEYS[kind], table[kind][number - 1], REQUIRED[kind])
                cells += islice(_make_cells(kind, block, MatrixFolder(path.parent, matrix.systems)), MOST_CELLS + 1)
                if len(cells) > MOST_CELLS:
                    raise SettingsError(f"a night has at most {MOST_CELLS:,} cells: shorten the lists of this block")
    except (SettingsError, msgspec.ValidationError) as error:
        raise NightError(f"{path}:{where} {error}") from None
    if not cells:
        raise NightError(f"{path} has no cells: it needs one of {', '.join(f'[[{kind}]]' for kind in CellKind)}")
    duplicates = [name for name, count in Counter(cell.name for cell in cells).items() if count > 1]
    if duplicates:
        raise NightError(f'{path}: two cells are named {duplicates[0]}: give one of their blocks a label = "..."')
    return tuple(cells), shrink


def parse_seconds(key: str, text: str) -> float:
    """Parses a time with its unit. Raises ``SettingsError`` for any other text."""
    try:
        seconds = parse_budget(key, text).seconds
    except SettingsError:
        raise SettingsError(f"{key}={text!r} is not a time: write 30s, 5min or 8h") from None
    if seconds is None:
        raise SettingsError(f"{key}={text!r} has no unit: write {text}s, {text}min or {text}h")
    return seconds


@dataclass(frozen=True)
class MatrixFolder:
    """The folder of the matrix, and its table of systems. Its methods raise ``SettingsError`` if nothing is found."""

    folder: Path
    systems: Mapping[str, str]

    def choose_system(self, name: str | None) -> str:
        """Returns the system of this name, or the only one."""
        if name is None and len(self.systems) == 1:
            return next(iter(self.systems))
        return parse_choice("system", name or "", tuple(self.systems))

    def find_workloads(self, given: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields the names of workloads with their pytest arguments. A folder stands for all its modules."""
        for text in given:
            path, _, test = text.partition("::")
            target = self.folder / path
            if target.is_dir() and not test:
                yield from ((one.stem, f"{path.rstrip('/')}/{one.name}") for one in sorted(target.glob("test_*.py")))
            elif target.is_file():
                yield target.stem + text.removeprefix(path), text
            else:
                modules = [str(one.relative_to(self.folder)) for one in sorted(target.parent.glob("test_*.py"))]
                raise SettingsError(f"workloads: there is no {text!r}{_suggest(path, modules)}")

    def find_schedules(self, patterns: Sequence[str]) -> Iterator[str]:
        """Yields the files that match the patterns."""
        for pattern in patterns:
            files = sorted(glob.glob(pattern, root_dir=self.folder))
            if not files:
                raise SettingsError(f"schedules: no file in {self.folder} matches {pattern!r}")
            yield from files


def _make_cells(kind: CellKind, block: MatrixBlock, matrix: MatrixFolder) -> Iterator[MatrixCell]:
    reserved = (*NIGHT_OPTIONS, "--defect") if kind is CellKind.CANARY else NIGHT_OPTIONS
    for option in block.options:
        if option.partition("=")[0] in reserved or option.startswith("-n"):
            raise SettingsError(f"options: {option} is not allowed here; the night itself sets {', '.join(reserved)}")
    limit = parse_seconds("timeout", block.timeout)
    if block.budget:
        limit += parse_budget("budget", block.budget).seconds or 0.0
    defects: Iterable[tuple[str | None, tuple[str, ...], str]] = [(None, (), "")]
    if kind is CellKind.CANARY:
        defects = _find_defects(block, matrix)
    for defect, expected, run in defects:
        for variant in _read_described_run(run, block, matrix) if run else _make_variants(kind, block, matrix):
            names = [] if run else [variant.workload, variant.nemesis]
            name = "/".join(part for part in (kind, block.label, defect, *names, variant.cluster) if part)
            if not name.isprintable():
                raise SettingsError(
                    f"a cell would be named {name!r}, with a character that is not printable: remove it"
                )
            yield MatrixCell(
                name=name,
                kind=kind,
                workload=variant.workload,
                system=matrix.choose_system(block.system),
                nemesis=variant.nemesis,
                cluster=variant.cluster,
                defect=defect,
                arguments=(*variant.arguments, *([f"--defect={defect}"] if defect else []), *block.options),
                repeat=block.repeat,
                timeout=limit,
                expected=expected,
            )


def _make_variants(kind: CellKind, block: MatrixBlock, matrix: MatrixFolder) -> Iterator[CellVariant]:
    option, faults = "--nemesis", block.nemeses or ((ANY,) if kind is CellKind.EXPLORE else ("none",))
    if kind is CellKind.SCHEDULE:
        option, faults = "--replay", tuple(matrix.find_schedules(block.schedules))
    explore = [f"--explore={block.budget}"] if kind is CellKind.EXPLORE else []
    for (name, path), fault, cluster in product(matrix.find_workloads(block.workloads), faults, _read_clusters(block)):
        faults_option = [] if explore and fault == ANY else [f"{option}={fault}"]
        nemesis = Path(fault).stem if kind is CellKind.SCHEDULE else fault.replace(",", "+")
        yield CellVariant(name, nemesis, cluster, (path, *explore, *faults_option, f"--cluster={cluster}"))


def _find_defects(block: MatrixBlock, matrix: MatrixFolder) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yields (defect, expected anomalies, run) for the named defects, or for all.

    ``run``: the arguments of pytest that show the defect, by its description in `assay defects`. It is empty if the
    block has workloads.
    """
    name = matrix.choose_system(block.system)
    system = find_system(matrix.systems[name])
    described = {one.name: one for one in getattr(system, "described_defects", ())}
    known = list(dict.fromkeys((*described, *system.defects)))
    if block.nemeses and not block.workloads:
        raise SettingsError("nemeses goes with workloads; without them each defect has the run of `assay defects`")
    for defect in block.defects or known:
        description = described.get(defect)
        if defect not in known:
            raise SettingsError(f"defects: {name} has no {defect!r}{_suggest(defect, known)}")
        if description is None and not block.workloads:
            raise SettingsError(f"workloads is missing: {name} describes no run that shows {defect}")
        if description is None:
            yield defect, (), ""
        else:
            yield defect, tuple(description.anomalies), "" if block.workloads else description.run


def _read_described_run(run: str, block: MatrixBlock, matrix: MatrixFolder) -> Iterator[CellVariant]:
    """Yields the variants of a run in the list of ``assay defects``. A run that names its cluster has only that one."""
    path, *options = shlex.split(run)
    given = dict(option.partition("=")[::2] for option in options)
    others = [option for option in options if not option.startswith("--cluster=")]
    nemesis = given.get("--nemesis", Path(given.get("--replay", "none")).stem).replace(",", "+")
    ((name, file),) = matrix.find_workloads([path])
    for cluster in [given["--cluster"]] if "--cluster" in given else _read_clusters(block):
        yield CellVariant(name, nemesis, cluster, (file, *others, f"--cluster={cluster}"))


def _read_clusters(block: MatrixBlock) -> list[str]:
    return [parse_choice("clusters", one, CLUSTERS) for one in block.clusters]


def _require_keys(allowed: Collection[str], table: dict[str, Any], required: Sequence[str] = ()) -> None:
    """Raises ``SettingsError`` for an unknown key and for a missing one."""
    for key in table:
        if key not in allowed:
            raise SettingsError(f"there is no key {key!r}{_suggest(key, allowed)}")
    for key in required:
        if not table.get(key):
            raise SettingsError(f"{key} is missing")


def _suggest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return (f"; did you mean {near[0]!r}?" if near else ".") + f" There are: {', '.join(known) or 'none'}"


@dataclass(frozen=True)
class LastCellResult:
    """The last result of a cell.

    - ``needs_attention``: see ``night_record.needs_attention``
    - ``started``: when its last attempt began, in ISO 8601, UTC
    - ``seconds``: duration of its longest attempt
    """

    needs_attention: bool
    started: str
    seconds: float


def read_last_results(nights: Iterable[Sequence[AttemptResult]]) -> dict[str, LastCellResult]:
    """Returns the last result of each cell. ``nights``: results by night, the oldest first."""
    ends: dict[str, LastCellResult] = {}
    for results in nights:
        for name, attempts in group_by_cell(results).items():
            if counting := [one for one in attempts if one.outcome not in NOT_CAUSED_BY_CELL]:
                started, longest = max(one.started for one in counting), max(one.seconds for one in counting)
                ends[name] = LastCellResult(needs_attention([one.outcome for one in counting]), started, longest)
    return ends


def sort_by_urgency(cells: Sequence[MatrixCell], earlier: Mapping[str, LastCellResult]) -> list[MatrixCell]:
    """Sorts cells by urgency. Cells that never ran count as the oldest; equal cells stay in the matrix's order."""
    never = LastCellResult(False, "", 0.0)

    def compute_urgency(cell: MatrixCell) -> tuple[bool, str]:
        one = earlier.get(cell.name, never)
        return not one.needs_attention, one.started

    return sorted(cells, key=compute_urgency)


@dataclass
class AttemptQueue:
    """The remaining attempts of a night: first one of each cell, then further attempts of the cells that repeat.

    The attempts are generated, because a list of them all may not fit into the memory.

    - ``done``: cells and numbers of the attempts that are left out
    - ``len()``: the number of remaining attempts, including those for which there is no time
    """

    cells: Sequence[MatrixCell]
    done: Collection[tuple[str, int]]
    _too_long: set[str] = field(default_factory=set)
    """Cells for which there is no time. They are dropped for good, because the remaining time only decreases."""
    _first: tuple[MatrixCell, int] | None = None

    def __post_init__(self) -> None:
        repeats = {cell.name: cell.repeat for cell in self.cells}
        self._count = sum(repeats.values()) - sum(1 <= number <= repeats.get(name, 0) for name, number in self.done)
        self._attempts = self._make_attempts()

    def __len__(self) -> int:
        return self._count

    def find_first(self, seconds: Mapping[str, float], left: float) -> tuple[MatrixCell, int] | None:
        """Returns the next attempt, with its number from 1, for which ``left`` seconds suffice; None if there is none.

        ``seconds``: how long each cell took last time.
        """
        while self._first is None or seconds.get(self._first[0].name, 0.0) > left:
            if self._first is not None:
                self._too_long.add(self._first[0].name)
            self._first = next(self._attempts, None)
            if self._first is None:
                return None
        return self._first

    def remove_first(self) -> None:
        """Removes the attempt that :meth:`find_first` has returned."""
        self._first = None
        self._count -= 1

    def _make_attempts(self) -> Iterator[tuple[MatrixCell, int]]:
        cells, number = list(self.cells), 1
        while cells:
            for cell in cells:
                if cell.name not in self._too_long and (cell.name, number) not in self.done:
                    yield cell, number
            number += 1
            cells = [cell for cell in cells if cell.repeat >= number and cell.name not in self._too_long]
