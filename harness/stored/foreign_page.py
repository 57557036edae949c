"""Makes the HTML page of a judged file of another tool, or of a history folder without a run.

The page reads a history folder. So the operations of the file are written to a temporary one, with their values as EDN,
and the faults of its nemesis. Everything that only a run has (settings, logs, nodes, the repeat command) is left out.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.judging.verdict import Finding, Judgement
from assay.harness.core.history import SCHEMAS, HistoryReader, HistoryWriter
from assay.harness.core.printable import count_noun
from assay.harness.foreign import to_edn
from assay.harness.foreign.nemesis_events import ForeignFault
from assay.harness.stored.by_workload import choose_level
from assay.harness.stored.check_path import JudgedFile
from assay.harness.stored.request import CheckRequest
from assay.harness.stored.workload_table import BY_NAME
from assay.reports.model import ForeignFile, read_file_report
from assay.reports.page import render_html

NO_VALUE: Final = "null"
"""The argument of an operation without one, which the page shows as a dash."""


def render_file(judged: JudgedFile) -> str:
    """Returns the HTML text of the page.

    Its findings name the faults of the nemesis that were active, although the verdict does not depend on these faults.
    """
    foreign = judged.foreign
    count = foreign.ops.num_rows
    file = ForeignFile(
        name=judged.path.name,
        facts=(
            ("judged by", list_options(judged.request)),
            ("nemesis", count_noun(len(foreign.faults), "fault") if foreign.faults else "—"),
        ),
        notes=judged.notes,
    )
    with tempfile.TemporaryDirectory(prefix="assay-report-") as folder:
        with HistoryWriter(Path(folder) / "history") as history:
            for batch in _to_shown_values(foreign.ops).to_batches(max_chunksize=max(count, 1)):
                history.batch("ops", batch)
            for id, fault in enumerate(foreign.faults, start=1):
                _write_fault(history, id, fault)
        judgement = add_faults(judged.judgement, foreign.faults)
        return render_html(read_file_report(file, judgement, Path(folder)))


def render_folder(request: CheckRequest, judgement: Judgement, ops: HistoryReader, notes: Sequence[str]) -> str:
    """Returns the HTML text of the page of a history folder that was judged by a model."""
    file = ForeignFile(request.path.resolve().name, (("judged by", list_options(request)),), tuple(notes))
    with tempfile.TemporaryDirectory(prefix="assay-report-") as folder:
        with HistoryWriter(Path(folder) / "history") as history:
            for batch in ops.batches("ops"):
                history.batch("ops", batch)
        return render_html(read_file_report(file, judgement, Path(folder)))


def list_options(request: CheckRequest) -> str:
    """Returns the options that chose the checks, as on the command line without dashes: ``workload=bank real-time``.

    The isolation level is named even if it is the default of the workload.
    """
    level = None if request.workload is None else choose_level(BY_NAME[request.workload], request)
    values = {
        "model": request.model,
        "workload": request.workload,
        "level": None if level is None else level.name,
        "total": request.total,
    }
    flags = {
        "real-time": request.real_time,
        "linearizable": request.linearizable,
        "negative-balances": request.negative_balances,
        "cas-refusals": request.refusals,
        "all-reads": request.all_reads,
    }
    words = [f"{name}={value}" for name, value in values.items() if value is not None]
    words += [f"initial={one}" for one in request.initial]
    return " ".join([*words, *(name for name, is_set in flags.items() if is_set)])


def add_faults(judgement: Judgement, faults: Sequence[ForeignFault]) -> Judgement:
    """Returns the judgement whose findings name the faults that were active in their intervals, by number from 1."""
    findings = tuple(
        msgspec.structs.replace(
            finding, faults=tuple(id for id, fault in enumerate(faults, start=1) if _overlaps(fault, finding))
        )
        for finding in judgement.findings
    )
    return msgspec.structs.replace(judgement, findings=findings)


def _overlaps(fault: ForeignFault, finding: Finding) -> bool:
    since, until = finding.since, finding.until
    if since is None or until is None:
        return False
    return fault.begin <= until and (fault.end is None or fault.end >= since)


def _write_fault(history: HistoryWriter, id: int, fault: ForeignFault) -> None:
    detail = {"what": fault.name, "began": fault.begin}
    history.fault(id=id, fault=fault.name, targets=(), phase="injected", time=fault.begin, detail=detail)
    if fault.end is not None:
        history.fault(id=id, fault=fault.name, targets=(), phase="healed", time=fault.end)


def _to_shown_values(ops: pa.Table) -> pa.Table:
    """Returns the operations with arguments and results as EDN, in the schema of ``ops``."""
    for name in ("argument", "result"):
        texts = pc.dictionary_encode(ops[name].combine_chunks())
        shown = [text if text == NO_VALUE else to_edn(text) for text in texts.dictionary.to_pylist()]
        column = pa.DictionaryArray.from_arrays(texts.indices, pa.array(shown, pa.string())).cast(pa.string())
        ops = ops.set_column(ops.schema.get_field_index(name), SCHEMAS["ops"].field(name), column)
    return ops.cast(SCHEMAS["ops"])
