"""The manifest of a history that is still being written: its sealed parts and its unfinished operations.

1. At each seal (a part is complete, and moves into the folder: ``writer``), the writer records in the manifest how many
   parts each data set has.
2. It also writes the unfinished operations as if the run were cut off now: without an end, with an unknown outcome.
3. A reader therefore finds a complete history: an operation that is absent has not been called.

The manifest and the files of unfinished operations are in a folder that is removed when the history is closed.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import pyarrow.parquet as pq

from assay.harness.core.files import read_json
from assay.harness.core.history.data_sets import MAY_BE_MISSING, HistoryError
from assay.harness.core.history.rows import COLUMNS, EffectRow, OpRow, to_op_row
from assay.harness.core.history.schema import SCHEMAS, to_batch
from assay.harness.core.operation import Completed, Effect

UNFINISHED: Final = ".unfinished"
"""The folder, inside of the history's."""
SEALED: Final = "sealed.json"
"""The manifest."""
MOST_PARTS: Final = 1_000_000
"""Maximum number of parts of a data set. A higher number shows that the manifest is damaged."""

ReadUnfinished = Callable[[], Iterable[tuple[Completed, Sequence[Effect]]]]
"""Returns the unfinished operations and their effects, each as if its time limit had just passed."""


class LiveManifest(msgspec.Struct, frozen=True):
    """The content of ``sealed.json``.

    - ``number``: the number of the seal, from 1.
    - ``parts``: how many parts each data set has. A data set that was added in a later version may be absent.
    - ``under_way``: by data set, the file in this folder with the rows of unfinished operations.
    """

    number: int
    parts: dict[str, Annotated[int, msgspec.Meta(ge=0, le=MOST_PARTS)]]
    under_way: dict[str, str]

    def __post_init__(self) -> None:
        lacking = [name for name in SCHEMAS if name not in self.parts and name not in MAY_BE_MISSING]
        if lacking:
            raise ValueError(f"no number of parts of {', '.join(lacking)}")
        for name, file in self.under_way.items():
            if name not in SCHEMAS or Path(file).name != file:
                raise ValueError(f"{file!r} is no file of unfinished operations of a data set {name!r}")

    def paths(self, history: Path) -> dict[str, list[Path]]:
        """Returns the files of each data set, in writing order."""
        paths = {
            name: [get_part_path(history, name, number) for number in range(self.parts.get(name, 0))]
            for name in SCHEMAS
        }
        for name, file in self.under_way.items():
            paths[name].append(history / UNFINISHED / file)
        return paths


def get_part_path(history: Path, name: str, number: int) -> Path:
    """Returns the path of a sealed part; parts are numbered from 0."""
    return history / name / f"part-{number:06d}.parquet"


def read_manifest(history: Path) -> LiveManifest | None:
    """Reads the manifest of a history; None before the first seal and after the history is closed.

    The files that it names exist until the seal after the next one. Raises ``HistoryError`` if the manifest is damaged.
    """
    path = history / UNFINISHED / SEALED
    try:
        return read_json(path, LiveManifest)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise HistoryError(
            f"{path} is damaged: {error}; once the run is over, remove {UNFINISHED}/ to judge what is there without "
            "the operations that were under way"
        ) from error


class LiveManifestWriter:
    """Writes the manifest of a history at each seal, and removes the files that no reader may still need."""

    def __init__(self, history: Path) -> None:
        self._folder = history / UNFINISHED
        self._number = 0
        self._files: list[list[Path]] = []

    def write(self, parts: Mapping[str, int], unfinished: Iterable[tuple[Completed, Sequence[Effect]]]) -> None:
        """Writes the manifest after all parts have been sealed. Raises ``OSError``."""
        self._number += 1
        ops: list[OpRow] = []
        effects: list[EffectRow] = []
        for completed, its_effects in unfinished:
            ops.append(to_op_row(completed))
            effects += [(completed, sub, effect) for sub, effect in enumerate(its_effects)]
        files: dict[str, str] = {}
        rows: dict[str, Sequence[OpRow | EffectRow]] = {"effects": effects, "ops": ops}
        for name, new in rows.items():
            if new:
                files[name] = f"{name}-under-way-{self._number:06d}.parquet"
                batch = to_batch(SCHEMAS[name], COLUMNS[name](new))
                with pq.ParquetWriter(self._folder / files[name], SCHEMAS[name]) as file:
                    file.write_batch(batch)
        manifest = self._folder / f"{SEALED}.next"
        manifest.write_bytes(msgspec.json.encode(LiveManifest(self._number, dict(parts), files)))
        os.replace(manifest, self._folder / SEALED)
        self._files.append([self._folder / file for file in files.values()])
        while len(self._files) > 2:
            for path in self._files.pop(0):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
