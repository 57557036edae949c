"""Judges operations of another tool's workload by the question of its original checker.

The row of the workload (``workload_table``) says who answers: checks in SQL, a check of its own, or the search by a
model. With ``--linearizable``, the operations must also be linearizable. The notes say which question was asked.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.engine import Engines
from assay.checkers.isolation.level_check import TIME_LIMIT
from assay.checkers.isolation.levels import GARBAGE_READ, SERIALIZABLE, Level, add_real_time, find_level
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.judge import ProgressCallback, judge
from assay.checkers.judging.verdict import CheckCoverage, Judgement, OperationCount, Verdict
from assay.checkers.linearizability import MODELS, Limits, Model
from assay.checkers.transactions.level import read_certificate, read_level_notes
from assay.checkers.workload_checks.catalog import CHECKS
from assay.checkers.workload_checks.transaction_models import DRAINED_QUEUE, TRANSACTION_MODELS, Tally, choose_tally
from assay.checkers.workload_checks.workload_result import NO_FIELDS, Fields
from assay.harness.core.history import HistoryError, HistoryReader, HistoryWriter
from assay.harness.core.history.reader import to_completed
from assay.harness.core.operation import Completed, Outcome
from assay.harness.foreign import to_edn
from assay.harness.foreign.answers import allow_micros
from assay.harness.foreign.edn import Keyword, Map, to_source
from assay.harness.foreign.shapes import WORKLOADS, OperationShape
from assay.harness.run.judging import add_doubts, merge_judgements
from assay.harness.stored import effects_of_workload as effects
from assay.harness.stored.by_model import find_missing_successes, iterate_batches, judge_by_model
from assay.harness.stored.certificate_file import write_certificate
from assay.harness.stored.drains import expand_drains
from assay.harness.stored.initial_values import add_initial_values, suggest_initial_values
from assay.harness.stored.request import CheckRequest
from assay.harness.stored.set_and_queue_effects import make_queue_effects, make_set_effects
from assay.harness.stored.transaction_reads import suggest_for_transactions
from assay.harness.stored.workload_table import BY_NAME, INITIAL, LEVEL, LINEARIZABLE, Workload


def _orders_sessions(request: CheckRequest) -> bool:
    return request.level is not None and find_level(request.level).orders_sessions


def _has_lists(request: CheckRequest) -> bool:
    return request.workload is not None and BY_NAME[request.workload].has_lists


EffectMaker = Callable[[Sequence[Completed], CheckRequest], effects.WorkloadEffects]

EFFECT_MAKERS: Final[Mapping[str, EffectMaker]] = {
    "bank": lambda done, request: effects.make_bank_effects(done, request.total),
    "monotonic": lambda done, request: effects.make_monotonic_effects(done),
    "queue": lambda done, request: make_queue_effects(done, drained=False),
    "set": lambda done, request: make_set_effects(done, final_only=not request.linearizable, allows_stale=False),
    "set-full": lambda done, request: make_set_effects(done, final_only=False, allows_stale=not request.linearizable),
    "total-queue": lambda done, request: make_queue_effects(done, drained=True),
    "transactions": lambda done, request: effects.make_transaction_effects(
        done,
        request.initial,
        all_reads=request.all_reads,
        by_session=_orders_sessions(request),
        has_lists=_has_lists(request),
    ),
    "unique-ids": lambda done, request: effects.make_unique_id_effects(done),
}
"""Functions that derive effects from operations, by ``Workload.effects``."""

_ABSENCE_CHECKS: Final = ("set-lost", "set-stale", "set-vanished")
"""The checks of sets that ask where an element is missing."""
_DRAIN_CLAIM: Final = re.compile(r"though the drain that was called at [0-9.]+ s found the end")
_DRAINED: Final = "though this workload ends with a complete drain"
"""Replaces what a finding of ``queue-lost`` says about the drain that ``set_and_queue_effects`` adds."""
_FITTING_COLUMNS: Final = ("f", "argument", "result", "outcome")
"""The columns that say whether an operation fits a workload."""
_NEEDED_FOR_LEVELS: Final = "G1c"
"""The anomaly whose check must have data if a level is judged. It examines all reads, so some transaction must have
read something, even a nil."""


def judge_workload(
    ops: pa.Table,
    request: CheckRequest,
    engines: Engines,
    progress: ProgressCallback,
    limits: Limits,
    fields: Fields = NO_FIELDS,
    *,
    has_contradictions: bool = False,
) -> tuple[Judgement, tuple[str, ...]]:
    """Judges ``ops``, read from the file at ``request.path``, by the question of ``request.workload``.

    ``fields``: further fields of completions, by operation. The second result has notes for the user: the question, and
    facts that the file lacks and that were inferred.
    ``has_contradictions``: whether answers of the file contradict their calls. The caller then fails the file, so no
    certificate is written.
    Raises ``HistoryError`` for operations that do not belong to the workload.
    """
    assert request.workload is not None
    workload = BY_NAME[request.workload]
    notes = [describe_question(workload, request)]
    if workload.model is not None:
        model = add_initial_values(_find_model(workload.model, ops), request.initial)
        judgement = judge_by_model(ops, model, engines, progress, limits)
        if workload.accepts(INITIAL):
            hint = suggest_initial_values(iterate_batches(ops), judgement, model, to_edn)
            notes += [hint] if hint else []
    elif workload.check is not None:
        done = effects.to_plain_values(_rename(to_completed(row), workload) for row in ops.to_pylist())
        judgement = CHECKS[workload.check].judge(done, effects.to_plain_fields(fields), strict=request.linearizable)
    else:
        judgement, more = _judge_by_effects(
            ops, workload, request, engines, progress, has_contradictions=has_contradictions
        )
        notes += more
    if request.linearizable and workload.linearizable_model is not None:
        judgement = merge_judgements(judgement, _judge_order(ops, workload, engines, progress, limits))
    asked = CheckCoverage(check=f"workload {workload.name}", rows=ops.num_rows, seconds=0.0, note="; ".join(notes))
    return msgspec.structs.replace(judgement, examined=(asked, *judgement.examined)), tuple(notes)


def _judge_order(
    ops: pa.Table, workload: Workload, engines: Engines, progress: ProgressCallback, limits: Limits
) -> Judgement:
    """Judges whether the operations are linearizable by the workload's model."""
    assert workload.linearizable_model is not None
    renamed = _rename_table(ops, workload)
    expanded = expand_drains(renamed)
    if expanded is not None:
        return expanded.name_drains(judge_by_model(expanded.ops, DRAINED_QUEUE, engines, progress, limits))
    model = _find_model(workload.linearizable_model, renamed)
    return judge_by_model(renamed, model, engines, progress, limits)


