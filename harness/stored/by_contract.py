"""Opens a stored run, or a history without a run, and judges it again by the same contract.

The contract is the one stored with the run. A run whose contract is lost never passes (see ``contracts``). A history
from elsewhere has no contract. It is judged by the strictest one: every applicable anomaly is forbidden, and no faults
are known. Its verdict does not depend on exposure (whether the history could have contradicted its claims), because its
workload cannot be changed here.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_integrity import require_unchanged
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import ProgressCallback
from assay.checkers.judging.verdict import Judgement, add_stage
from assay.harness.core.history import CLOSED, HistoryError, HistoryReader
from assay.harness.core.history.live_manifest import LiveManifest, read_manifest
from assay.harness.run import store
from assay.harness.run.judging import SupportsOpen, add_doubts, judge_run
from assay.harness.run.registry import Registry, is_module_name
from assay.harness.run.store import RunInfo
from assay.harness.stored.contracts import (
    LOST_CONTRACT,
    LostContractError,
    belongs_to_run,
    judge_without_contract,
    read_settings,
)
from assay.reports.evidence import look_up_evidence
from assay.reports.failure_text import FailureFooter, describe

VERIFY_STAGE: Final = "looking through the files"


@dataclass(frozen=True)
class StoredHistory:
    """A stored run or history, with its contract.

    - ``run`` and ``info``: None for a history without a run
    - ``closed``: whether the history was written completely
    - ``lost``: why the contract of a run cannot be read; then ``contract`` is ``LOST_CONTRACT``
    - ``extensions``: checks that were added to the session, see ``Registry.extensions``
    """

    history: Path
    run: Path | None
    info: RunInfo | None
    contract: Contract
    closed: bool
    extensions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    modules: Sequence[str] = ()
    """The modules that added the extensions, according to the run. Their names are printed; they are never imported."""
    lost: str | None = None
    live_manifest: LiveManifest | None = None
    """For a running or killed run: the complete part of its history, and its files in progress."""

    def open_complete_part(self) -> HistoryReader:
        """Opens the complete part of the history. Raises ``HistoryError``."""
        return open_history(
            self.history, None if self.live_manifest is None else self.live_manifest.paths(self.history)
        )

    @property
    def report(self) -> Path | None:
        path = None if self.run is None else self.run / "report.html"
        return path if path is not None and path.exists() else None

    def with_contract(self, contract: Contract | None) -> StoredHistory:
        """Returns a copy with the user's contract, or this history if ``contract`` is None.

        Raises ``HistoryError`` for a run that has its own contract.
        """
        if contract is None:
            return self
        if self.run is not None and self.lost is None:
            raise HistoryError(f"--contract is for a history without its contract, and {self.run} has its own")
        return replace(self, contract=contract, lost=None)

    @property
    def load_command(self) -> str:
        """The command that loads the project's own checks and judges this run with them: ``assay check --plugin``."""
        model, colon, _ = (self.contract.model or "").partition(":")
        named = dict.fromkeys([*self.modules, *([model] if colon else [])])
        modules = [name for name in named if is_module_name(name)] or ["MODULE"]
        path = self.run or self.history
        if path.is_relative_to(here := Path.cwd()):
            path = path.relative_to(here)
        return shlex.join(["assay", "check", str(path), *map("--plugin={}".format, modules)])

    @property
    def interrupted(self) -> bool:
        return self.info is not None and self.info.status in (store.INTERRUPTED, store.RUNNING)


@dataclass(frozen=True)
class JudgedHistory:
    """A judgement, and its text for the user."""

    judgement: Judgement
    text: str


def open_stored(path: Path) -> StoredHistory:
    """Finds the history at ``path``. Raises ``FileNotFoundError`` for none, ``HistoryError`` for a bad ``run.json``."""
    history = store.resolve_history(path)
    run = history.parent if history.name == "history" and (history.parent / "run.json").exists() else None
    info = None if run is None else store.read_run(run)
    if run is not None and info is None:
        # Without run.json it is unknown whether the run ended, and whether anything forbids a pass.
        raise HistoryError(
            f"{run / 'run.json'} cannot be read; to check without it, copy {history.name}/ elsewhere and check the copy"
        )
    settings: dict[str, Any] = {}
    contract, lost = Contract(), None
    try:
        if run is not None and info is not None:
            settings = read_settings(run / "settings.json", info.schema_version)
            contract = _read_contract(settings, run)
        elif belongs_to_run(history):
            raise LostContractError(
                f"{history} is the history of a run, and the other files of the run are not next to it"
            )
    except LostContractError as error:
        settings, contract, lost = {}, LOST_CONTRACT, str(error)
    return StoredHistory(
        history=history,
        run=run,
        info=info,
        contract=contract,
        closed=(history / CLOSED).exists() or run is None,
        live_manifest=read_manifest(history),
        extensions=settings.get("extensions", {}),
        modules=settings.get("extension_modules", []),
        lost=lost,
    )


