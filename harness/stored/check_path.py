"""``assay check PATH``: recognises the kind of history at the path and judges it.

- A run folder or a history folder is judged by its contract (``by_contract``), or by ``--model`` alone.
- A file, or a Jepsen store folder with a ``history.edn``, is in a foreign format and needs a model or a workload.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from assay.checkers.engine import Engines
from assay.checkers.judging.judge import Watch
from assay.checkers.judging.verdict import Examined, Judgement, with_stage
from assay.checkers.linearizability.limits import DEFAULT, Limits
from assay.harness.core.history import HistoryError, HistoryReader
from assay.harness.foreign import MODELS, Foreign, Format, Keys, Order, read, recognise
from assay.harness.run import store
from assay.harness.run.model_by_name import model_of
from assay.harness.run.registry import Registry
from assay.harness.run.settings import SettingsError
from assay.harness.stored.by_contract import Stored, judge_again, open_stored
from assay.harness.stored.by_model import rejudge, stored_operations
from assay.harness.stored.by_workload import judge_workload
from assay.harness.stored.contracts import given_contract
from assay.harness.stored.request import AUTO, BANK, ORDERED, PARQUET, TRANSACTIONAL, WORKLOADS, Request
from assay.reports.evidence import look_up, operations_of
from assay.reports.failure_text import Ending, describe

if TYPE_CHECKING:
    import pyarrow.dataset as ds

JEPSEN_HISTORY: Final = "history.edn"


@dataclass(frozen=True)
class Checked:
    """A judgement, and its text for the user."""

    judgement: Judgement
    text: str


def check(request: Request, engines: Engines, registry: Registry, watch: Watch) -> Checked:
    """Judges the history at ``request.path``; ``watch`` is called with the current stage and its progress.

    Raises ``HistoryError`` or ``FileNotFoundError`` for a path that cannot be judged, ``SettingsError`` for wrong
    usage.
    """
    if request.refusals and request.model is not None and "cas" not in MODELS.get(request.model, ("cas",)):
        raise SettingsError(f"--cas-refusals is for a model that has a cas, and --model={request.model} has none")
    _of_workload(request)
    path = _foreign_file(request)
    if request.contract is not None and (path is not None or request.model is not None):
        raise SettingsError("--contract is for a run or a history folder that is judged by the checks in SQL")
    if path is not None:
        return _foreign(request, path, engines, watch)
    if request.workload is not None:
        raise SettingsError(
            f"--workload is for a file of another tool, and {request.path} is a folder, whose effects have a family"
        )
    if request.refusals:
        raise SettingsError(
            f"--cas-refusals is for a file, and {request.path} is a folder, which records refusals as results"
        )
    if request.format not in (AUTO, PARQUET):
        raise SettingsError(f"--format={request.format} is for a file, and {request.path} is a folder")
    if request.model is not None:
        model, history = model_of(request.model), store.resolve(request.path)
        ops = stored_operations(history)
        return _described(rejudge(ops, model, engines, watch, _limits(request)), ops.dataset("ops"))
    if request.seconds is not None or request.bytes is not None:
        raise SettingsError("--time-limit and --memory-limit are of the search by --model; the checks in SQL need none")
    begun = time.perf_counter()
    contract = None if request.contract is None else given_contract(request.contract)
    stored = open_stored(request.path).by(contract)
    opened = stored.opened()
    taken = time.perf_counter() - begun
    judgement = judge_again(stored, opened, engines, registry, watch)
    return explained(stored, opened, with_stage(judgement, "opening the files", taken, first=True))


def explained(stored: Stored, history: HistoryReader, judgement: Judgement) -> Checked:
    """Adds the text for the user. ``history`` is the opened history of ``stored``."""
    ending = Ending(
        seed=stored.info.seed if stored.info else None,
        command=stored.info.command if stored.info else None,
        report=str(stored.report) if stored.report else None,
        digest=stored.info.digest if stored.info else None,
    )
    begun = time.perf_counter()
    text = describe(judgement, look_up(history, judgement), ending)
    return Checked(with_stage(judgement, "looking up the operations", time.perf_counter() - begun), text)


def _of_workload(request: Request) -> None:
    """Raises ``SettingsError`` for workload options that do not go together."""
    if request.workload is not None:
        if request.model is not None:
            raise SettingsError("--workload says how a file is judged, and so does --model: choose one")
        if request.refusals:
            raise SettingsError("--cas-refusals is for a model that has a cas, and a --workload has none")
    if request.real_time and request.workload not in ORDERED:
        raise SettingsError(
            f"--real-time goes with --workload={' or '.join(ORDERED)}, which need not keep real-time order"
        )
    if request.total is not None and request.workload != BANK:
        raise SettingsError(f"--total is what all accounts of a bank hold: it goes with --workload={BANK}")


def _foreign_file(request: Request) -> Path | None:
    path = request.path
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir():
        inside = path / JEPSEN_HISTORY
        return inside if inside.is_file() and not (path / "ops").is_dir() and not (path / "history").is_dir() else None
    if request.format == PARQUET:
        raise SettingsError(f"--format=parquet is for a folder with ops/ in it, and {path} is a file")
    return path


def _foreign(request: Request, path: Path, engines: Engines, watch: Watch) -> Checked:
    said = request.workload or request.model
    if said is None:
        raise SettingsError(
            f"name what {path} is a history of: --model={'|'.join(MODELS)}, or your own model, or "
            f"--workload={'|'.join(WORKLOADS)}"
        )
    model = None if request.model is None else model_of(request.model)
    try:
        format = recognise(path) if request.format == AUTO else Format(request.format)
        size = path.stat().st_size
        foreign = read(
            path,
            format,
            said,
            keys=_keys(request),
            order=Order(request.order),
            refusals=request.refusals,
            progress=lambda done: watch(f"reading {path.name}", done, size),
        )
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    found_out: tuple[str, ...] = ()
    if model is not None:
        judgement = rejudge(foreign.ops, model, engines, watch, _limits(request))
    else:
        judgement, found_out = judge_workload(foreign.ops, request, engines, watch)
    return _described(_with_reading(judgement, format, foreign), foreign.ops, *found_out, foreign.left_out)


def _keys(request: Request) -> Keys:
    """Returns the key mode. AUTO is NONE for transactions: they name their keys themselves, and two entries are no
    pair.
    """
    keys = Keys(request.keys)
    return Keys.NONE if keys is Keys.AUTO and request.workload in TRANSACTIONAL else keys


def _with_reading(judgement: Judgement, format: Format, foreign: Foreign) -> Judgement:
    """Adds the skipped entries to the judgement's facts, because it depends on them."""
    reading = Examined(
        check=f"reading {format}", rows=foreign.ops.num_rows, seconds=foreign.seconds, note=foreign.left_out
    )
    return msgspec.structs.replace(judgement, examined=(reading, *judgement.examined))


def _limits(request: Request) -> Limits:
    return Limits(
        seconds=DEFAULT.seconds if request.seconds is None else request.seconds,
        bytes=DEFAULT.bytes if request.bytes is None else request.bytes,
    )


def _described(judgement: Judgement, ops: pa.Table | ds.Dataset, *more: str) -> Checked:
    text = describe(judgement, operations_of(ops, judgement), Ending())
    return Checked(judgement, "\n".join((text, *more)))