def describe_question(workload: Workload, request: CheckRequest) -> str:
    """Returns the sentence that says which question was asked, and what is allowed."""
    if request.linearizable:
        return f"judged as {workload.name} with {LINEARIZABLE}: {workload.linearizable_clause}"
    level = choose_level(workload, request)
    if level is not None:
        chosen = "" if request.level else f", the default without {LEVEL}"
        return f"judged as {workload.name} by the isolation level {level.name}{chosen}"
    more = f"; {LINEARIZABLE} asks for more: {workload.linearizable_clause}" if workload.linearizable_clause else ""
    order = ", in the order of real time" if request.real_time else ""
    allowed = f"; allowed: {workload.allowed_clause}" if workload.allowed_clause else ""
    return f"judged as {workload.name}: {workload.asks[0].lower()}{workload.asks[1:-1]}{order}{allowed}{more}"


def make_contract(workload: Workload, request: CheckRequest) -> Contract:
    """Returns the strictest contract, without the anomalies that the workload or an option allows."""
    contract = Contract(
        transaction_order="real-time" if request.real_time else "none",
        minimum_operations=0,
        linearizable_sets=request.linearizable,
        linearizable_queues=request.linearizable,
    )
    level = choose_level(workload, request)
    if level is not None:
        seconds = TIME_LIMIT if request.seconds is None else request.seconds
        contract = contract.isolate(level.name, seconds=seconds, all_reads=request.all_reads)
        contract = msgspec.structs.replace(contract, needed=(_NEEDED_FOR_LEVELS,))
    allowed = {} if request.linearizable else workload.allowed or {}
    for anomaly, why in {**allowed, **workload.always_allowed}.items():
        contract = contract.tolerate(anomaly, because=why)
    if request.negative_balances:
        contract = contract.tolerate("bank-negative", because="--negative-balances was given")
    return contract


