"""Repeats a stored run, and compares the result with the first run.

In the simulation the run's settings reproduce it exactly, with the same digest of the history. On real nodes, the same
faults are injected on the same nodes at the same times, but the histories differ. So only their anomalies are compared.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from assay.checkers.judging.verdict import Judgement
from assay.harness.core.files import read_file, read_json_if_valid, write_output
from assay.harness.core.history import HistoryError
from assay.harness.core.printable import to_printable
from assay.harness.run import store
from assay.harness.run.command_line import DEFAULTS_OF_MIX, MIX, RECORDED_OPTIONS, make_reset
from assay.harness.run.store import RunInfo
from assay.harness.stored.repeat_arguments import RepetitionDeclined, build_repeat_arguments
from assay.nemesis.schedule.schedule import ScheduleRecord, decode_schedule, encode_schedule

SIMULATED: Final = "sim"
SCHEDULE: Final = "schedule.json"
RESOLVED_SCHEDULE: Final = "replayed.json"


@dataclass(frozen=True)
class ReplayComparison:
    """Comparison of a run with its repetition ``again``. ``same``: by digest in the simulation, else by anomalies."""

    first: Path
    again: Path
    same: bool
    summary: str


@dataclass(frozen=True)
class PytestEnd:
    """Result of a pytest process: its exit code, the run that it made, and its output if the user did not see it.

    ``others``: its runs of the same test function with other parameters.
    """

    status: int
    run: Path | None
    printed: str
    others: Sequence[Path] = ()


def replay(
    path: Path, root: Path | None = None, confirm: Callable[[str], bool] = lambda command: True
) -> ReplayComparison:
    """Repeats a run with pytest in another process, and keeps the new run in ``root`` or next to the first.

    ``confirm`` gets the command before it is executed. Raises ``FileNotFoundError`` if ``path`` is no run,
    ``HistoryError`` if it cannot be repeated, and ``RepetitionDeclined`` if the user does not agree. Raises ``OSError``
    if the folder has a ``replayed.json`` of the user.
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
    session = run_pytest(argv, root, info)
    repeated = None if session.run is None else store.read_run(session.run)
    if session.run is None or repeated is None or repeated.digest is None:
        raise HistoryError(f"pytest ended with {session.status} and left no complete run in {root}; see its output")
    return _compare(first, info, session.run, repeated)


def run_pytest(arguments: Sequence[str], root: Path, original: RunInfo, *, quietly: bool = False) -> PytestEnd:
    """Repeats a run with pytest in another process. Raises ``HistoryError`` if pytest ran only other tests.

    A request to stop is passed on, so that pytest can heal, check and report. SIGINT is not passed on in the foreground
    of a terminal. There Ctrl-C reaches pytest as well, and a second signal could interrupt healing.

    Other sessions may use the store meanwhile, also for the same test. So only runs of the started process count.
    """
    before = set(store.list_runs(root))
    command = [sys.executable, "-m", "pytest", make_reset(RECORDED_OPTIONS), *arguments, f"--store={root}"]
    # Not pipes: a process that a test leaves running would hold them open.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
        streams = (printed, errors) if quietly else (None, None)
        with subprocess.Popen(command, stdout=streams[0], stderr=streams[1]) as process:
            started = store.read_owner(process.pid)
            try:
                process.wait()
            except KeyboardInterrupt as request:
                # The argument names SIGTERM or SIGHUP: they, or a program's SIGINT, may have reached this process only.
                if request.args or not _is_in_foreground():
                    process.send_signal(signal.SIGINT)
                process.wait()
                raise
            finally:
                process.kill()  # after a second Ctrl-C
        output = _read_text(errors) or _read_text(printed)
    expected = {word for word in arguments if "::" in word or word.startswith(("--seed=", "--replay="))}
    new = {run: info for run in store.list_runs(root) if run not in before and (info := store.read_info(run))}
    made = {
        run: info
        for run, info in new.items()
        if info.is_made_by(started) and expected <= set(shlex.split(info.command))
    }
    repeated = _find_repetition(original, made)
    if made and repeated is None:
        raise HistoryError(f"pytest made {len(made)} runs in {root}, none of {to_printable(original.test)}")
    others = [run for run in made if run != repeated]
    return PytestEnd(process.returncode, repeated, output, others)


