"""Certificates of isolation levels as files: ``assay check --certificate`` writes them, ``assay verify`` replays them.

The file is JSON: the map of ``checkers.isolation.certificate_replay``, with the ids of the operations in the history.
It also has what is needed to read the history in the same way: ``workload``, ``keys``, ``entries`` and ``initial``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.checkers.isolation.certificate_replay import Operation, find_flaw
from assay.checkers.isolation.levels import find_level
from assay.harness.core.history import HistoryError
from assay.harness.core.history.reader import to_completed
from assay.harness.core.operation import Completed, Outcome
from assay.harness.foreign import EntryOrder, ForeignFormat, KeyMode, read_history, recognise_format, separate_processes
from assay.harness.stored.initial_values import read_initial_values
from assay.harness.stored.keyed_transactions import separate_keys
from assay.harness.stored.request import CheckRequest
from assay.harness.stored.transaction_reads import is_read, keep_known_reads, list_micros, name_key
from assay.harness.stored.workload_table import BY_NAME

_NEEDED: Final = ("level", "events", "workload", "keys", "entries", "initial", "all_reads")


def write_certificate(path: Path, found: Mapping[str, Any], request: CheckRequest) -> None:
    """Writes the certificate ``found`` of a judgement by ``request``. Raises ``HistoryError`` if that fails."""
    certificate = {
        **found,
        "workload": request.workload,
        "keys": request.keys,
        "entries": request.order,
        "initial": list(request.initial),
        "all_reads": request.all_reads,
    }
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(certificate), indent=0) + b"\n")
    except OSError as error:
        raise HistoryError(f"{path} cannot be written: {error.strerror or error}") from error


def read_certificate(path: Path) -> dict[str, Any]:
    """Reads a certificate. Raises ``HistoryError`` if the file is none."""
    try:
        certificate: Any = msgspec.json.decode(path.read_bytes())
        missing = [name for name in _NEEDED if name not in certificate]
        level = find_level(certificate["level"]) if not missing else None
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise HistoryError(f"{path} is no certificate: {error}") from error
    if level is None:
        raise HistoryError(f"{path} is no certificate: it lacks {missing[0]}")
    return {**certificate, "rule": level.rule.value, "order": level.order.value}


def verify(certificate: Mapping[str, Any], path: Path) -> tuple[str | None, int]:
    """Returns why the certificate does not show its level for the history at ``path``, or None, and its transactions.

    Raises ``HistoryError`` for a history that cannot be read, and for a damaged certificate.
    """
    try:
        format = recognise_format(path)
        read = read_history(
            path,
            ForeignFormat(format),
            certificate["workload"],
            is_workload=True,
            prefers_values=BY_NAME[certificate["workload"]].has_vectors,
            keys=KeyMode(certificate["keys"]),
            order=EntryOrder(certificate["entries"]),
            all_reads=bool(certificate["all_reads"]),
        )
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    done = [to_completed(row) for row in separate_processes(read.ops).to_pylist()]
    separate, _ = separate_keys(done, by_session=find_level(certificate["level"]).orders_sessions)
    values = read_initial_values(certificate["initial"])
    operations = {one.index: _to_operation(one, all_reads=bool(certificate["all_reads"])) for one in separate}
    try:
        flaw = find_flaw(certificate, operations, lambda key: _to_element(values.find(key)))
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"the certificate is damaged: {type(error).__name__} {error}") from error
    return flaw, len(certificate["events"]) // (2 if certificate["rule"] == "snapshot-isolation" else 1)


def _to_operation(one: Completed, *, all_reads: bool) -> Operation:
    known = keep_known_reads(one) if all_reads else one
    is_ok = one.completion.outcome is Outcome.OK
    shown = known.completion.result if is_ok or (all_reads and known.completion.result) else None
    micros = []
    for micro in list_micros(one.operation.argument if shown is None else shown):
        if is_read(micro) and shown is None:
            continue
        f = "r" if is_read(micro) else "append" if "append" in str(micro[0]) else "w"
        value = [_to_element(element) for element in micro[2]] if isinstance(micro[2], list) else _to_element(micro[2])
        micros.append((f, name_key(micro[1]), value))
    return Operation(one.process, one.call, one.ret, one.completion.outcome.value, micros)


def _to_element(value: Any) -> Any:
    """Returns an integer or null as it is, and anything else as its JSON."""
    return value if value is None or type(value) is int else msgspec.json.encode(value, order="deterministic").decode()
