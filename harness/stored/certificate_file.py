"""Certificates of isolation levels as files: ``assay check --certificate`` writes them, ``assay verify`` reads them.

The file is JSON: the map of ``checkers.isolation.certificate_replay``, with the ids of the operations in the history.
It also has what is needed to read the history in the same way: ``workload``, ``keys``, ``entries`` and ``initial``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.checkers.isolation.levels import find_level
from assay.harness.core.files import read_json, require_own_output, write_output
from assay.harness.core.history import HistoryError
from assay.harness.foreign import EntryOrder, KeyMode
from assay.harness.stored.request import CheckRequest
from assay.harness.stored.workload_table import BY_NAME, CERTIFICATE

MADE_BY: Final = "assay check --certificate"
OWN: Final = re.compile(rf'\{{\s*"made_by": "{MADE_BY}"'.encode())
"""Matches each file with a certificate."""


class _Certificate(msgspec.Struct):
    """The fields that say how the history is read and what the certificate shows.

    ``certificate_replay`` explains ``events`` and ``without_writes``.
    """

    level: str
    events: list[Any]
    workload: str
    keys: KeyMode
    entries: EntryOrder
    initial: tuple[str, ...]
    all_reads: bool
    without_writes: list[int] = []


def write_certificate(path: Path, found: Mapping[str, Any], request: CheckRequest) -> None:
    """Writes the certificate ``found`` of a judgement by ``request``.

    Raises ``HistoryError`` if that fails, and if ``path`` is a file that is no certificate.
    """
    certificate = {
        "made_by": MADE_BY,
        **found,
        "workload": request.workload,
        "keys": request.keys,
        "entries": request.order,
        "initial": list(request.initial),
        "all_reads": request.all_reads,
    }
    try:
        write_output(path, msgspec.json.format(msgspec.json.encode(certificate), indent=0) + b"\n", OWN)
    except OSError as error:
        raise _describe_write_error(path, error) from error


def require_certificate_place(path: Path) -> None:
    """Raises ``HistoryError`` if ``path`` is a file that is no certificate, because it would not be replaced."""
    try:
        require_own_output(path, OWN)
    except OSError as error:
        raise _describe_write_error(path, error) from error


def _describe_write_error(path: Path, error: OSError) -> HistoryError:
    return HistoryError(f"{path} cannot be written: {error.strerror or error}")


def read_certificate(path: Path) -> dict[str, Any]:
    """Reads a certificate. Raises ``HistoryError`` if the file is none."""
    try:
        certificate = msgspec.convert(read_json(path, dict[str, Any]), _Certificate)
        level = find_level(certificate.level)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise HistoryError(f"{path} is no certificate: {error}") from error
    workload = BY_NAME.get(certificate.workload)
    if workload is None or not workload.accepts(CERTIFICATE):
        raise HistoryError(f"{path} is no certificate: its workload is {certificate.workload!r}")
    return {**msgspec.structs.asdict(certificate), "rule": level.rule.value, "order": level.order.value}


def to_request(certificate: Mapping[str, Any], path: Path) -> CheckRequest:
    """Returns how the history at ``path`` is read and judged according to the certificate."""
    return CheckRequest(
        path,
        workload=certificate["workload"],
        level=certificate["level"],
        keys=certificate["keys"].value,
        order=certificate["entries"].value,
        initial=certificate["initial"],
        all_reads=certificate["all_reads"],
    )
