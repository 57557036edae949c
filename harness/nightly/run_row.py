"""Makes a row of the nightly data set from a run's folder: from its small files, and the faults in its history.

The stored verdict is used; ``assay check`` would judge a run again. A run that is unreadable, contradictory or
unfinished becomes a row without a verdict, so it never counts as a pass.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from assay.checkers.check import create_views
from assay.checkers.engine import Engine, EngineError, Engines
from assay.checkers.judging import coverage, disturbance
from assay.checkers.judging.history_views import open_history, register_contract, register_history
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.log.family import LOG
from assay.checkers.register.family import REGISTER
from assay.harness.core.files import HugeFileError, read_file, read_json, read_json_if_valid
from assay.harness.core.history import HistoryError
from assay.harness.core.printable import to_encodable
from assay.harness.nightly.dataset_schema import (
    ABANDONED,
    DAMAGED,
    NONE,
    UNKNOWN,
    FaultPhases,
    RecoveryRow,
    RunFinding,
    RunRow,
    to_table,
)
from assay.harness.run import store
from assay.harness.run.store import RemovedHistoryError, RunInfo
from assay.harness.stored.by_contract import StoredHistory, open_stored
from assay.reports.figures import FIGURES, RunFigures

STAMP: Final = "%Y%m%dT%H%M%S"
"""Format of the time in the name of a run's folder."""
DEFECT: Final = re.compile(r"--defect[= ](\S+)")
UNENDED: Final = "it did not end"
AWAITED: Final = "it has ended, and its session may still judge it"
UNJUDGED: Final = "it was not judged; `assay check` judges it, but does not store the verdict"
"""These are problems of a run without a verdict."""


class RunOutline(NamedTuple):
    """Content of the small files of a run's folder. ``info`` None: the run is damaged, and ``run`` has the reason."""

    run: RunRow
    info: RunInfo | None
    settings: dict[str, Any]


def read_outline(folder: Path) -> RunOutline:
    """Reads a run without its verdict. Errors of the run do not raise, but become the row's ``problem``."""
    settings = _read_settings(folder)
    special = store.find_special_file(folder)
    info = store.read_info(folder)
    if info is None or not _has_valid_dates(info):
        problem = "run.json is missing or damaged" if special is None else str(special)
        return RunOutline(_make_damaged_row(folder, settings, problem), None, settings)
    run = RunRow(
        run=_hash_identity(folder, info),
        folder=_run_name(folder),
        test=info.test,
        workload=_find_workload(info.test, settings),
        nemesis=info.nemesis,
        defect=_find_defect(info, settings),
        cluster=info.cluster,
        seed=info.seed,
        started=info.started,
        status=_find_status(info),
        problem=info.problem,
        run_seconds=_compute_seconds(info),
        digest=info.digest,
        system=find_setting(settings, "system", "name"),
        version=find_setting(settings, "versions", "source"),
    )
    if special is not None:
        return RunOutline(msgspec.structs.replace(run, status=DAMAGED, problem=str(special)), None, settings)
    if run.status not in (store.FINISHED, store.INTERRUPTED):
        run = msgspec.structs.replace(run, problem=run.problem or _explain_unended(info))
    return RunOutline(run, info, settings)


def make_row(folder: Path) -> RunRow:
    """Makes the row of a run. Errors of the run do not raise, but become the row's ``problem``."""
    run, info, settings = read_outline(folder)
    if info is not None and run.status in (store.FINISHED, store.INTERRUPTED):
        try:
            run = _add_judgement(run, folder, info)
        except (HistoryError, EngineError, FileNotFoundError) as error:
            run = msgspec.structs.replace(run, status=DAMAGED, problem=str(error))
    if (reason := _explain_unstorable(run)) is not None:
        return _make_damaged_row(folder, settings, f"its files have values that no run has: {reason}")
    return run


def _explain_unstorable(run: RunRow) -> str | None:
    """Returns why a row cannot be stored, if so: it has a number of more than 64 bits, or a time before the year 1."""
    try:
        to_table(run)
        to_start(run)
    except (OverflowError, pa.ArrowException) as error:
        return str(error)
    return None


def to_start(run: RunRow) -> datetime:
    """Returns the start of a run, in UTC."""
    return datetime.fromisoformat(run.started).astimezone(UTC)


