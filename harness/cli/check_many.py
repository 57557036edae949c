"""``assay check PATH PATH ...``: judges many stored runs, or many files of other tools, and prints a line for each."""

import argparse
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from assay.checkers.engine import Engines
from assay.checkers.engine.duck import DEFAULT_MEMORY
from assay.checkers.judging.judge import ProgressCallback
from assay.checkers.judging.verdict import Verdict
from assay.harness.cli.command import ExitCode, InputError, note, note_wait, show
from assay.harness.cli.time_estimate import LongReading, show_estimate
from assay.harness.core.history import HistoryError
from assay.harness.core.printable import join_some
from assay.harness.run import store
from assay.harness.run.registry import Registry
from assay.harness.stored.batch_check import BatchResult, judge_many
from assay.harness.stored.check_path import check
from assay.harness.stored.request import CheckRequest

NO_VERDICT: Final = "error"
"""Printed for a history that could not be judged."""
MAX_NAMED: Final = 5
"""Maximum number of paths that a line names; it gives only the number of the others."""
_OPTIONS: Final = {
    "seconds": "time-limit",
    "bytes": "memory-limit",
    "refusals": "cas-refusals",
    "every_key": "all-keys",
}
"""Options whose names differ from those of the fields of a request."""
WORST_FIRST: Final = {
    Verdict.FAIL.value: ExitCode.FAIL,
    NO_VERDICT: ExitCode.USAGE,
    Verdict.UNKNOWN.value: ExitCode.UNKNOWN,
    Verdict.PASS.value: ExitCode.PASS,
}
"""Exit codes by verdict, the worst verdict first."""


def check_many(arguments: argparse.Namespace, engine: str) -> ExitCode:
    """Prints a line for each run as it is judged, and at the end the number of runs per verdict."""
    _require_plain_options(arguments)
    overlooked = find_overlooked_runs(arguments.paths)
    paths = find_runs(arguments.paths, required=not overlooked)
    with Engines(engine, spark_master=arguments.spark_master) as engines, show_estimate() as estimate:
        estimate.step("checking", 0, len(paths))
        judging = judge_many(
            paths, engines, arguments.plugin, lambda done: estimate.step("checking", done, len(paths)),
            trust_runs=arguments.trust_run,
        )  # fmt: skip
        options = [*map("--plugin={}".format, arguments.plugin), *(["--trust-run"] if arguments.trust_run else [])]
        results = chain(judging, overlooked)
        return _print_results(results, len(paths) + len(overlooked), options, as_json=arguments.json)


def check_files(requests: Sequence[CheckRequest], arguments: argparse.Namespace, engine: str) -> ExitCode:
    """Prints a line for each file of another tool. All of them are judged by the same model or workload.

    Raises ``SettingsError`` for options that no file could be judged by.
    """
    registry = Registry.with_modules(arguments.plugin, trusts_runs=arguments.trust_run)
    memory = DEFAULT_MEMORY if arguments.bytes is None else f"{arguments.bytes}B"
    with (
        Engines(engine, spark_master=arguments.spark_master, memory=memory) as engines,
        show_estimate() as estimate,
    ):
        judging = _judge_files(requests, engines, registry, estimate.step)
        return _print_results(judging, len(requests), list_options(requests[0]), as_json=arguments.json)


def _judge_files(
    requests: Sequence[CheckRequest], engines: Engines, registry: Registry, progress: ProgressCallback
) -> Iterator[BatchResult]:
    for request in requests:
        try:
            with note_wait(request.path) as end_wait:
                reading = LongReading(request.seconds)
                judged = check(request, engines, registry, _call_all(end_wait, reading, progress))
        except (HistoryError, OSError) as error:
            yield BatchResult(request.path, None, str(error))
            continue
        yield BatchResult(request.path, judged.judgement, judged.text)
        if judged.judgement.interrupted:
            raise KeyboardInterrupt


def _call_all(end_wait: Callable[[], None], reading: LongReading, progress: ProgressCallback) -> ProgressCallback:
    """Returns a function that calls ``end_wait``, because something has been read, and then the others."""

    def show_progress(stage: str, done: int, total: int) -> None:
        end_wait()
        progress(stage, done, total)
        reading.step(stage, done, total)

    return show_progress


def list_options(request: CheckRequest) -> list[str]:
    """Returns the options that differ from the defaults, as the user may write them."""
    options = []
    for field in fields(CheckRequest):
        value, name = getattr(request, field.name), _name_option(field.name)
        if field.name == "path" or value == field.default:
            continue
        for one in value if isinstance(value, tuple) else (value,):
            text = f"{one / 10**6:g}MB" if field.name == "bytes" else one
            options.append(f"--{name}" if one is True else f"--{name}={text}")
    return options


def _name_option(field: str) -> str:
    return _OPTIONS.get(field, field.replace("_", "-"))


