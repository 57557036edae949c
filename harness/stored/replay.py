"""Repeats a stored run, and compares the result with the first run.

In the simulation the run's settings reproduce it exactly, with the same digest of the history. Real nodes are never
exact. There the faults are played as they were resolved, on the same nodes at the same times. Only the anomalies found
can be compared.
"""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import msgspec

from assay.checkers.judging.verdict import Judgement
from assay.harness.core.files import read_json_if_valid, write_atomically
from assay.harness.core.history import HistoryError
from assay.harness.run import store
from assay.harness.run.command_line import DEFAULTS_OF_MIX, MIX
from assay.harness.run.store import RunInfo
from assay.harness.stored.repeat_arguments import RepetitionDeclined, build_repeat_arguments
from assay.nemesis.schedule.schedule import ScheduleRecord, decode_schedule, encode_schedule

SIMULATED: Final = "sim"
SCHEDULE: Final = "schedule.json"
AS_RESOLVED: Final = "replayed.json"


@dataclass(frozen=True)
class ReplayComparison:
    """Comparison of a run with its repetition ``again``. ``same``: by digest in the simulation, else by anomalies."""

    first: Path
    again: Path
    same: bool
    summary: str


@dataclass(frozen=True)
class PytestEnd:
    """Result of a pytest process: its exit code, the run that it made, and its output if that was not shown."""

    status: int
    run: Path | None
    printed: str


def replay(
    path: Path, root: Path | None = None, confirm: Callable[[str], bool] = lambda command: True
) -> ReplayComparison:
    """Repeats a run with pytest in another process, and keeps the new run in ``root`` or next to the first.

    ``confirm`` gets the command before it is executed. Raises ``FileNotFoundError`` if ``path`` is no run,
    ``HistoryError`` if it cannot be repeated, and ``RepetitionDeclined`` if the user does not agree.
    """
    first = path.resolve()
    info = store.read_run(first)
    if info is None:
        raise FileNotFoundError(f"{path} is not a run's folder: there is no readable run.json in it")
    if info.status == store.RUNNING or info.digest is None:
        raise HistoryError(f"{path}: the run did not come to its end, so there is nothing to compare with")
    root = first.parent.parent if root is None else root.resolve()
    argv = build_repeat_arguments(first, info)
    if not confirm(shlex.join(["pytest", *argv])):
        raise RepetitionDeclined
    if info.cluster != SIMULATED:
        argv = _replace_faults_by_schedule(argv, first)
    session = run_pytest(argv, root)
    repeated = None if session.run is None else store.read_run(session.run)
    if session.run is None or repeated is None or repeated.digest is None:
        raise HistoryError(f"pytest ended with {session.status} and left no complete run in {root}; see its output")
    return _compare(first, info, session.run, repeated)


def run_pytest(arguments: Sequence[str], root: Path, *, quietly: bool = False) -> PytestEnd:
    """Runs pytest in another process. A request to stop is passed on, so pytest has time to heal, check and report.

    Ctrl-C is not passed on, because the terminal sends it to pytest as well, and a second one could interrupt healing.
    Other sessions may use the store meanwhile, so the new run is identified by its command.
    """
    before = set(store.list_runs(root))
    pipe = subprocess.PIPE if quietly else None
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments, f"--store={root}"], stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            printed, errors = process.communicate()
        except KeyboardInterrupt as request:
            if request.args:  # names SIGTERM or SIGHUP, which may have reached this process alone
                process.send_signal(signal.SIGINT)
            process.communicate()
            raise
        finally:
            process.kill()  # after a second Ctrl-C
    asked = {word for word in arguments if "::" in word or word.startswith(("--seed=", "--replay="))}
    made = [run for run in store.list_runs(root) if run not in before and asked <= _read_command(run)]
    return PytestEnd(process.returncode, max(made, key=lambda run: run.name, default=None), errors or printed or "")


def _replace_faults_by_schedule(argv: list[str], first: Path) -> list[str]:
    """Replaces the options that draw faults by the schedule as it was resolved."""
    record = decode_schedule((first / SCHEDULE).read_bytes(), str(first / SCHEDULE))
    if isinstance(record, ScheduleRecord) and record.as_resolved().steps:
        write_atomically(first / AS_RESOLVED, encode_schedule(record.as_resolved()))
        drawn = ("--replay=", "--nemesis=", "--nemesis-target=", "--nemesis-interval=", "--nemesis-trigger=")
        defaults = _find_omitted_defaults(argv) if f"--nemesis={MIX}" in argv else []
        return [word for word in (*argv, *defaults) if not word.startswith(drawn)] + [f"--replay={first / AS_RESOLVED}"]
    return argv


def _find_omitted_defaults(argv: Sequence[str]) -> list[str]:
    """Returns the options that the command omits because they have the defaults of a mix."""
    defaults = {f"--{name.replace('_', '-')}": value for name, value in asdict(DEFAULTS_OF_MIX).items()}
    given = {word.partition("=")[0] for word in argv}
    return [f"{option}={value}" for option, value in defaults.items() if option not in given]


def _read_command(run: Path) -> set[str]:
    info = store.read_info(run)
    return set() if info is None else set(shlex.split(info.command))


def _compare(first: Path, info: RunInfo, again: Path, repeated: RunInfo) -> ReplayComparison:
    if info.cluster == SIMULATED:
        same = info.digest == repeated.digest
        relation = "is the same" if same else f"was {info.digest}: {_describe_differences(first, again)}"
        return ReplayComparison(first, again, same, f"history {repeated.digest} {relation}")
    before, now = read_forbidden_anomalies(first), read_forbidden_anomalies(again)
    parts = {"found again": before & now, "not again": before - now, "new": now - before}
    summary = "; ".join(f"{name}: {_join_names(anomalies)}" for name, anomalies in parts.items())
    return ReplayComparison(first, again, bool(before & now) or before == now, summary)


def _describe_differences(first: Path, again: Path) -> str:
    """Describes the versions that differ between two runs, and the Python that can replay the first run."""
    before, now = read_versions(first), read_versions(again)
    changed = [f"{name} {before[name]} (now {now.get(name)})" for name in before if before[name] != now.get(name)]
    if not changed:
        return "other settings, or code or packages whose versions a run does not keep"
    remedy = f"; replay it with Python {before['python']}" if before.get("python") != now.get("python") else ""
    return f"it was made with {', '.join(changed)}{remedy}"


def read_versions(run: Path) -> dict[str, str]:
    """Returns the recorded versions that may change the history; none if the settings cannot be read."""
    settings = read_json_if_valid(run / "settings.json", _Settings) or _Settings()
    return {name: version for name, version in settings.versions.items() if name not in ("kernel", "machine")}


class _Settings(msgspec.Struct):
    """Part of ``settings.json`` that is read here."""

    versions: dict[str, str] = {}


def read_forbidden_anomalies(run: Path) -> set[str]:
    """Returns the forbidden anomalies of a run; none if it was not judged."""
    judgement = read_judgement(run)
    return set() if judgement is None else set(judgement.violations)


def read_judgement(run: Path) -> Judgement | None:
    """Returns the judgement of a run, or None if it was not judged or the file is damaged."""
    return read_json_if_valid(run / "verdict.json", Judgement)


def _join_names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
