"""The contract of a stored history: read, lost, or given by the user.

A run is judged by the contract stored with it. Without the contract its promises are unknown, so a failed run could
pass. There are three cases:

1. ``settings.json`` holds a contract of a schema that this version knows. It is used.
2. The history belongs to a run, but its contract is missing or unreadable: it is lost. An anomaly that no contract can
   tolerate (``INTOLERABLE``) still fails the run. Otherwise the verdict is unknown, never pass.
3. The history was generated, or another tool wrote it. The strictest contract applies, which forbids every anomaly.

A user may give a contract (``--contract``) for a run that has lost its own, but cannot replace a stored one.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from assay.checkers.judging.contract import INTOLERABLE, Contract
from assay.checkers.judging.judge import NOT_IN_CONTRACT
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.files import read_json
from assay.harness.core.history import CLOSED, SCHEMAS, HistoryError, translation
from assay.harness.core.history.data_sets import FORMAT, FORMAT_KEY, ORIGIN_KEY, ORIGIN_RUN, WORKER_NODES
from assay.harness.core.history.live_manifest import UNFINISHED
from assay.harness.run import store

STRICTEST: Final = "strictest"
"""Name that stands for a contract file: every applicable anomaly is forbidden."""
LOST_CONTRACT: Final = Contract(forbidden=INTOLERABLE, needed=())
"""The part of a lost contract that is certain."""
PLANTED: Final = "planted.json"
"""A file next to a generated history (``assay generate``), which belongs to no run."""
_EARLIER_RUN: Final = b"earlier"
"""The origin assumed for a file that names none, but has exactly the columns that runs of earlier versions wrote.

Files of other tools differ, because Parquet writers mark every column as nullable by default.
"""
FORMER_FIELDS: Final = frozenset({"family"})
"""Former fields of a contract, which no promise depends on. ``family`` was about histories of format 1."""


class LostContractError(Exception):
    """The contract of a run is missing or unreadable; the message says why."""


def belongs_to_run(history: Path) -> bool:
    """Returns whether a run wrote a history folder, and not another tool or ``assay generate``.

    A single file of a run is enough, because a copy may lack all others. Files of earlier versions name no origin. They
    count as files of a run if they have the exact columns of their format, or if files that only runs have exist.
    """
    origins = [origin for name in SCHEMAS for origin in _read_origins(history / name, name)]
    if ORIGIN_RUN in origins:
        return True
    if (history.parent / PLANTED).is_file():
        return False
    if (history / WORKER_NODES).exists() or (history / UNFINISHED).exists() or _EARLIER_RUN in origins:
        return True
    # Only runs have node events. Another program may have rewritten the files, so their columns may differ.
    return None in origins and (history / CLOSED).exists() and any(_count_rows(history / "events"))


def _read_origins(folder: Path, name: str) -> Iterator[bytes | None]:
    """Yields the origin of each file of a data set; None: another tool wrote it."""
    for part in sorted(folder.glob("*.parquet")):
        # A damaged file is skipped here; opening the history reports it.
        with contextlib.suppress(OSError, pa.ArrowException, UnicodeDecodeError):
            schema = pq.read_schema(part)
            metadata = schema.metadata or {}
            yield metadata.get(ORIGIN_KEY, _EARLIER_RUN if _has_our_columns(schema, name, metadata) else None)


def _has_our_columns(schema: pa.Schema, name: str, metadata: Mapping[bytes, bytes]) -> bool:
    """Returns whether all columns have the name, the type and the nullability of this format."""
    format = metadata.get(FORMAT_KEY, b"1")
    if not format.isdigit() or not 1 <= int(format) <= FORMAT:
        return True  # only this project writes the key; opening the history rejects the format
    wanted = translation.schema(name, int(format))
    return all(field.name in wanted.names and wanted.field(field.name).equals(field) for field in schema)


def _count_rows(folder: Path) -> Iterator[int]:
    for part in sorted(folder.glob("*.parquet")):
        with contextlib.suppress(OSError, pa.ArrowException):
            yield int(pq.read_metadata(part).num_rows)


def read_settings(path: Path, version: int) -> dict[str, Any]:
    """Reads ``settings.json``. ``version`` is its schema version according to ``run.json``.

    Raises ``LostContractError`` unless this version knows all parts of its contract.
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
    settings["contract"] = _to_contract(settings.get("contract"), path)
    return settings


def read_given_contract(text: str) -> Contract:
    """Returns the contract for ``--contract``: ``strictest``, a ``settings.json``, or a file with a contract alone.

    Raises ``HistoryError``.
    """
    if text == STRICTEST:
        return Contract()
    path = Path(text)
    try:
        found = read_json(path, dict[str, Any])
        return _to_contract(found.get("contract", found), path)
    except LostContractError as error:
        raise HistoryError(f"--contract={text}: {error}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise HistoryError(
            f"--contract={text} cannot be read: {error}; give a settings.json, or {STRICTEST}"
        ) from error


def _to_contract(found: Any, path: Path) -> Contract:
    """Converts a contract. Raises ``LostContractError`` also for unknown fields: the verdict may depend on them."""
    if not isinstance(found, Mapping) or "forbidden" not in found:
        raise LostContractError(f"{path} holds no readable contract: it does not say what is forbidden")
    unknown = sorted(set(found) - set(Contract.__struct_fields__) - FORMER_FIELDS)
    if unknown:
        raise LostContractError(f"{path} holds no readable contract: this version knows no {', '.join(unknown)}")
    try:
        return msgspec.convert(found, Contract)
    except msgspec.MsgspecError as error:
        raise LostContractError(f"{path} holds no readable contract: {error}") from error


def judge_without_contract(judgement: Judgement, reason: str) -> Judgement:
    """Turns a judgement by ``LOST_CONTRACT`` into fail or unknown, never pass, and adds the reason and the remedy."""
    found = [name for name in sorted(judgement.anomalies) if name not in INTOLERABLE]
    summary = f"{', '.join(found)} found, but the contract is lost" if found else "the contract is lost"
    # A lost contract names nearly no anomaly, so this reason would be given for each one found.
    others = [one for one in judgement.unknown if not one.endswith(NOT_IN_CONTRACT)]
    lost = f"{summary}; give --contract=FILE, such as the settings.json of a run of the same test ({reason})"
    verdict = Verdict.FAIL if judgement.verdict is Verdict.FAIL else Verdict.UNKNOWN
    return msgspec.structs.replace(judgement, verdict=verdict, unknown=(lost, *others))
