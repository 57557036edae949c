"""``nightly.toml``: what a night does, as blocks of lists that multiply into cells. ``docs/nightly.md`` lists the keys.

Nothing is guessed: a key that there is not, a value that cannot be, a file that is not there, a name that two cells
would share are errors that say where, and what there is.
"""

import difflib
import glob
import shlex
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from assay.harness.nights.night import Cell, Kind, NightError
from assay.harness.run.settings import CLUSTERS, SIM, SettingsError, parse_budget, parse_choice
from assay.harness.run.systems import system_named

ANY: Final = "any"
"""The nemesis of a search that may use every fault that suits the system."""
OWN: Final = (
    "--seed", "--store", "--cluster", "--nemesis", "--replay", "--defect", "--explore", "-n", "--numprocesses",
)  # fmt: skip
"""Options that the night says itself; and a cell is one process."""


@dataclass(frozen=True)
class Place:
    """Where the matrix lies, and its table of systems."""

    folder: Path
    systems: Mapping[str, str]

    def system(self, name: str | None) -> str:
        if name is None and len(self.systems) == 1:
            return next(iter(self.systems))
        if name not in self.systems:
            raise SettingsError(f"system={name or ''!r} is not one of [systems]: {', '.join(self.systems)}")
        return name

    def workloads(self, given: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The names, and what pytest is given; of a folder each of its modules."""
        for text in given:
            path, _, test = text.partition("::")
            there = self.folder / path
            if there.is_dir() and not test:
                yield from ((one.stem, f"{path.rstrip('/')}/{one.name}") for one in sorted(there.glob("test_*.py")))
            elif there.is_file():
                yield there.stem + text.removeprefix(path), text
            else:
                raise SettingsError(f"workloads: no {text!r}{_instead(path, self._modules(there.parent))}")

    def schedules(self, patterns: Sequence[str]) -> Iterator[str]:
        for pattern in patterns:
            found = sorted(glob.glob(pattern, root_dir=self.folder))
            if not found:
                raise SettingsError(f"schedules: no file is {pattern!r} in {self.folder}")
            yield from found

    def _modules(self, folder: Path) -> list[str]:
        return [str(one.relative_to(self.folder)) for one in sorted(folder.glob("test_*.py"))]


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """What every block may say. ``label`` stands in the names of its cells, where two would be the same."""

    system: str | None = None
    label: str = ""
    options: tuple[str, ...] = ()
    repeat: Annotated[int, msgspec.Meta(ge=1)] = 1
    timeout: str = "10min"

    def cells(self, place: Place) -> Iterator[Cell]:
        """Raises ``SettingsError``."""
        raise NotImplementedError

    def _cell(self, kind: Kind, place: Place, parts: Sequence[str], arguments: Sequence[str], **fields: Any) -> Cell:
        for option in self.options:
            if option.partition("=")[0] in OWN or option.startswith("-n"):
                raise SettingsError(f"options: {option} is not for here; the night itself says {', '.join(OWN)}")
        return Cell(
            name="/".join([kind, *([self.label] if self.label else []), *parts]),
            kind=kind,
            system=place.system(self.system),
            arguments=(*arguments, *self.options),
            repeat=self.repeat,
            **{"timeout": seconds("timeout", self.timeout), **fields},
        )


class RunBlock(Block, frozen=True, kw_only=True):
    workloads: tuple[str, ...]
    nemeses: tuple[str, ...] = ("none",)
    clusters: tuple[str, ...] = (SIM,)

    def cells(self, place: Place) -> Iterator[Cell]:
        for (name, path), nemesis, cluster in product(
            place.workloads(self.workloads), self.nemeses, _clusters(self.clusters)
        ):
            yield self._cell(
                Kind.RUN, place, (name, _plus(nemesis), cluster),
                (path, f"--nemesis={nemesis}", f"--cluster={cluster}"),
                workload=name, nemesis=_plus(nemesis), cluster=cluster,
            )  # fmt: skip


class ExploreBlock(Block, frozen=True, kw_only=True):
    workloads: tuple[str, ...]
    budget: str
    nemeses: tuple[str, ...] = (ANY,)

    def cells(self, place: Place) -> Iterator[Cell]:
        budget = parse_budget("budget", self.budget)
        for (name, path), nemesis in product(place.workloads(self.workloads), self.nemeses):
            yield self._cell(
                Kind.EXPLORE, place, (name, _plus(nemesis)),
                (path, f"--explore={self.budget}", *([] if nemesis == ANY else [f"--nemesis={nemesis}"])),
                workload=name, nemesis=_plus(nemesis), cluster=SIM,
                timeout=seconds("timeout", self.timeout) + (budget.seconds or 0.0),
            )  # fmt: skip


class CanaryBlock(Block, frozen=True, kw_only=True):
    """``defects``: none are all that the system describes. Without ``workloads`` each has its own described run."""

    defects: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    nemeses: tuple[str, ...] = ("none",)
    clusters: tuple[str, ...] = (SIM,)

    def cells(self, place: Place) -> Iterator[Cell]:
        name = place.system(self.system)
        system = system_named(place.systems[name])
        described = {one.name: one for one in getattr(system, "described_defects", ())}
        known = [*described, *(one for one in system.defects if one not in described)]
        for defect in self.defects or known:
            if defect not in known:
                raise SettingsError(f"defects: {name} has no {defect!r}{_instead(defect, known)}")
            expected = tuple(described[defect].anomalies) if defect in described else ()
            for parts, fields, arguments in self._runs(place, described[defect].run if defect in described else ""):
                yield self._cell(
                    Kind.CANARY, place, (defect, *parts), (*arguments, f"--defect={defect}"),
                    defect=defect, expected=expected, **fields,
                )  # fmt: skip

    def _runs(self, place: Place, run: str) -> Iterator[tuple[tuple[str, ...], dict[str, str], tuple[str, ...]]]:
        if self.workloads:
            for (name, path), nemesis, cluster in product(
                place.workloads(self.workloads), self.nemeses, _clusters(self.clusters)
            ):
                fields = {"workload": name, "nemesis": _plus(nemesis), "cluster": cluster}
                yield tuple(fields.values()), fields, (path, f"--nemesis={nemesis}", f"--cluster={cluster}")
            return
        if not run:
            raise SettingsError("workloads: none are given, and the system describes no run of its own for each defect")
        path, *options = shlex.split(run)
        said = dict(option.partition("=")[::2] for option in options)
        (_, file), *_ = place.workloads([path])
        nemesis = _plus(said.get("--nemesis", Path(said.get("--replay", "none")).stem))
        for cluster in [said["--cluster"]] if "--cluster" in said else _clusters(self.clusters):
            fields = {"workload": Path(path).stem, "nemesis": nemesis, "cluster": cluster}
            others = [option for option in options if not option.startswith("--cluster=")]
            yield (cluster,), fields, (file, *others, f"--cluster={cluster}")


class ScheduleBlock(Block, frozen=True, kw_only=True):
    workloads: tuple[str, ...]
    schedules: tuple[str, ...]
    clusters: tuple[str, ...] = (SIM,)

    def cells(self, place: Place) -> Iterator[Cell]:
        for (name, path), file, cluster in product(
            place.workloads(self.workloads), place.schedules(self.schedules), _clusters(self.clusters)
        ):
            schedule = Path(file).stem
            yield self._cell(
                Kind.SCHEDULE, place, (name, schedule, cluster), (path, f"--replay={file}", f"--cluster={cluster}"),
                workload=name, nemesis=schedule, cluster=cluster,
            )  # fmt: skip


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The file. ``systems``: by the names that cells have for them, ``package.module:Class``."""

    systems: Annotated[dict[str, str], msgspec.Meta(min_length=1)]
    run: tuple[RunBlock, ...] = ()
    explore: tuple[ExploreBlock, ...] = ()
    canary: tuple[CanaryBlock, ...] = ()
    schedule: tuple[ScheduleBlock, ...] = ()


BLOCKS: Final[Mapping[str, type[Block]]] = {
    "run": RunBlock, "explore": ExploreBlock, "canary": CanaryBlock, "schedule": ScheduleBlock,
}  # fmt: skip


def read(path: Path) -> tuple[Cell, ...]:
    """The cells of this file, in its order. Raises :class:`NightError`."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise NightError(f"there is no {path}: write it (docs/nightly.md), or name another with --matrix") from None
    except (OSError, ValueError) as error:
        raise NightError(f"{path}: {error}") from error
    try:
        _only(Matrix, table, "the file")
        for kind, block in BLOCKS.items():
            if not isinstance(table.get(kind, []), list):
                raise SettingsError(f"{kind} is a list of blocks: write [[{kind}]], with two brackets")
            for number, one in enumerate(table.get(kind, []), start=1):
                _only(block, one, f"[[{kind}]] number {number}")
        matrix = msgspec.convert(table, Matrix)
    except (SettingsError, msgspec.ValidationError) as error:
        raise NightError(f"{path}: {error}") from None
    place = Place(path.parent, matrix.systems)
    found: list[Cell] = []
    for kind in BLOCKS:
        for number, one in enumerate(getattr(matrix, kind), start=1):
            try:
                found += one.cells(place)
            except SettingsError as error:
                raise NightError(f"{path}: [[{kind}]] number {number}: {error}") from None
    if not found:
        raise NightError(f"{path} has no cells: it needs one of {', '.join(f'[[{kind}]]' for kind in BLOCKS)}")
    twice = [name for name, count in Counter(cell.name for cell in found).items() if count > 1]
    if twice:
        raise NightError(f'{path}: two cells are named {twice[0]}: give one of their blocks a label = "..."')
    return tuple(found)


def seconds(key: str, text: str) -> float:
    """Raises ``SettingsError`` for what is no time."""
    found = parse_budget(key, text).seconds
    if found is None:
        raise SettingsError(f"{key}={text!r} has no unit: write {text}s, {text}min or {text}h")
    return found


def _only(kind: type[msgspec.Struct], table: Any, where: str) -> None:
    """Raises ``SettingsError`` for a key that this kind of table has not."""
    allowed = [field.name for field in msgspec.structs.fields(kind)]
    for key in table if isinstance(table, dict) else ():
        if key not in allowed:
            raise SettingsError(f"{where}: there is no key {key!r}{_instead(key, allowed)}")


def _instead(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return (f"; did you mean {near[0]!r}?" if near else "") + f" There are: {', '.join(known) or 'none'}"


def _plus(nemesis: str) -> str:
    """As runs name it: ``kill+partition``."""
    return nemesis.replace(",", "+")


def _clusters(given: Sequence[str]) -> list[str]:
    return [parse_choice("clusters", one, CLUSTERS) for one in given]
