"""A stored run done again, and what came of it compared with the first time.

In the simulation the run's settings do exactly this run again: the same history, by its digest. On
real nodes nothing is exact: there the faults are played as they came out, on the same nodes at the same times, and what
can be compared is which anomalies are found.
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
from assay.harness.core.files import read_json, write_atomically
from assay.harness.core.history import HistoryError
from assay.harness.run import store
from assay.harness.run.command_line import DEFAULTS_OF_MIX, MIX
from assay.harness.run.store import RunInfo
from assay.harness.stored.repeat_arguments import Declined, repeat_arguments
from assay.nemesis.schedule.schedule import Record, decode, encode

SIMULATED: Final = "sim"
SCHEDULE: Final = "schedule.json"
AS_RESOLVED: Final = "replayed.json"


@dataclass(frozen=True)
class Comparison:
    """``same``: the histories' digests in the simulation, else the forbidden anomalies. ``again`` is the new run."""

    first: Path
    again: Path
    same: bool
    summary: str


@dataclass(frozen=True)
class Session:
    """A pytest that has ended: its exit code, the run that it made, and what it printed, if that was not shown."""

    status: int
    run: Path | None
    printed: str


def replay(path: Path, root: Path | None = None, agreed: Callable[[str], bool] = lambda command: True) -> Comparison:
    """Runs pytest in another process, its output this one's, and keeps the new run in ``root`` or next to the first.

    ``agreed`` is asked before anything is executed. Raises ``FileNotFoundError`` when ``path`` is no run,
    ``HistoryError`` when it cannot be done again, ``Declined`` when it is not to be.
    """
    first = path.resolve()
    info = store.read_run(first)
    if info is None:
        raise FileNotFoundError(f"{path} is not a run's folder: there is no readable run.json in it")
    if info.status == store.RUNNING or info.digest is None:
        raise HistoryError(f"{path}: the run did not come to its end, so there is nothing to compare with")
    root = first.parent.parent if root is None else root.resolve()
    argv = repeat_arguments(first, info)
    if not agreed(shlex.join(["pytest", *argv])):
        raise Declined
    if info.cluster != SIMULATED:
        argv = _as_resolved(argv, first)
    done = play(argv, root)
    found = None if done.run is None else store.read_run(done.run)
    if done.run is None or found is None or found.digest is None:
        raise HistoryError(f"pytest ended with {done.status} and left no complete run in {root}; see its output")
    return _compared(first, info, done.run, found)


def play(arguments: Sequence[str], root: Path, *, quietly: bool = False) -> Session:
    """Runs pytest in another process. A request to stop is passed on: pytest has the time to heal, check and report.

    Ctrl-C is not: a terminal sends it to pytest, too, and a second one may break off what heals.
    Other sessions may use the store meanwhile, so the run is known by its command.
    """
    before = set(store.runs(root))
    pipe = subprocess.PIPE if quietly else None
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments, f"--store={root}"], stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            printed, errors = process.communicate()
        except KeyboardInterrupt as request:
            if request.args:  # SIGTERM or SIGHUP, by its name: it may have come to this process alone
                process.send_signal(signal.SIGINT)
            process.communicate()
            raise
        finally:
            process.kill()  # after a second Ctrl-C
    asked = {word for word in arguments if "::" in word or word.startswith(("--seed=", "--replay="))}
    made = [run for run in store.runs(root) if run not in before and asked <= _command(run)]
    return Session(process.returncode, max(made, key=lambda run: run.name, default=None), errors or printed or "")


def _as_resolved(argv: list[str], first: Path) -> list[str]:
    """The same options with the schedule as it came out in place of faults yet to be drawn."""
    record = decode((first / SCHEDULE).read_bytes(), str(first / SCHEDULE))
    if isinstance(record, Record) and record.as_resolved().steps:
        write_atomically(first / AS_RESOLVED, encode(record.as_resolved()))
        drawn = ("--replay=", "--nemesis=", "--nemesis-target=", "--nemesis-interval=", "--nemesis-trigger=")
        usual = _left_out(argv) if f"--nemesis={MIX}" in argv else []
        return [word for word in (*argv, *usual) if not word.startswith(drawn)] + [f"--replay={first / AS_RESOLVED}"]
    return argv


def _left_out(argv: Sequence[str]) -> list[str]:
    """The options at the mix's own defaults, which are no one else's."""
    usual = {f"--{name.replace('_', '-')}": value for name, value in asdict(DEFAULTS_OF_MIX).items()}
    given = {word.partition("=")[0] for word in argv}
    return [f"{option}={value}" for option, value in usual.items() if option not in given]


def _command(run: Path) -> set[str]:
    info = store.read_info(run)
    return set() if info is None else set(shlex.split(info.command))


def _compared(first: Path, info: RunInfo, again: Path, found: RunInfo) -> Comparison:
    if info.cluster == SIMULATED:
        same = info.digest == found.digest
        relation = "is the same" if same else f"was {info.digest}: {_differences(first, again)}"
        return Comparison(first, again, same, f"history {found.digest} {relation}")
    before, now = forbidden_found(first), forbidden_found(again)
    summary = f"found again: {_listed(before & now)}; not again: {_listed(before - now)}; new: {_listed(now - before)}"
    return Comparison(first, again, bool(before & now) or before == now, summary)


def _differences(first: Path, again: Path) -> str:
    """Names the versions in which two runs differ. It also says which Python can replay the first run."""
    before, now = versions_of(first), versions_of(again)
    changed = [f"{name} {before[name]} (now {now.get(name)})" for name in before if before[name] != now.get(name)]
    if not changed:
        return "other settings, or code or packages whose versions a run does not keep"
    remedy = f"; replay it with Python {before['python']}" if before.get("python") != now.get("python") else ""
    return f"it was made with {', '.join(changed)}{remedy}"


def versions_of(run: Path) -> dict[str, str]:
    """The versions that a run keeps of what may change its history; none if its settings cannot be read."""
    try:
        settings = read_json(run / "settings.json", _Settings)
    except (OSError, msgspec.MsgspecError):
        return {}
    return {name: version for name, version in settings.versions.items() if name not in ("kernel", "machine")}


class _Settings(msgspec.Struct):
    """The part of ``settings.json`` that is read here."""

    versions: dict[str, str] = {}


def forbidden_found(run: Path) -> set[str]:
    """The forbidden anomalies of a run; none when it was not judged."""
    judgement = judged(run)
    if judgement is None:
        return set()
    return {name for name, count in judgement.anomalies.items() if count and name in judgement.forbidden}


def judged(run: Path) -> Judgement | None:
    """How a run was judged; None: it was not, or its file is damaged."""
    try:
        return read_json(run / "verdict.json", Judgement)
    except (OSError, msgspec.MsgspecError):
        return None


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
