"""``assay check PATH``: recognises the kind of history at the path and judges it.

- A run folder or a history folder is judged by its contract (``by_contract``), or by ``--model`` or ``--workload``
  alone. So is a Parquet file with operations.
- A file, or a Jepsen store folder with a ``history.edn``, is in a foreign format and needs a model or a workload.

A workload is judged by the question of Jepsen's or Maelstrom's checker of that name (``by_workload``).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from assay.checkers.engine import Engines
from assay.checkers.judging.judge import ProgressCallback
from assay.checkers.judging.verdict import CheckCoverage, Judgement, add_stage
from assay.checkers.linearizability.limits import DEFAULT, Limits
from assay.checkers.linearizability.model import Model
from assay.checkers.linearizability.search import Report
from assay.harness.core.history import HistoryError, HistoryReader
from assay.harness.core.printable import to_printable
from assay.harness.foreign import (
    MODELS,
    EntryOrder,
    ForeignFormat,
    ForeignHistory,
    KeyMode,
    MalformedError,
    read_history,
    recognise_format,
    separate_processes,
    to_edn,
)
from assay.harness.run import store
from assay.harness.run.import_by_name import find_model, split_model
from assay.harness.run.registry import Registry
from assay.harness.run.settings import SettingsError
from assay.harness.stored.by_contract import JudgedHistory, explain, judge_again, open_stored
from assay.harness.stored.by_model import iterate_batches, judge_by_model, open_stored_operations
from assay.harness.stored.by_workload import judge_workload, require_workload
from assay.harness.stored.certificate_file import require_certificate_place
from assay.harness.stored.contracts import read_given_contract
from assay.harness.stored.foreign_findings import (
    add_contradictory_answers,
    choose_processes,
    require_real_time,
    write_claim_in_edn,
    write_claims_in_edn,
)
from assay.harness.stored.initial_values import (
    add_initial_values,
    read_values,
    require_keys,
    suggest_initial_values,
)
from assay.harness.stored.recognised_workload import list_fitting, recognise_workload
from assay.harness.stored.request import AUTO, PARQUET, READING, WORKLOADS, CheckRequest
from assay.harness.stored.workload_table import (
    ALL_READS,
    BY_NAME,
    CAS_REFUSALS,
    CERTIFICATE,
    INITIAL,
    LEVEL,
    LINEARIZABLE,
    NEGATIVE_BALANCES,
    REAL_TIME,
    TOTAL,
    list_accepting,
)
from assay.reports.evidence import NamedFault, Notation, look_up_operations
from assay.reports.failure_text import FailureFooter, describe
from assay.reports.operations import to_python_notation

if TYPE_CHECKING:
    import pyarrow.dataset as ds

PARQUET_MAGIC: Final = b"PAR1"
"""The first bytes of a Parquet file."""
JEPSEN_HISTORIES: Final = ("history.edn", "history.edn.gz", "history.txt", "history.txt.gz")
"""Files of a Jepsen folder. The first one that exists is judged."""


@dataclasses.dataclass(frozen=True)
class JudgedFile:
    """The file of another tool at ``path`` with its judgement.

    - ``request``: with the workload, if it was recognised
    - ``foreign``: with the operations as they were judged, which may have other processes
    - ``notes``: sentences on how the file was read and judged
    """

    path: Path
    request: CheckRequest
    foreign: ForeignHistory
    judgement: Judgement
    notes: tuple[str, ...]


def check(
    request: CheckRequest,
    engines: Engines,
    registry: Registry,
    progress: ProgressCallback,
    report: Report = lambda finding: None,
) -> JudgedHistory:
    """Judges the history at ``request.path``. ``progress`` is called with the stage and its progress. ``report``
    receives the findings of a search by a model at once.

    Raises ``HistoryError`` or ``FileNotFoundError`` for a path that cannot be judged, ``SettingsError`` for wrong
    usage.
    """
    path = find_foreign_file(request)
    if path is not None:
        judged = judge_file(request, path, engines, progress, report)
        return _describe_result(
            judged.judgement, judged.foreign.ops, *judged.notes, faults=judged.foreign.faults, notation=to_edn
        )
    _validate_folder(request)
    if request.model is not None or request.workload is not None or is_parquet_file(request.path):
        judgement, ops, notes = judge_folder(request, engines, progress, report)
        return _describe_result(judgement, ops.dataset("ops"), *notes)
    if request.seconds is not None:
        raise SettingsError("--time-limit applies only to the search with --model, and to isolation levels")
    start = time.perf_counter()
    contract = None if request.contract is None else read_given_contract(request.contract)
    stored = open_stored(request.path).with_contract(contract)
    opened = stored.open_complete_part()
    taken = time.perf_counter() - start
    judgement = judge_again(stored, opened, engines, registry, progress)
    return explain(stored, opened, add_stage(judgement, "opening the files", taken, first=True))


def _validate_folder(request: CheckRequest) -> None:
    """Raises ``SettingsError`` for options that do not apply to a folder."""
    _validate(request, is_file=False)
    if request.refusals:
        raise SettingsError(
            f"--cas-refusals is for a file, and {request.path} is a folder, which records refusals as results"
        )
    if request.format not in (AUTO, PARQUET):
        raise SettingsError(f"--format={request.format} is for a file, and {request.path} is a folder")


def judge_folder(
    request: CheckRequest, engines: Engines, progress: ProgressCallback, report: Report = lambda finding: None
) -> tuple[Judgement, HistoryReader, tuple[str, ...]]:
    """Judges the history folder or the Parquet file at ``request.path`` by ``request.model`` or ``request.workload``.

    The last result has notes for the user. Raises ``HistoryError`` for a history that cannot be judged,
    ``SettingsError`` for wrong usage.
    """
    _validate_folder(request)
    if request.model is None and request.workload is None:
        raise SettingsError(f"{request.path} holds only operations: name their --model or --workload")
    model = None if request.model is None else _find_model(request.model, request)
    ops = open_stored_operations(request.path if is_parquet_file(request.path) else store.resolve_history(request.path))
    if model is None:
        assert request.workload is not None
        table = ops.table("ops")
        require_workload(table, request.workload, request.path)
        limits = _make_limits(request)
        judged, notes = judge_workload(separate_processes(table), request, engines, progress, limits)
        return judged, ops, notes
    require_keys(model, iterate_batches(ops))
    judgement = judge_by_model(ops, model, engines, progress, _make_limits(request), report)
    hint = suggest_initial_values(iterate_batches(ops), judgement, model, str)
    return judgement, ops, (hint,) if hint else ()


def _find_model(name: str, request: CheckRequest) -> Model:
    """Returns the model with its arguments and initial values. Raises ``SettingsError``."""
    return add_initial_values(find_model(name, read_values=read_values), request.initial)


def _validate(request: CheckRequest, *, is_file: bool) -> None:
    """Raises ``SettingsError`` for options that do not go together. ``is_file``: whether the history is a file."""
    name = None if request.model is None else split_model(request.model)[0]
    if request.initial and name is None and request.workload is None:
        raise SettingsError("--initial gives the initial value of registers that are judged by --model")
    if request.refusals and name is not None and "cas" not in MODELS.get(name, ("cas",)):
        raise SettingsError(f"--cas-refusals is for a model that has a cas, and --model={request.model} has none")
    _validate_workload_options(request)
    if request.contract is not None and (is_file or request.model is not None or request.workload is not None):
        raise SettingsError("--contract is for a run or a history folder that is judged by the checks in SQL")


def _validate_workload_options(request: CheckRequest) -> None:
    """Raises ``SettingsError`` for options that do not apply to the workload, or that need one."""
    if request.workload is not None and request.model is not None:
        raise SettingsError("--workload says how a file is judged, and so does --model: choose one")
    given = {
        LINEARIZABLE: request.linearizable,
        NEGATIVE_BALANCES: request.negative_balances,
        REAL_TIME: request.real_time,
        TOTAL: request.total is not None,
        LEVEL: request.level is not None,
        ALL_READS: request.all_reads,
        CERTIFICATE: request.certificate is not None,
        INITIAL: bool(request.initial) and request.model is None,
        CAS_REFUSALS: request.refusals and request.model is None,
    }
    for option, is_given in given.items():
        if is_given and (request.workload is None or not BY_NAME[request.workload].accepts(option)):
            subject = "" if request.workload is None else f", and --workload={request.workload} has none"
            raise SettingsError(f"{option} goes with --workload={list_accepting(option)}{subject}")
    if request.every_key and request.model is None:
        raise SettingsError("--all-keys applies only to the search with --model")


def find_foreign_files(request: CheckRequest, paths: Sequence[Path]) -> list[CheckRequest]:
    """Returns a request like ``request`` for each path if all of them are files of another tool; none if none is.

    Raises ``SettingsError`` if only some of them are, and ``FileNotFoundError``.
    """
    if request.certificate is not None:
        raise SettingsError("--certificate is for one file: judge the files in separate calls")
    requests = [dataclasses.replace(request, path=path) for path in paths]
    files = [one for one in requests if one.path.exists() and find_foreign_file(one) is not None]
    if files and len(files) < len(requests):
        other = next(one.path for one in requests if one not in files)
        if not other.exists():
            raise FileNotFoundError(f"{other} does not exist")
        raise SettingsError(
            f"{files[0].path} is a file of another tool, and {other} is none: judge files and runs in separate calls"
        )
    return files


def find_foreign_file(request: CheckRequest) -> Path | None:
    """Returns the file of another tool that the path names, or None for a folder of this one.

    Raises ``FileNotFoundError`` and ``SettingsError``.
    """
    path = request.path
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir():
        if (path / "ops").is_dir() or (path / "history").is_dir():
            return None
        return next((path / name for name in JEPSEN_HISTORIES if (path / name).is_file()), None)
    if is_parquet_file(path) and request.format in (AUTO, PARQUET):
        return None
    if request.format == PARQUET:
        raise SettingsError(f"--format=parquet is for a folder with ops/ in it, and {path} is no Parquet file")
    return path


def is_parquet_file(path: Path) -> bool:
    """Returns whether the path is a regular file that begins as Parquet does."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except OSError:
        return False  # reading it as another format names the error