def read_trusted_judgement(folder: Path, info: RunInfo) -> Judgement | None:
    """Reads the judgement; None for an unjudged run. Raises ``HistoryError`` if ``verdict.json`` cannot be trusted."""
    path = folder / "verdict.json"
    if not path.exists():
        if info.verdict is not None:
            raise HistoryError(f"{path} is missing, and run.json says {info.verdict}")
        return None
    try:
        judgement = read_json(path, Judgement)
    except (OSError, msgspec.MsgspecError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from error
    if info.verdict not in (None, str(judgement.verdict)):
        raise HistoryError(f"{path} says {judgement.verdict}, and run.json {info.verdict}")
    if info.status != store.FINISHED and judgement.verdict is Verdict.PASS:
        raise HistoryError(f"{path} says pass, and run.json that the run is {info.status}")
    return judgement


def _add_judgement(run: RunRow, folder: Path, info: RunInfo) -> RunRow:
    """Adds the verdict, and the facts of the history. Raises errors that make the run's files untrustworthy."""
    judgement = read_trusted_judgement(folder, info)
    if judgement is None:
        return msgspec.structs.replace(run, problem=run.problem or UNJUDGED)
    faults, recoveries = _read_faults_and_recoveries(folder)
    figures = read_figures(folder)
    return msgspec.structs.replace(
        run,
        verdict=str(judgement.verdict),
        check_seconds=judgement.seconds,
        engine=judgement.engine,
        operations=judgement.operations,
        effects=judgement.effects,
        unknown=judgement.unknown,
        findings=_make_findings(judgement, faults),
        faults=faults,
        returns=recoveries,
        rate=figures.rate,
        median_ms=figures.median_ms,
        p99_ms=figures.p99_ms,
        recovery_seconds=figures.recovery_seconds,
    )


def _read_faults_and_recoveries(folder: Path) -> tuple[tuple[FaultPhases, ...], tuple[RecoveryRow, ...]]:
    """Reads the history. Returns nothing if it was removed because the run had passed."""
    try:
        stored = open_stored(folder)
    except RemovedHistoryError:
        return (), ()
    if stored.lost is not None:  # why the contract cannot be read
        raise HistoryError(stored.lost)
    return _read_history(stored)


def read_figures(folder: Path) -> RunFigures:
    """Reads the figures of a run; empty if they are missing or unreadable."""
    return read_json_if_valid(folder / FIGURES, RunFigures) or RunFigures()


def _make_findings(judgement: Judgement, faults: Sequence[FaultPhases]) -> tuple[RunFinding, ...]:
    first = min((fault.injected for fault in faults if fault.injected is not None), default=None)
    found = []
    for anomaly, instances in sorted(judgement.anomalies.items()):
        times = [one.time for one in judgement.findings if one.anomaly == anomaly and one.time is not None]
        time = min(times, default=None)
        found.append(
            RunFinding(
                anomaly=anomaly,
                forbidden=anomaly in judgement.forbidden,
                instances=instances,
                time=time,
                since_fault=None if time is None or first is None else time - first,
            )
        )
    return tuple(found)


def _read_history(stored: StoredHistory) -> tuple[tuple[FaultPhases, ...], tuple[RecoveryRow, ...]]:
    ended = stored.closed and not stored.interrupted
    with Engines(spark=False).open(open_history(stored.history)) as engine:
        reader = register_history(engine, stored.history)
        digest = None if stored.info is None else stored.info.digest
        # The closing note of a history is `closed.json`, with its digest.
        if digest is not None and reader.closing_note is not None and reader.closing_note.digest != digest:
            raise HistoryError(f"{stored.history}: run.json has another digest; it is not this run's history")
        faults = _read_faults(engine)
        if not ended or all(fault.healed is None for fault in faults):
            return faults, ()
        register_contract(engine, stored.contract)
        for family in (LOG, REGISTER):
            create_views(engine, family.views)
        covered = coverage.measure_coverage(engine, stored.contract, disturbance.read_faults(engine), ended=ended)
    return faults, tuple(
        RecoveryRow(
            fault_id=one.fault.id,
            fault=one.fault.name,
            key=one.key,
            change=one.subject.write,
            look=one.subject.read,
            changed=one.write_delay,
            looked=one.read_delay,
        )
        for one in covered.recoveries
    )


def _read_faults(engine: Engine) -> tuple[FaultPhases, ...]:
    rows = engine.rows(
        "select id, min(case when phase = 'intended' then time end) as intended, "
        "max(case when phase = 'recovered' then time end) as recovered, "
        "max(case when phase = 'injected' then targets end) as targets from faults group by id"
    )
    phases = {row["id"]: row for row in rows}
    return tuple(
        FaultPhases(
            id=one.id,
            fault=one.name,
            targets=_parse_targets(phases[one.id]["targets"]),
            intended=phases[one.id]["intended"],
            injected=one.injected,
            healed=one.healed,
            recovered=phases[one.id]["recovered"],
            took_effect=one.took_effect,
            failed=one.failed,
        )
        for one in disturbance.read_faults(engine)
    )


def _parse_targets(text: str | None) -> tuple[str, ...]:
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"a fault's targets are no JSON: {str(text)[:100]!r}") from error
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _make_damaged_row(folder: Path, settings: dict[str, Any], problem: str) -> RunRow:
    """Makes the row of a damaged run. Its identity is a hash of the remaining files, so adding it again replaces it."""
    identity = hashlib.sha256(_run_name(folder).encode())
    for name in ("run.json", "settings.json", "verdict.json"):
        path = folder / name
        try:
            identity.update(read_file(path) if path.is_file() else b"-")
        except HugeFileError as error:
            identity.update(str(error.strerror).encode())
    values = settings.get("settings", {})
    nemesis = values.get("nemesis")
    return RunRow(
        run=identity.hexdigest()[:16],
        folder=_run_name(folder),
        test=to_encodable(folder.parent.name),
        workload=str(settings.get("experiment", UNKNOWN)),
        nemesis="+".join(map(str, nemesis)) or NONE if isinstance(nemesis, list) else UNKNOWN,
        defect=str(values.get("defect") or NONE),
        started=_find_start(folder).isoformat(),
        status=DAMAGED,
        problem=problem,
        system=find_setting(settings, "system", "name"),
        version=find_setting(settings, "versions", "source"),
    )


