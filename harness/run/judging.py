"""Judges a run's history by the checks of its contract and, if the experiment names one, by a model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from assay.checkers.engine import Engine, Engines
from assay.checkers.engine.batch import HistoryBatch
from assay.checkers.engine.engine_selection import SQLITE
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.finding_context import FindingContext
from assay.checkers.judging.judge import NONE_MISSING, ProgressCallback, judge
from assay.checkers.judging.verdict import Finding, Judgement, Verdict, add_stage
from assay.checkers.linearizability import Model, ModelError
from assay.checkers.linearizability.models import is_builtin
from assay.harness.core.history import HistoryReader
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.operation import Outcome
from assay.harness.run.registry import NotImportedError, Registry
from assay.harness.run.settings import SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

OBSERVING_OPERATIONS: Final = ("read", "get", "cas", "dequeue", "acquire", "contains")
"""Operations of the built-in models that can contradict others. A history without any of them proves nothing."""
UNOBSERVED: Final = f"no operation that could contradict another ({', '.join(OBSERVING_OPERATIONS)}) succeeded"
NOT_CLOSED: Final = "operations may be missing from a history that was not closed"

VERY_SMALL_ROWS: Final = 3_000
"""Up to this many operations and effects, a history is very small: SQLite judges it in 0.2 s."""
MOST_SEPARATE: Final = 6
"""Up to this many very small histories, SQLite is faster than DuckDB. DuckDB takes about 1.4 s for any number."""


class SupportsOpen(Protocol):
    """Opens an engine for a history, as ``Engines`` does."""

    def open(self, history: HistoryReader, *, common_sql: bool = True) -> AbstractContextManager[Engine]: ...


def judge_run(
    history: HistoryReader,
    contract: Contract,
    engines: SupportsOpen,
    registry: Registry,
    *,
    interrupted: bool = False,
    complete: bool = True,
    still_running: bool = False,
    notes: Sequence[str] = (),
    stood_still: float = 0.0,
    progress: ProgressCallback | None = None,
    missing: Mapping[str, str] = NONE_MISSING,
    of_session: bool = False,
    load_command: str = "--plugin=MODULE",
    requires_exposure: bool = True,
) -> Judgement:
    """Judges a history by the registry's families, as :func:`assay.checkers.judging.judge.judge` does, and by the
    contract's model.

    - ``of_session``: the contract belongs to an experiment of this session. Otherwise its model is imported only if the
      registry allows it.
    - ``load_command``: the command or option that loads a model which is not available here.
    - ``complete``: the history was closed.
    - ``stood_still``: seconds for which the tester itself could not run.
    - ``missing``: anomalies whose checks are not available.
    - All other options are those of ``judge``.

    The verdict is unknown if the model is not available. It is also unknown if operations may be missing: one of them
    may explain an apparent contradiction.
    """
    model = None
    try:
        model = registry.model(contract.model, of_session=of_session)
    except NotImportedError as error:
        notes = (
            *notes,
            f"the run's model {contract.model!r} is not available here: {load_command} imports it ({error})",
        )
    except SettingsError as error:
        # A model `module:Class` names its own module, so loading another module would not help.
        remedy = str(error) if ":" in str(contract.model) else f"{load_command} loads it ({error})"
        notes = (*notes, f"the run's model {contract.model!r} is not available here: {remedy}")
    start = time.perf_counter()
    # The checks of a user need not keep to the SQL that all engines share.
    with engines.open(history, common_sql=not registry.added) as engine:
        opened = time.perf_counter() - start
        judgement = judge(
            history,
            contract,
            engine,
            families=registry.families,
            interrupted=interrupted,
            complete=complete,
            still_running=still_running,
            notes=notes,
            stood_still=stood_still,
            progress=progress,
            missing=missing,
            requires_exposure=requires_exposure,
        )
        judgement = add_stage(judgement, "starting the engine", opened, first=True)
        if model is None or judgement.interrupted:
            return judgement
        if not complete:
            return merge_judgements(judgement, f"the model {model.name} was not checked: {NOT_CLOSED}")
        start = time.perf_counter()
        found = merge_judgements(judgement, _judge_by_model(history, model, engine, progress))
        return add_stage(found, "searching by the model", time.perf_counter() - start)


@dataclass(frozen=True)
class UnjudgedRun:
    """A finished run that was kept in memory. ``notes``: reasons not to pass."""

    history: HistoryReader
    contract: Contract
    notes: Sequence[str] = ()


def judge_together(runs: Sequence[UnjudgedRun], engines: Engines, registry: Registry) -> list[Judgement]:
    """Judges several runs of this session as :func:`judge_run` does, at a fraction of the cost."""
    with open_together([run.history for run in runs], engines) as opened:
        return [
            judge_run(run.history, run.contract, engine, registry, notes=run.notes, of_session=True)
            for run, engine in zip(runs, opened, strict=True)
        ]


@contextmanager
def open_together(histories: Sequence[HistoryReader], engines: Engines) -> Iterator[list[SupportsOpen]]:
    """Opens engines for several histories in memory, so that queries are executed once for all of them.

    A single history gets an engine of its own, because a query for several takes 1.5 times as long as for one. A few
    very small histories, which SQLite judges, also get an engine each.
    """
    separate = len(histories) <= MOST_SEPARATE and all(
        history.rows("ops") + history.rows("effects") <= VERY_SMALL_ROWS and engines.pick(history) == SQLITE
        for history in histories
    )
    if separate or len(histories) < 2:
        yield [engines for _ in histories]
        return
    tables = {name: [history.table(name) for history in histories] for name in DATA_SETS}
    with closing(HistoryBatch(len(histories), sum(history.rows("effects") for history in histories))) as batch:
        for name, each in tables.items():
            batch.load(name, each)
        yield [_LoadedEngines(batch.engine(number)) for number in range(len(histories))]


@dataclass(frozen=True)
class _LoadedEngines:
    """Stands in for ``Engines``: always opens the same engine, which has already loaded the history."""

    engine: Engine

    def open(self, history: HistoryReader, *, common_sql: bool = True) -> AbstractContextManager[Engine]:
        return nullcontext(self.engine)


def _judge_by_model(
    history: HistoryReader, model: Model, engine: Engine, progress: ProgressCallback | None
) -> Judgement | str:
    """Searches for a legal order. Returns the judgement, or a text if the operations are not those of the model.

    ``engine``: has loaded the history; it supplies the faults that were active at a finding.
    """
    from assay.checkers.linearizability.search import search  # loads NumPy

    try:
        ops = history.table("ops")
        found = search(ops, model, progress=progress or (lambda what, done, total: None))
    except ModelError as error:
        return f"the operations are not those of the model {model.name}: {error}"
    found = msgspec.structs.replace(found, findings=tuple(FindingContext(engine).add_to(found.findings)))
    return add_doubts(found, find_unobserved(ops, model))


def find_unobserved(ops: pa.Table | pa.RecordBatch, model: Model) -> list[str]:
    """Returns a reason not to pass if no successful operation observes another.

    Operations that observe nothing always have a legal order, so a legal order of them proves nothing.

    The result is empty for a user's own model, because its observing operations are unknown.
    """
    import pyarrow as pa  # imported here because the process that plays a search's examples does not load Arrow
    import pyarrow.compute as pc

    if not is_builtin(model):
        return []
    observed = pc.and_(pc.equal(ops["outcome"], Outcome.OK.value), pc.is_in(ops["f"], pa.array(OBSERVING_OPERATIONS)))
    return [] if pc.any(observed).as_py() else [UNOBSERVED]


def add_doubts(judgement: Judgement, reasons: Sequence[str]) -> Judgement:
    """Adds reasons not to pass."""
    unknown = tuple(dict.fromkeys((*reasons, *judgement.unknown)))
    verdict = Verdict.UNKNOWN if judgement.verdict is Verdict.PASS and unknown else judgement.verdict
    return msgspec.structs.replace(judgement, verdict=verdict, unknown=unknown)


def merge_judgements(checks: Judgement, model: Judgement | str) -> Judgement:
    """Merges two judgements: a contradiction in either is kept, and a pass needs both.

    Findings of the checks come first because they name the anomaly. The model only reports one contradiction per key.
    """
    if isinstance(model, str):
        verdict = Verdict.UNKNOWN if checks.verdict is Verdict.PASS else checks.verdict
        return msgspec.structs.replace(checks, verdict=verdict, unknown=(*checks.unknown, model))
    verdicts = {checks.verdict, model.verdict}
    forbidden = (*checks.forbidden, *model.forbidden)
    by_model = [_shift_reference(finding, len(checks.findings)) for finding in model.findings]
    findings = [*checks.findings, *(_group_finding(finding, checks.findings, forbidden) for finding in by_model)]
    return msgspec.structs.replace(
        checks,
        verdict=next(one for one in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS) if one in verdicts),
        anomalies={**checks.anomalies, **model.anomalies},
        meanings={**checks.meanings, **model.meanings},
        forbidden=forbidden,
        findings=_order_forbidden_first(findings, forbidden),
        examined=(*checks.examined, *model.examined),
        unknown=tuple(dict.fromkeys((*checks.unknown, *model.unknown))),
        seconds=checks.seconds + model.seconds,
        interrupted=checks.interrupted or model.interrupted,
    )


def _order_forbidden_first(findings: Sequence[Finding], forbidden: Sequence[str]) -> tuple[Finding, ...]:
    """Moves forbidden findings to the front, and adjusts the references to findings of one cause."""
    order = sorted(range(len(findings)), key=lambda place: findings[place].anomaly not in forbidden)
    places = {before: now for now, before in enumerate(order)}
    return tuple(
        finding
        if (head := finding.same_cause_as) is None
        else msgspec.structs.replace(finding, same_cause_as=places[head])
        for finding in map(findings.__getitem__, order)
    )


def _group_finding(finding: Finding, checks: Sequence[Finding], forbidden: Sequence[str]) -> Finding:
    """Groups the model's finding under a check's finding on the same key and operation, which explains more."""
    for place, other in enumerate(checks):  # the first two operations of a check's finding contradict each other
        matches = other.key == finding.key and set(finding.operations[:1]) & set(other.operations[:2])
        if matches and (other.anomaly in forbidden or finding.anomaly not in forbidden):
            head = place if other.same_cause_as is None else other.same_cause_as
            return msgspec.structs.replace(finding, same_cause_as=head)
    return finding


def _shift_reference(finding: Finding, places: int) -> Finding:
    """Shifts a finding's reference to another finding by the number of findings that were put before."""
    if finding.same_cause_as is None:
        return finding
    return msgspec.structs.replace(finding, same_cause_as=finding.same_cause_as + places)
