"""The small files of a run's folder, read as leniently as can be: a report is wanted most when something went wrong.

What is missing is None or empty; what is there but cannot be read becomes a sentence for the page.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from assay.checkers.judging.verdict import Judgement
from assay.harness.core.files import read_json
from assay.harness.core.timestamps import Origin

T = TypeVar("T")

SHRINKING: Final = "shrinking.json"


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What ``run.json`` says of a run, as far as a page shows it; times are ISO 8601 in UTC."""

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
    """One file under ``logs/``; ``name`` is relative to the run's folder."""

    name: str
    size: int


class Shrinking(msgspec.Struct, frozen=True, kw_only=True):
    """``shrinking.json``: how a failing run's schedule was made small, of which this run is the result.

    ``kept`` and ``left_out``: its steps as they are said. ``first`` and ``last``: how often it failed before, where
    that was tried, and fails now.
    """

    runs: int
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    first: str | None
    last: str
    minimal: bool


@dataclass(frozen=True)
class RunFiles:
    """``judgement`` None: there is no verdict, because the run was cut short. ``problems``: what could not be read."""

    run: RunSummary
    settings: dict[str, Any]
    judgement: Judgement | None
    omitted: tuple[str, ...]
    """Faults that were meant to be in the schedule and are not, as ``schedule.json`` says."""
    shrinking: Shrinking | None
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
        omitted=_omitted(schedule or {}),
        shrinking=_read(run_dir / SHRINKING, Shrinking, problems),
        logs=_logs(run_dir),
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


def _omitted(schedule: dict[str, Any]) -> tuple[str, ...]:
    inner = schedule.get("schedule", schedule)
    found = inner.get("omitted") if isinstance(inner, dict) else None
    if not isinstance(found, list):
        return ()
    return tuple(one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in found)


def _logs(run_dir: Path) -> tuple[LogFile, ...]:
    files = sorted(path for path in (run_dir / "logs").rglob("*") if path.is_file())
    return tuple(LogFile(path.relative_to(run_dir).as_posix(), path.stat().st_size) for path in files)