def _is_in_foreground() -> bool:
    """Returns whether a Ctrl-C in the terminal reaches this process and its children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # there is no terminal
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _read_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _find_repetition(original: RunInfo, made: Mapping[Path, RunInfo]) -> Path | None:
    """Returns the newest run whose test has the parameters of the original run's test.

    Parameters are the text in the brackets of the test's id. They are compared in three ways, in this order:

    1. All of them.
    2. Without the faults, because a schedule may have replaced them.
    3. Also without the number of the repetition, which may follow the faults. It looks like a parameter.
    """
    for simplify in (_read_parameters, _omit_faults, _omit_faults_and_number):
        same = [run for run, info in made.items() if simplify(info) == simplify(original)]
        if same:
            return max(same, key=lambda run: run.name)
    return None


def _read_parameters(info: RunInfo) -> str:
    return info.test.partition("[")[2].removesuffix("]")


def _omit_faults(info: RunInfo, number: str = "") -> str:
    """Returns the parameters without the faults and mixes. ``number``: pattern of what may follow them."""
    words = (word.partition("=") for word in shlex.split(info.command))
    mixes = next((value.replace(",", "+") for option, _, value in words if option == "--workload-mix"), "")
    parameters = _read_parameters(info)
    for faults in (info.nemesis, "explore"):
        pattern = rf"(^|-){re.escape(faults)}(\+({re.escape(mixes)}|random))?{number}(?=-|$)"
        if re.search(pattern, parameters):
            return re.sub(pattern, "", parameters, count=1)
    return parameters


def _omit_faults_and_number(info: RunInfo) -> str:
    return _omit_faults(info, r"(-\d+)?")


def _replace_faults_by_schedule(argv: list[str], first: Path) -> list[str]:
    """Replaces the options that draw faults by the recorded schedule, with the times and targets that were drawn."""
    record = decode_schedule(read_file(first / SCHEDULE), str(first / SCHEDULE))
    if isinstance(record, ScheduleRecord) and record.as_resolved().steps:
        data = encode_schedule(record.as_resolved())
        # Each replay of the run writes the same content, so any other content is the user's.
        write_output(first / RESOLVED_SCHEDULE, data, re.compile(re.escape(data) + rb"\Z"))
        drawn = ("--replay=", "--nemesis=", "--nemesis-target=", "--nemesis-interval=", "--nemesis-trigger=")
        defaults = _find_omitted_defaults(argv) if f"--nemesis={MIX}" in argv else []
        return [word for word in (*argv, *defaults) if not word.startswith(drawn)] + [
            f"--replay={first / RESOLVED_SCHEDULE}"
        ]
    return argv


def _find_omitted_defaults(argv: Sequence[str]) -> list[str]:
    """Returns the options that the command omits because they have the defaults of a mix."""
    defaults = {f"--{name.replace('_', '-')}": value for name, value in asdict(DEFAULTS_OF_MIX).items()}
    given = {word.partition("=")[0] for word in argv}
    return [f"{option}={value}" for option, value in defaults.items() if option not in given]


def _compare(first: Path, info: RunInfo, again: Path, repeated: RunInfo) -> ReplayComparison:
    if info.cluster == SIMULATED:
        same = info.digest == repeated.digest
        relation = "is the same" if same else f"was {info.digest}: {_describe_differences(first, again)}"
        return ReplayComparison(first, again, same, f"history {repeated.digest} {relation}")
    for run, record in ((first, info), (again, repeated)):
        if record.verdict is not None and read_judgement(run) is None:
            raise HistoryError(
                f"{run}/verdict.json is missing or damaged, and run.json says {record.verdict}: the runs cannot be "
                "compared; `assay check` judges a run again"
            )
    before, now = read_forbidden_anomalies(first), read_forbidden_anomalies(again)
    parts = {"found again": before & now, "not again": before - now, "new": now - before}
    summary = "; ".join(f"{name}: {_join_names(anomalies)}" for name, anomalies in parts.items())
    same = bool(before & now) or (before == now and info.verdict == repeated.verdict)
    if before == now and not same:
        summary = f"the verdict was {info.verdict}, and is {repeated.verdict} now"
    return ReplayComparison(first, again, same, summary)


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
