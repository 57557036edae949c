"""``assay verify``: reads a history as its certificate says, and replays the certificate on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from assay.checkers.isolation.certificate_replay import Operation, find_flaw
from assay.checkers.isolation.levels import find_level
from assay.harness.core.history import HistoryError
from assay.harness.core.history.reader import to_completed
from assay.harness.core.operation import Completed, Outcome
from assay.harness.foreign import ForeignFormat, read_history, recognise_format, separate_processes
from assay.harness.foreign.answers import ContradictoryAnswer
from assay.harness.run.store import resolve_history
from assay.harness.stored.by_model import open_stored_operations
from assay.harness.stored.by_workload import require_workload
from assay.harness.stored.certificate_file import to_request
from assay.harness.stored.check_path import find_foreign_file, is_parquet_file
from assay.harness.stored.foreign_findings import require_real_time
from assay.harness.stored.initial_values import read_initial_values
from assay.harness.stored.keyed_transactions import separate_keys
from assay.harness.stored.request import CheckRequest
from assay.harness.stored.transaction_reads import is_read, keep_known_reads, list_micros, name_key
from assay.harness.stored.workload_table import BY_NAME


def verify(certificate: Mapping[str, Any], path: Path) -> tuple[str | None, int]:
    """Returns why the certificate does not show its level for the history at ``path``, or None, and its transactions.

    Raises ``FileNotFoundError``, and ``SettingsError`` for a wrong initial value. Raises ``HistoryError`` for a damaged
    certificate, for a history that cannot be read, and if its order of real time is unknown and the level needs it.
    """
    request = to_request(certificate, path)
    assert request.workload is not None
    count = len(certificate["events"]) // (2 if certificate["rule"] == "snapshot-isolation" else 1)
    ops, answers = _read_operations(request, certificate)
    if answers:
        first = answers[0]
        return f"operation {first.index} was called with {first.called}, and was answered {first.answered}", count
    done = [to_completed(row) for row in separate_processes(ops).to_pylist()]
    separate, _ = separate_keys(done, by_session=find_level(certificate["level"]).orders_sessions)
    values = read_initial_values(request.initial)
    has_lists = BY_NAME[request.workload].has_lists
    operations = {one.index: _to_operation(one, all_reads=request.all_reads, has_lists=has_lists) for one in separate}
    if not any(one.outcome == Outcome.OK.value for one in operations.values()):
        return "no transaction succeeded, so an order shows nothing", count
    try:
        flaw = find_flaw(certificate, operations, lambda key: _to_element(values.find(key)))
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"the certificate is damaged: {type(error).__name__} {error}") from error
    return flaw, count


def _read_operations(
    request: CheckRequest, certificate: Mapping[str, Any]
) -> tuple[pa.Table, Sequence[ContradictoryAnswer]]:
    """Reads the operations as ``assay check`` does. Also returns the answers that contradict their calls.

    Raises the errors of :func:`verify`.
    """
    workload, path = request.workload, request.path
    assert workload is not None
    try:
        file = find_foreign_file(request)
        if file is None:
            history = path if is_parquet_file(path) else resolve_history(path)
            ops = open_stored_operations(history).table("ops")
            require_workload(ops, workload, path)
            return ops, ()
        read = read_history(
            file,
            ForeignFormat(recognise_format(file)),
            workload,
            is_workload=True,
            prefers_values=BY_NAME[workload].has_vectors,
            keys=certificate["keys"],
            order=certificate["entries"],
            all_reads=request.all_reads,
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    require_real_time(request, file, read)
    return read.ops, read.answers


def _to_operation(one: Completed, *, all_reads: bool, has_lists: bool) -> Operation:
    known = keep_known_reads(one) if all_reads else one
    is_ok = one.completion.outcome is Outcome.OK
    shown = known.completion.result if is_ok or (all_reads and known.completion.result) else None
    micros = []
    for micro in list_micros(one.operation.argument if shown is None else shown):
        if is_read(micro) and shown is None:
            continue
        f = "r" if is_read(micro) else "append" if "append" in str(micro[0]) else "w"
        is_list = has_lists and isinstance(micro[2], list) and f == "r"
        value = [_to_element(element) for element in micro[2]] if is_list else _to_element(micro[2])
        micros.append((f, name_key(micro[1]), value))
    return Operation(one.process, one.call, one.ret, one.completion.outcome.value, micros)


def _to_element(value: Any) -> Any:
    """Returns an integer or null as it is, and anything else as its JSON."""
    return value if value is None or type(value) is int else msgspec.json.encode(value, order="deterministic").decode()