def judge_file(
    request: CheckRequest,
    path: Path,
    engines: Engines,
    progress: ProgressCallback,
    report: Report = lambda finding: None,
) -> JudgedFile:
    """Judges the file of another tool at ``path``, which ``find_foreign_file`` has found. ``report``: as in ``check``.

    Raises ``HistoryError`` for a file that cannot be judged, ``SettingsError`` for wrong usage.
    """
    _validate(request, is_file=True)
    if request.certificate is not None:
        require_certificate_place(request.certificate)  # before the judging, which may take long
    recognised: tuple[str, ...] = ()
    if request.workload is None and request.model is None:
        request, clause = _add_workload(request, path)
        recognised = (clause,)
    kind = request.workload or (None if request.model is None else split_model(request.model)[0])
    assert kind is not None
    model = None if request.model is None else _find_model(request.model, request)
    try:
        format = recognise_format(path) if request.format == AUTO else ForeignFormat(request.format)
        size = path.stat().st_size
        foreign = read_history(
            path,
            format,
            kind,
            is_workload=request.workload is not None,
            keys=KeyMode(request.keys),
            prefers_values=request.workload is not None and BY_NAME[request.workload].has_vectors,
            order=EntryOrder(request.order),
            refusals=request.refusals,
            all_reads=request.all_reads,
            progress=lambda done: progress(f"{READING} {path.name}", done, size),
        )
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    require_real_time(request, path, foreign)
    notes: tuple[str, ...] = ()
    if model is not None:
        ops = choose_processes(model, path, foreign)
        require_keys(model, iterate_batches(ops))
        if model.needs_times and not foreign.timed:
            raise MalformedError(
                path, None, f"the model {model.name} measures durations, which need a :time of each entry"
            )
        judgement = judge_by_model(
            ops, model, engines, progress, _make_limits(request), lambda finding: report(write_claim_in_edn(finding))
        )
        hint = suggest_initial_values(iterate_batches(ops), judgement, model, to_edn)
        notes = (hint,) if hint else ()
    else:
        ops = separate_processes(foreign.ops)
        judgement, notes = judge_workload(
            ops, request, engines, progress, _make_limits(request), foreign.fields,
            has_contradictions=bool(foreign.answers),
        )  # fmt: skip
    judgement = write_claims_in_edn(judgement)
    judgement = add_contradictory_answers(judgement, foreign)
    read = _add_reading_note(judgement, format, foreign)
    judged = dataclasses.replace(foreign, ops=ops)
    return JudgedFile(path, request, judged, read, (*recognised, *notes, *foreign.notes))


