"""A history that is still being written, as a reader may take it: what has been sealed, and what is under way.

At each seal the writer notes how many parts each data set has, and writes the operations that have not ended beside
them, with no known end and an unknown outcome: as they would stand in the history if the run were cut off at that
moment. So what a reader finds is whole, and an operation that it does not find has not been called. Both are in a
folder that goes away when the history is closed.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from assay.harness.core.files import read_json
from assay.harness.core.history.data_sets import HistoryError
from assay.harness.core.history.rows import COLUMNS, EffectRow, OpRow, op_row
from assay.harness.core.history.schema import SCHEMAS, to_batch
from assay.harness.core.operation import Completed, Effect

UNFINISHED: Final = ".unfinished"
SEALED: Final = "sealed.json"

UnderWay = Callable[[], Iterable[tuple[Completed, Sequence[Effect]]]]
"""Gives the operations that have not ended, each as if it had just been given up, with its effects."""


class Sealed(msgspec.Struct, frozen=True):
    """The content of ``sealed.json``. ``number``: of the seal, from 1; ``parts``: of each data set.

    ``under_way``: of each data set that has rows of operations under way, the file in the same folder.
    """

    number: int
    parts: dict[str, int]
    under_way: dict[str, str]

    def paths(self, history: Path) -> dict[str, list[Path]]:
        """The files of each data set, in the order in which they were written."""
        found = {name: [part_of(history, name, number) for number in range(of)] for name, of in self.parts.items()}
        for name, file in self.under_way.items():
            found[name].append(history / UNFINISHED / file)
        return found


def part_of(history: Path, name: str, number: int) -> Path:
    """The file of a sealed part, from 0."""
    return history / name / f"part-{number:06d}.parquet"


def sealed(history: Path) -> Sealed | None:
    """What may be read of a history that is being written; None before the first seal, and once it is closed.

    The files are there until the seal after the next one. Raises ``HistoryError`` when what is noted is damaged.
    """
    path = history / UNFINISHED / SEALED
    try:
        return read_json(path, Sealed)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise HistoryError(
            f"{path} is damaged: {error}; once the run is over, remove {UNFINISHED}/ to judge what is there without "
            "the operations that were under way"
        ) from error


class Growing:
    """The writer's side."""

    def __init__(self, history: Path) -> None:
        self._folder = history / UNFINISHED
        self._number = 0
        self._files: list[list[Path]] = []

    def note(self, parts: Mapping[str, int], under_way: Iterable[tuple[Completed, Sequence[Effect]]]) -> None:
        """All parts have been sealed. Raises ``OSError``."""
        self._number += 1
        ops: list[OpRow] = []
        effects: list[EffectRow] = []
        for completed, of_it in under_way:
            ops.append(op_row(completed))
            effects += [(completed, sub, effect) for sub, effect in enumerate(of_it)]
        files: dict[str, str] = {}
        rows: dict[str, Sequence[OpRow | EffectRow]] = {"effects": effects, "ops": ops}
        for name, some in rows.items():
            if some:
                files[name] = f"{name}-under-way-{self._number:06d}.parquet"
                batch = to_batch(SCHEMAS[name], COLUMNS[name](some))
                with pq.ParquetWriter(self._folder / files[name], SCHEMAS[name]) as file:
                    file.write_batch(batch)
        self._replace(Sealed(self._number, dict(parts), files))
        self._files.append([self._folder / file for file in files.values()])
        while len(self._files) > 2:
            for path in self._files.pop(0):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()

    def _replace(self, noted: Sealed) -> None:
        written = self._folder / f"{SEALED}.next"
        written.write_bytes(msgspec.json.encode(noted))
        os.replace(written, self._folder / SEALED)