def _print_results(judging: Iterable[BatchResult], total: int, options: Sequence[str], *, as_json: bool) -> ExitCode:
    """Prints each result and, at the end, the number of histories per verdict. Returns the worst exit code."""
    counts: Counter[str] = Counter()
    examples: dict[str, Path] = {}
    try:
        for judged in judging:
            verdict = NO_VERDICT if judged.judgement is None else judged.judgement.verdict.value
            counts[verdict] += 1
            examples.setdefault(verdict, judged.path)
            if as_json:
                print(to_json(judged), flush=True)
            else:
                show(describe_result(judged, verdict))
    except KeyboardInterrupt:
        note(f"interrupted; {counts.total()} of {total} histories were judged")
        return ExitCode.INTERRUPTED
    worst = next(verdict for verdict in WORST_FIRST if counts[verdict])
    if not as_json:
        show(describe_counts(counts, worst, ["assay", "check", str(examples[worst]), *options]))
    return WORST_FIRST[worst]


def _require_plain_options(arguments: argparse.Namespace) -> None:
    """Raises ``InputError`` if an option is given that applies to a single history."""
    for field in fields(CheckRequest):
        given = getattr(arguments, field.name, None)
        if field.name != "path" and (tuple(given) if isinstance(given, list) else given) != field.default:
            option = _name_option(field.name)
            several = f"{len(arguments.paths)} paths were given"
            reason = several if len(arguments.paths) > 1 else f"{arguments.paths[0]} is a folder of runs"
            raise InputError(f"--{option} is for one history, and {reason}")


def find_runs(paths: Sequence[Path], *, required: bool) -> list[Path]:
    """Returns each run or history folder once, in the order given, with all runs of stores and of test folders.

    A damaged run is included: its judgement names what is missing. Other paths are skipped with a note.

    Raises ``InputError`` for a missing path, and if a run is ``required`` and there is none.
    """
    found: dict[Path, Path] = {}
    others: list[Path] = []
    carried: list[Path] = []
    removed: dict[Path, Path] = {}
    reason = ""
    for path in paths:
        if not path.exists() and not path.is_symlink():
            raise InputError(f"{path} does not exist")
        for one in store.list_runs_below(path) or [path]:
            try:
                found.setdefault(store.resolve_history(one), one)
            except store.RemovedHistoryError as error:
                removed.setdefault(store.follow_links(one), one)
                reason = str(error)
            except FileNotFoundError:
                if store.is_carried(one):
                    carried.append(one)
                elif store.looks_like_run(one) and not store.is_active(one):
                    found.setdefault(store.follow_links(one), one)
                else:
                    others.append(one)
            except OSError:  # its judgement will say why it cannot be read
                found.setdefault(store.follow_links(one), one)
    if removed and not found and required:
        raise InputError(reason if len(removed) == 1 else _describe_removed(list(removed.values())))
    if not found and required:
        raise InputError(
            f"there is no run or history folder, with ops/ or history/ops/ in it, at {join_some(paths, MAX_NAMED)}"
        )
    if others:
        note(f"neither runs nor history folders, skipped: {join_some(others, MAX_NAMED)}")
    if carried:
        note(f"carried from another store without their histories, and not judged: {join_some(carried, MAX_NAMED)}")
    if removed:
        note(_describe_removed(list(removed.values())))
    return list(found.values())


def find_overlooked_runs(paths: Sequence[Path]) -> list[BatchResult]:
    """Returns a result without a judgement for each run in a wrong place of a store.

    A run is left out if its own path is given as well, or a folder in which it is at the right place.
    """
    listed = {path: store.list_runs_below(path) for path in paths}
    known = {store.follow_links(run) for path, runs in listed.items() for run in (path, *runs)}
    overlooked = {
        run: f"not judged: {reason}, or give its path"
        for path in filter(store.may_have_runs, paths)
        for run, reason in store.find_overlooked(path, listed[path])
        if store.follow_links(run) not in known
    }
    return [BatchResult(run, None, reason) for run, reason in overlooked.items()]


def _describe_removed(runs: Sequence[Path]) -> str:
    return (
        "not judged again, because they passed and their histories were removed (--keep-history=failures): "
        f"{join_some(runs, MAX_NAMED)}"
    )


def describe_result(judged: BatchResult, verdict: str) -> str:
    """Returns a line such as ``FAIL     store/latest  lost-write: ...``, from the first line of the full text."""
    first = judged.text.partition("\n")[0].removeprefix(verdict.upper()).lstrip(": ")
    return f"{verdict.upper() if verdict == Verdict.FAIL.value else verdict:<9}{judged.path}  {first}"


def to_json(judged: BatchResult) -> str:
    """Returns one object with ``path``, and ``judgement`` or ``problem``."""
    result = {"problem": judged.text} if judged.judgement is None else {"judgement": judged.judgement}
    return msgspec.json.encode({"path": str(judged.path), **result}).decode()


def describe_counts(counts: Counter[str], worst: str, example: Sequence[str]) -> str:
    """Returns the number of histories per verdict, the worst first, and the command for the details of one."""
    numbers = ", ".join(f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if counts[verdict])
    details = "" if worst == Verdict.PASS.value else f"; for the details of one: {shlex.join(example)}"
    return f"{counts.total()} {'history' if counts.total() == 1 else 'histories'}: {numbers}{details}"