def judge_again(
    stored: StoredHistory,
    history: HistoryReader,
    engines: SupportsOpen,
    registry: Registry,
    progress: ProgressCallback | None = None,
) -> Judgement:
    """Judges a history by the checks and the contract of its run. The files must be complete and unchanged.

    ``history`` is the opened history of ``stored``. The verdict is unknown if the registry lacks a check or model of
    the run.

    Raises ``HistoryError`` with file, row and reason for files that are damaged, changed or contradictory, and
    ``EngineUnavailable``.
    """
    # The machine paused the tester itself for `stood_still` seconds.
    notes, stood_still = ((), 0.0) if stored.info is None else (stored.info.notes, stored.info.stood_still)
    if stored.info is not None and stored.info.status == store.ERROR:
        error = _find_last_line(stored.info.problem)
        notes = (*notes, f"the run ended in an error, so it cannot pass: {error}")
    judgement = judge_run(
        history,
        stored.contract,
        engines,
        registry,
        interrupted=stored.interrupted,
        complete=stored.closed or stored.live_manifest is not None,
        still_running=stored.live_manifest is not None,
        notes=notes,
        missing=registry.find_missing_checks(stored.extensions, stored.load_command),
        load_command=stored.load_command,
        stood_still=stood_still,
        progress=progress,
        requires_exposure=stored.run is not None or stored.contract != Contract(),
    )
    if stored.lost is not None:
        judgement = judge_without_contract(judgement, stored.lost)
    if judgement.interrupted:
        return judgement
    start = time.perf_counter()

    def report_progress(done: int, total: int) -> None:
        if progress is not None:
            progress(VERIFY_STAGE, done, total)

    try:
        # The files are compared after the validation, because errors of the validation are more exact.
        require_unchanged(history, report_progress)
    except KeyboardInterrupt:
        if progress is None:
            raise
        judgement = add_doubts(judgement, ["interrupted before all files were compared with what the run wrote"])
        return msgspec.structs.replace(judgement, interrupted=True)
    judgement = add_stage(judgement, VERIFY_STAGE, time.perf_counter() - start)
    digest = None if stored.info is None else stored.info.digest
    if digest is not None and history.closing_note is not None and history.closing_note.digest != digest:
        raise HistoryError(f"{stored.history / CLOSED}: run.json has another digest; it is not this run's history")
    return judgement


def explain(stored: StoredHistory, history: HistoryReader, judgement: Judgement) -> JudgedHistory:
    """Adds the text for the user. ``history`` is the opened history of ``stored``."""
    footer = FailureFooter(
        seed=stored.info.seed if stored.info else None,
        command=stored.info.command if stored.info else None,
        report=str(stored.report) if stored.report else None,
        digest=stored.info.digest if stored.info else None,
    )
    start = time.perf_counter()
    text = describe(judgement, look_up_evidence(history, judgement), footer)
    return JudgedHistory(add_stage(judgement, "looking up the operations", time.perf_counter() - start), text)


def _find_last_line(problem: str | None) -> str:
    """Returns the last line of a traceback, which is the error."""
    return ((problem or "").strip().splitlines() or ["run.json does not name the error"])[-1]


def _read_contract(settings: Mapping[str, Any], run: Path) -> Contract:
    """Returns the contract with the model, which earlier versions stored separately. Raises ``LostContractError``."""
    contract: Contract = settings["contract"]
    try:
        model = msgspec.convert(settings.get("model"), str | None)
        msgspec.convert(settings.get("extensions", {}), dict[str, list[str]])
        msgspec.convert(settings.get("extension_modules", []), list[str])
    except msgspec.MsgspecError as error:
        raise LostContractError(f"{run}/settings.json does not name the checks of the run: {error}") from error
    return contract if model is None else msgspec.structs.replace(contract, model=model)