def choose_level(workload: Workload, request: CheckRequest) -> Level | None:
    """Returns the isolation level by which transactions are judged.

    None: no level is judged. The anomalies of the checks in SQL are forbidden instead.
    Only a level judges the reads of failed and unknown transactions, and has a certificate.
    """
    needs_level = request.all_reads or request.certificate is not None
    name = request.level or workload.level or (SERIALIZABLE.name if needs_level else None)
    if name is None:
        return None
    level = find_level(name)
    return add_real_time(level) if request.real_time else level


def _judge_by_effects(
    ops: pa.Table,
    workload: Workload,
    request: CheckRequest,
    engines: Engines,
    progress: ProgressCallback,
    *,
    has_contradictions: bool,
) -> tuple[Judgement, Sequence[str]]:
    """Judges by the checks in SQL. The second result has notes on inferred facts."""
    assert workload.effects is not None
    done = [_rename(to_completed(row), workload) for row in ops.to_pylist()]
    recorded = EFFECT_MAKERS[workload.effects](done, request)
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        history = Path(folder) / "history"
        with HistoryWriter(history) as writer:
            for completed, its_effects in recorded.rows:
                writer.completed(completed, its_effects)
        reader = HistoryReader(history)
        with engines.open(reader) as engine:
            contract = make_contract(workload, request)
            judgement = judge(reader, contract, engine, progress=progress, requires_exposure=False)
            levels = [] if choose_level(workload, request) is None else read_level_notes(engine)
            certificate = "" if request.certificate is None else read_certificate(engine)
    doubts = [*find_missing_successes(ops), *recorded.doubts]
    judgement = _count_judged_elements(_hide_added_operation(judgement, recorded), recorded.judged)
    judged = add_doubts(_name_elements(judgement, recorded.names), doubts)
    suggests = GARBAGE_READ in judged.violations and workload.accepts(INITIAL) and not request.initial
    hint = suggest_for_transactions(done) if suggests else ""
    written = _write_certificate(certificate, Verdict.FAIL if has_contradictions else judged.verdict, request)
    return judged, [note for note in (recorded.note, *levels, hint, written) if note]


def _write_certificate(certificate: str, verdict: Verdict, request: CheckRequest) -> str:
    """Writes the certificate of a pass, if the request asks for it. Returns a note on that."""
    if request.certificate is None:
        return ""
    if verdict is not Verdict.PASS or not certificate:
        return f"no certificate is written, because the verdict is {verdict}"
    write_certificate(request.certificate, msgspec.json.decode(certificate), request)
    return f"certificate: {request.certificate}; assay verify {request.certificate} {request.path} replays it"


def _hide_added_operation(judgement: Judgement, recorded: effects.WorkloadEffects) -> Judgement:
    """Returns the judgement without the added drain, which is not in the file, in counts and findings."""
    if recorded.added is None:
        return judgement
    added, its_effects = recorded.added
    counts = judgement.kinds.get(added.operation.f, OperationCount())
    counts = msgspec.structs.replace(counts, ok=counts.ok - 1, answered=counts.answered - 1)
    others = {f: count for f, count in judgement.kinds.items() if f != added.operation.f}
    findings = [
        msgspec.structs.replace(
            one,
            claim=_DRAIN_CLAIM.sub(_DRAINED, one.claim),
            operations=tuple(index for index in one.operations if index != added.index),
            first_operation=None if one.first_operation == added.index else one.first_operation,
        )
        for one in judgement.findings
    ]
    return msgspec.structs.replace(
        judgement,
        operations=judgement.operations - 1,
        effects=judgement.effects - len(its_effects),
        kinds=others | ({added.operation.f: counts} if counts.issued else {}),
        findings=tuple(findings),
    )


