"""The contract of a stored history: read, lost, or given by the user.

A run is judged by the contract that is stored with it. Without that, its promises are unknown, so a run that failed
could pass. Three cases:

1. ``settings.json`` holds a contract of a schema that this version knows: that contract.
2. The history is a run's, and its contract is missing or unreadable: it is lost. An anomaly that no contract can
   tolerate (``INTOLERABLE``) still fails the run. Any other makes it unknown, and so does none. It never passes.
3. The history was written by something else, or generated: the strictest contract, which forbids every anomaly.

A user may give the contract of a run that has lost its own (``--contract``), never one in place of a stored one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from assay.checkers.judging.contract import INTOLERABLE, Contract
from assay.checkers.judging.judge import UNNAMED
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.files import read_json
from assay.harness.core.history import CLOSED, HistoryError
from assay.harness.core.history.live_manifest import UNFINISHED
from assay.harness.core.history.worker_nodes import FILE as THROUGH
from assay.harness.run import store

STRICTEST: Final = "strictest"
"""In place of a file: every anomaly that applies is forbidden."""
LOST: Final = Contract(forbidden=INTOLERABLE, needed=())
"""The certain part of the verdict on a run whose contract is lost."""
PLANTED: Final = "planted.json"
"""A file beside a generated history (``assay generate``), which is the history of no run."""


class LostContractError(Exception):
    """There is no contract that can be relied on; the message says why."""


def is_of_a_run(history: Path) -> bool:
    """Whether a history folder was written by a run, and not by another tool or by ``assay generate``."""
    if (history.parent / PLANTED).is_file():
        return False
    if (history / THROUGH).exists() or (history / UNFINISHED).exists():
        return True
    # Runs of earlier versions have no file that only runs have, but rows that only runs write: what nodes said.
    return (history / CLOSED).exists() and any(map(_has_rows, sorted((history / "events").glob("*.parquet"))))


def _has_rows(part: Path) -> bool:
    """A damaged part has none here; it is named when the history is opened."""
    try:
        return int(pq.read_metadata(part).num_rows) > 0
    except (OSError, pa.ArrowException):
        return False


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
    unknown = sorted(set(found) - set(Contract.__struct_fields__))
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
