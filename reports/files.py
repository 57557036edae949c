"""Reads the small files in a run's folder for a report, and tolerates missing and damaged files.

A missing file becomes None or an empty value. An unreadable file becomes a sentence for the page.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from assay.checkers.judging.sensitivity import FILE as SENSITIVITY
from assay.checkers.judging.sensitivity import Sensitivity
from assay.checkers.judging.verdict import Judgement
from assay.harness.core.files import leads_outside, read_json
from assay.harness.core.resources import FILE as RESOURCES
from assay.harness.core.resources import Resources
from assay.harness.core.timestamps import Origin

T = TypeVar("T")

SHRINKING: Final = "shrinking.json"


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ``run.json`` that a page shows. Times are ISO 8601 in UTC. ``origin``: when the run began."""

    test: str = ""
    status: str = ""
    started: str | None = None
    ended: str | None = None
    seed: int | None = None
    cluster: str = ""
    nemesis: str = ""
    command: str = ""
    digest: str | None = None
    origin: Origin | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class LogFile:
    """A file under ``logs/``. ``name``: its path, relative to the run's folder."""

    name: str
    size: int


class Shrinking(msgspec.Struct, frozen=True, kw_only=True):
    """``shrinking.json``: how the schedule of a failing run was shrunk to the schedule of this run.

    ``kept``, ``left_out``: steps of the schedule, in words. ``first``, ``last``: how often the run failed before
    shrinking (None if not measured) and afterwards, in words. ``minimal``: whether no further step could be left out.
    """

    runs: int
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    first: str | None
    last: str
    minimal: bool


@dataclass(frozen=True)
class RunFiles:
    """Contents of the files. ``judgement``: None if the run has no verdict. ``problems``: unreadable files."""

    run: RunSummary
    settings: dict[str, Any]
    judgement: Judgement | None
    omitted: tuple[str, ...]
    """Faults that were left out of the schedule, according to ``schedule.json``."""
    shrinking: Shrinking | None
    sensitivity: Sensitivity | None
    """The result of `assay sensitivity`, if it was called."""
    resources: Resources | None
    """Memory and disk space over time, if they were recorded."""
    logs: tuple[LogFile, ...]
    problems: tuple[str, ...]


def read_files(run_dir: Path) -> RunFiles:
    problems: list[str] = []
    run = _read(run_dir / "run.json", RunSummary, problems)
    settings = _read(run_dir / "settings.json", dict[str, Any], problems)
    schedule = _read(run_dir / "schedule.json", dict[str, Any], problems)
    return RunFiles(
        run=run or RunSummary(),
        settings=settings or {},
        judgement=_read(run_dir / "verdict.json", Judgement, problems),
        omitted=_find_omitted(schedule or {}),
        shrinking=_read(run_dir / SHRINKING, Shrinking, problems),
        sensitivity=_read(run_dir / SENSITIVITY, Sensitivity, problems),
        resources=_read(run_dir / RESOURCES, Resources, problems),
        logs=_list_logs(run_dir, problems),
        problems=tuple(problems),
    )


def _read(path: Path, kind: type[T], problems: list[str]) -> T | None:
    try:
        return read_json(path, kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return None


def _find_omitted(schedule: dict[str, Any]) -> tuple[str, ...]:
    inner = schedule.get("schedule", schedule)
    found = inner.get("omitted") if isinstance(inner, dict) else None
    if not isinstance(found, list):
        return ()
    return tuple(one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in found)


def _list_logs(run_dir: Path, problems: list[str]) -> tuple[LogFile, ...]:
    """Returns the files below ``logs/``. A link that leads out of the run is left out, and becomes a problem."""
    problems += describe_outside_logs(run_dir)
    files = [path for path in _find_log_files(run_dir) if not leads_outside(path, run_dir)]
    return tuple(LogFile(path.relative_to(run_dir).as_posix(), path.stat().st_size) for path in files)


def describe_outside_logs(run_dir: Path) -> list[str]:
    """Returns a line for each log file that a report leaves out, because it is a link out of the run."""
    outside = [path for path in _find_log_files(run_dir) if leads_outside(path, run_dir)]
    return [
        f"{path.relative_to(run_dir).as_posix()} is a link that leads out of the run, and is left out: put the file "
        "itself there"
        for path in outside
    ]


def _find_log_files(run_dir: Path) -> list[Path]:
    return sorted(path for path in (run_dir / "logs").rglob("*") if path.is_file())