def _count_judged_elements(judgement: Judgement, judged: effects.JudgedElements | None) -> Judgement:
    """Counts the elements that the checks of sets took for removed, though the file does not remove them."""
    if judged is None or not judged.number:
        return judgement
    examined = [
        msgspec.structs.replace(
            one,
            rows=one.rows + judged.number,
            claims=one.claims + judged.claims[one.check],
            exposed=one.exposed + judged.exposed[one.check],
        )
        if one.check in _ABSENCE_CHECKS and one.claims is not None and one.exposed is not None
        else one
        for one in judgement.examined
    ]
    return msgspec.structs.replace(judgement, examined=tuple(examined), effects=judgement.effects - judged.number)


def _name_elements(judgement: Judgement, names: Mapping[int, str]) -> Judgement:
    """Replaces the numbers of elements (``element_numbers``) in findings and reasons by their names."""
    if not names:
        return judgement

    def name(text: str) -> str:
        return re.sub(r"\d{19}", lambda found: names.get(int(found[0]), found[0]), text)

    findings = [
        msgspec.structs.replace(one, claim=name(one.claim), about=tuple(map(name, one.about)))
        for one in judgement.findings
    ]
    reasons = tuple(map(name, judgement.unknown))
    return msgspec.structs.replace(judgement, findings=tuple(findings), unknown=reasons)


def _find_model(name: str, ops: pa.Table) -> Model:
    """Returns the model for the operations. The model of a counter depends on the size of its sums."""
    if name == Tally.name:
        done = [to_completed(row) for row in ops.to_pylist()]
        adds, reads = ([one for one in done if one.operation.f == f] for f in ("add", "read"))
        sums = [one.completion.result for one in reads if one.completion.result is not None]
        return choose_tally([one.operation.argument for one in adds], sums)
    return MODELS[name] if name in MODELS else TRANSACTION_MODELS[name]


def _rename(completed: Completed, workload: Workload) -> Completed:
    """Returns the operation with the verb of the checks, if the workload has its own."""
    verb = (workload.verbs or {}).get(completed.operation.f)
    if verb is None:
        return completed
    return msgspec.structs.replace(completed, operation=msgspec.structs.replace(completed.operation, f=verb))


def _rename_table(ops: pa.Table, workload: Workload) -> pa.Table:
    for old, new in (workload.verbs or {}).items():
        renamed = pc.if_else(pc.equal(ops["f"], old), new, ops["f"])
        ops = ops.set_column(ops.schema.get_field_index("f"), ops.schema.field("f"), renamed)
    return ops


def require_workload(ops: pa.Table, workload: str, path: Path) -> None:
    """Raises ``HistoryError`` for the first operation of a history of this tool that does not belong to the workload.

    Its values are plain JSON: micro-operations are lists such as ``["r", 1, null]``. Equal operations are tried once.
    """
    shapes = WORKLOADS[workload]
    distinct = ops.group_by(list(_FITTING_COLUMNS)).aggregate([("index", "min")]).sort_by("index_min")
    for row in distinct.to_pylist():
        reason = _find_misfit(row, shapes)
        if reason:
            raise HistoryError(
                f"{path}: operation {row['index_min']} does not belong to --workload={workload}: {reason}"
            )


def _find_misfit(row: Mapping[str, Any], shapes: Mapping[str, OperationShape]) -> str:
    """Returns why the operation does not fit the workload; empty if it does."""
    f, shape = row["f"], shapes.get(row["f"])
    if shape is None:
        return f"there is no :{f}, but {', '.join(shapes)}"
    called, answered = (_to_value(msgspec.json.decode(row[name] or "null")) for name in ("argument", "result"))
    if not shape.argument_fits(called):
        return f":{f} takes {shape.argument_text}, not {to_source(called)}"
    if row["outcome"] != Outcome.OK:
        return ""
    if not shape.result_fits(answered):
        return f"the result of :{f} is {shape.result_text}, not {to_source(answered)}"
    if shape.allows is allow_micros and not allow_micros(called, answered):
        return f"the answer {to_source(answered)} contradicts the call {to_source(called)}"
    return ""


def _to_value(value: Any) -> Any:
    """Returns a value as the readers of files make it."""
    if isinstance(value, list):
        return tuple(map(_to_value, value))
    if isinstance(value, dict):
        if set(value) == {"keyword"}:
            return Keyword(value["keyword"])
        return Map(tuple((key, _to_value(one)) for key, one in value.items()))
    return value