def _add_workload(request: CheckRequest, path: Path) -> tuple[CheckRequest, str]:
    """Returns the request with the recognised workload, and a sentence on it. Raises ``SettingsError`` without one."""
    try:
        format = recognise_format(path) if request.format == AUTO else ForeignFormat(request.format)
        found = recognise_workload(path, format)
        workloads, models = ([], []) if found is not None else list_fitting(path, format)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    if found is None and workloads:
        by_model = f", or with --model={'|'.join(models)}" if models else ""
        raise SettingsError(
            f"the operations of {path} are those of several workloads: name one with --workload={'|'.join(workloads)}"
            f"{by_model}; --workload=help says what each one asks"
        )
    if found is None:
        raise SettingsError(
            f"name what {path} is a history of: --model={'|'.join(MODELS)}, or your own model, or "
            f"--workload={'|'.join(WORKLOADS)}"
        )
    name, why = found
    return dataclasses.replace(request, workload=name), f"taken as --workload={name}, because {why}"


def _add_reading_note(judgement: Judgement, format: ForeignFormat, foreign: ForeignHistory) -> Judgement:
    """Adds a note on the skipped entries of the file to the judgement."""
    reading = CheckCoverage(
        check=f"reading {format}",
        rows=foreign.ops.num_rows,
        seconds=foreign.seconds,
        note="; ".join(foreign.notes) or None,
    )
    return msgspec.structs.replace(judgement, examined=(reading, *judgement.examined))


def _make_limits(request: CheckRequest) -> Limits:
    return Limits(
        seconds=DEFAULT.seconds if request.seconds is None else request.seconds,
        bytes=DEFAULT.bytes if request.bytes is None else request.bytes,
        every_key=request.every_key,
    )


def _describe_result(
    judgement: Judgement,
    ops: pa.Table | ds.Dataset,
    *notes: str,
    faults: Sequence[NamedFault] = (),
    notation: Notation = to_python_notation,
) -> JudgedHistory:
    text = describe(judgement, look_up_operations(ops, judgement, faults, notation), FailureFooter())
    return JudgedHistory(judgement, "\n".join((text, *map(to_printable, notes))))