def _find_start(folder: Path) -> datetime:
    """Returns the start according to the folder's name, or else the folder's modification time."""
    try:
        return datetime.strptime(folder.name.partition(".")[0], STAMP).replace(tzinfo=UTC)
    except ValueError:
        return datetime.fromtimestamp(folder.lstat().st_mtime, UTC)


def _run_name(folder: Path) -> str:
    return to_encodable(f"{folder.parent.name}/{folder.name}")


def _hash_identity(folder: Path, info: RunInfo) -> str:
    """Returns a hash of the fields that never change during a run. The owner among them distinguishes machines."""
    parts = [folder.name, info.test, info.started, info.owner, info.seed, info.cluster, info.nemesis]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _read_settings(folder: Path) -> dict[str, Any]:
    """Reads the settings; empty if they are missing or unreadable, which ``open_stored`` reports for a judged run."""
    found = read_json_if_valid(folder / "settings.json", dict[str, Any]) or {}
    return found if isinstance(found.get("settings", {}), dict) else {}


def _find_workload(test: str, settings: dict[str, Any]) -> str:
    name = settings.get("experiment")
    return name if isinstance(name, str) else test.rpartition("::")[2].partition("[")[0] or UNKNOWN


def _find_defect(info: RunInfo, settings: dict[str, Any]) -> str:
    """Returns the defect. A run whose cluster did not start has no settings, only its repeat command."""
    defect = settings.get("settings", {}).get("defect")
    if "settings" in settings:
        return str(defect or NONE)
    option = DEFECT.search(info.command)
    return option[1] if option else NONE


def find_setting(settings: dict[str, Any], section: str, name: str) -> str | None:
    """Returns a value of ``settings.json`` if it is text, else None."""
    inner = settings.get(section)
    found = inner.get(name) if isinstance(inner, dict) else None
    return found if isinstance(found, str) else None


def _find_status(info: RunInfo) -> str:
    if info.awaits_verdict():
        return store.RUNNING
    return ABANDONED if info.status == store.RUNNING else info.status


def _explain_unended(info: RunInfo) -> str:
    return AWAITED if info.status in (store.FINISHED, store.INTERRUPTED) else UNENDED


def _has_valid_dates(info: RunInfo) -> bool:
    try:
        return all(
            datetime.fromisoformat(text).tzinfo is not None for text in (info.started, info.ended or info.started)
        )
    except ValueError:
        return False


def _compute_seconds(info: RunInfo) -> float | None:
    if info.ended is None:
        return None
    return (datetime.fromisoformat(info.ended) - datetime.fromisoformat(info.started)).total_seconds()
