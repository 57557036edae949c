"""The contract of a stored history: read, lost, or given by the user.

A run is judged by the contract that is stored with it. Without that, its promises are unknown, so a run that failed
could pass. Three cases:

1. ``settings.json`` holds a contract of a schema that this version knows: that contract.
2. The history is a run's, and its contract is missing or unreadable: it is lost. An anomaly that no contract can
   tolerate (``INTOLERABLE``) still fails the run. Any other makes it unknown, and so does none. It never passes.
3. The history was written by something else, or generated: the strictest contract, which forbids every anomaly.

A user may give the contract of a run that has lost its own (``--contract``), never one in place of a stored one.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from assay.checkers.judging.contract import INTOLERABLE, Contract
from assay.checkers.judging.judge import UNNAMED
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.files import read_json
from assay.harness.core.history import CLOSED, SCHEMAS, HistoryError, translation
from assay.harness.core.history.data_sets import FORMAT, FORMAT_KEY, OF_RUN, ORIGIN_KEY
from assay.harness.core.history.live_manifest import UNFINISHED
from assay.harness.core.history.worker_nodes import FILE as THROUGH
from assay.harness.run import store

STRICTEST: Final = "strictest"
"""In place of a file: every anomaly that applies is forbidden."""
LOST: Final = Contract(forbidden=INTOLERABLE, needed=())
"""The certain part of the verdict on a run whose contract is lost."""
PLANTED: Final = "planted.json"
"""A file beside a generated history (``assay generate``), which is the history of no run."""
_EARLIER_RUN: Final = b"earlier"
"""The origin of a file that names none, and has exactly the columns that a run of an earlier version wrote.

Files of other tools differ, because writers of Parquet mark every column as nullable by default.
"""


FORMER_FIELDS: Final = frozenset({"family"})
"""Fields of a contract that no promise depends on any more. ``family`` was about histories of format 1."""


class LostContractError(Exception):
    """There is no contract that can be relied on; the message says why."""


def is_of_a_run(history: Path) -> bool:
    """Whether a history folder was written by a run, and not by another tool or by ``assay generate``.

    One file of a run is enough: a copy may lack all others. Files of earlier versions do not say whether a run wrote
    them. They count as a run's if they have the exact columns of their format, or if other files show it.
    """
    origins = [origin for name in SCHEMAS for origin in _origins(history / name, name)]
    if OF_RUN in origins:
        return True
    if (history.parent / PLANTED).is_file():
        return False
    if (history / THROUGH).exists() or (history / UNFINISHED).exists() or _EARLIER_RUN in origins:
        return True
    # Only runs have events of nodes. Another program may have written the files again, so that they differ.
    return None in origins and (history / CLOSED).exists() and any(_rows(history / "events"))


def _origins(folder: Path, name: str) -> Iterator[bytes | None]:
    """The origin of each file of a data set; None: another tool wrote it."""
    for part in sorted(folder.glob("*.parquet")):
        # A damaged file says nothing here; it is named when the history is opened.
        with contextlib.suppress(OSError, pa.ArrowException, UnicodeDecodeError):
            schema = pq.read_schema(part)
            said = schema.metadata or {}
            yield said.get(ORIGIN_KEY, _EARLIER_RUN if _has_our_columns(schema, name, said) else None)


def _has_our_columns(schema: pa.Schema, name: str, said: Mapping[bytes, bytes]) -> bool:
    """Whether all columns have the name, the type and the nullability that they have in files of this format."""
    format = said.get(FORMAT_KEY, b"1")
    if not format.isdigit() or not 1 <= int(format) <= FORMAT:
        return True  # only this project writes it; the format is rejected when the history is opened
    wanted = translation.schema(name, int(format))
    return all(field.name in wanted.names and wanted.field(field.name).equals(field) for field in schema)


def _rows(folder: Path) -> Iterator[int]:
    for part in sorted(folder.glob("*.parquet")):
        with contextlib.suppress(OSError, pa.ArrowException):
            yield int(pq.read_metadata(part).num_rows)


def read_settings(path: Path, version: int) -> dict[str, Any]:
    """Reads ``settings.json``. Raises ``LostContractError`` unless this version knows all that its contract says.

    ``version``: the schema version that ``run.json`` has.
    """
    try:
        settings = read_json(path, dict[str, Any])
    except FileNotFoundError:
        raise LostContractError(f"there is no {path}") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise LostContractError(f"{path} cannot be read: {error}") from error
    for file, found in ((path, settings.get("schema_version", version)), (path.parent / "run.json", version)):
        if type(found) is not int or not 1 <= found <= store.SCHEMA_VERSION:
            raise LostContractError(
                f"{file} has schema version {found!r}, and this version of assay knows 1 to {store.SCHEMA_VERSION}"
            )
    settings["contract"] = _contract(settings.get("contract"), path)
    return settings


def given_contract(text: str) -> Contract:
    """The contract that ``--contract`` names: ``strictest``, a ``settings.json``, or a file with a contract alone.

    Raises ``HistoryError``.
    """
    if text == STRICTEST:
        return Contract()
    path = Path(text)
    try:
        found = read_json(path, dict[str, Any])
        return _contract(found.get("contract", found), path)
    except LostContractError as error:
        raise HistoryError(f"--contract={text}: {error}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise HistoryError(
            f"--contract={text} cannot be read: {error}; give a settings.json, or {STRICTEST}"
        ) from error


def _contract(found: Any, path: Path) -> Contract:
    """Raises ``LostContractError``. A promise that this version does not know could be the one that was broken."""
    if not isinstance(found, Mapping) or "forbidden" not in found:
        raise LostContractError(f"{path} holds no readable contract: it does not say what is forbidden")
    unknown = sorted(set(found) - set(Contract.__struct_fields__) - FORMER_FIELDS)
    if unknown:
        raise LostContractError(f"{path} holds no readable contract: this version knows no {', '.join(unknown)}")
    try:
        return msgspec.convert(found, Contract)
    except msgspec.MsgspecError as error:
        raise LostContractError(f"{path} holds no readable contract: {error}") from error


def without_contract(judgement: Judgement, why: str) -> Judgement:
    """The judgement by ``LOST``, which is no pass, with the reason and the remedy first."""
    found = [name for name in sorted(judgement.anomalies) if name not in INTOLERABLE]
    said = f"{', '.join(found)} found, but the contract is lost" if found else "the contract is lost"
    others = [reason for reason in judgement.unknown if not reason.endswith(UNNAMED)]
    lost = f"{said}; give --contract=FILE, such as the settings.json of a run of the same test ({why})"
    verdict = Verdict.FAIL if judgement.verdict is Verdict.FAIL else Verdict.UNKNOWN
    return msgspec.structs.replace(judgement, verdict=verdict, unknown=(lost, *others))
