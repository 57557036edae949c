"""``assay check PATH PATH ...``: judges many stored runs and prints a line for each."""

import argparse
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

import msgspec

from assay.checkers.engine import Engines
from assay.checkers.judging.verdict import Verdict
from assay.harness.cli.command import Exit, InputError, note, reading
from assay.harness.cli.time_estimate import estimating
from assay.harness.run import store
from assay.harness.stored.batch_check import Judged, judge_many
from assay.harness.stored.request import Request

PROBLEM: Final = "error"
"""Stands for a verdict if there is none."""
NAMED: Final = 5
"""Paths that are named in one line; the rest is counted."""
WORST_FIRST: Final = {
    Verdict.FAIL.value: Exit.FAIL,
    PROBLEM: Exit.USAGE,
    Verdict.UNKNOWN.value: Exit.UNKNOWN,
    Verdict.PASS.value: Exit.PASS,
}


def check_many(arguments: argparse.Namespace, engine: str) -> Exit:
    """Prints a line for each run as it is judged, and at the end the number of runs per verdict."""
    _plain(arguments)
    paths = runs_of(arguments.paths)
    counts: Counter[str] = Counter()
    worst: dict[str, Path] = {}
    with Engines(engine, spark_master=arguments.spark_master) as engines, estimating() as estimate:
        estimate.step("checking", 0, len(paths))
        judging = judge_many(
            paths, engines, arguments.plugin, lambda done: estimate.step("checking", done, len(paths)),
            trust_runs=arguments.trust_run,
        )  # fmt: skip
        try:
            while (judged := reading(lambda: next(judging, None))) is not None:
                said = PROBLEM if judged.judgement is None else judged.judgement.verdict.value
                counts[said] += 1
                worst.setdefault(said, judged.path)
                print(as_json(judged) if arguments.json else line(judged, said), flush=True)
        except KeyboardInterrupt:
            note(f"interrupted; {counts.total()} of {len(paths)} histories were judged")
            return Exit.INTERRUPTED
    ends = next(said for said in WORST_FIRST if counts[said])
    if not arguments.json:
        trust = ["--trust-run"] if arguments.trust_run else []
        plugins = map("--plugin={}".format, arguments.plugin)
        print(summary(counts, ends, ["assay", "check", str(worst[ends]), *plugins, *trust]))
    return WORST_FIRST[ends]


def _plain(arguments: argparse.Namespace) -> None:
    """Raises ``InputError`` for options that apply to a single history."""
    for field in fields(Request):
        if field.name != "path" and getattr(arguments, field.name) != field.default:
            option = {"seconds": "time-limit", "bytes": "memory-limit", "refusals": "cas-refusals"}.get(
                field.name, field.name.replace("_", "-")
            )
            several = f"{len(arguments.paths)} paths were given"
            given = several if len(arguments.paths) > 1 else f"{arguments.paths[0]} is a folder of runs"
            raise InputError(f"--{option} is for one history, and {given}")


def runs_of(paths: Sequence[Path]) -> list[Path]:
    """Returns each run or history folder once, in the order given, with all runs of stores and of test folders.

    A damaged run is included: its judgement names what is missing.

    Other paths are skipped with a note. Raises ``InputError`` for a missing path, and if there is no run at all.
    """
    found: dict[Path, Path] = {}
    others = []
    carried = []
    for path in paths:
        if not path.exists() and not path.is_symlink():
            raise InputError(f"{path} does not exist")
        for one in store.runs_below(path) or [path]:
            try:
                found.setdefault(store.resolve(one), one)
            except FileNotFoundError:
                if store.is_carried(one):
                    carried.append(str(one))
                elif store.looks_like_run(one) and not store.goes_on(one):
                    found.setdefault(one.resolve(), one)
                else:
                    others.append(str(one))
            except OSError:  # its judgement says why it cannot be read, and the others are judged
                found.setdefault(one.resolve(), one)
    if not found:
        raise InputError(
            f"there is no run or history folder, with ops/ or history/ops/ in it, at {_some(list(map(str, paths)))}"
        )
    if others:
        note(f"neither runs nor history folders, skipped: {_some(others)}")
    if carried:
        note(f"carried from another store without their histories, and not judged: {_some(carried)}")
    return list(found.values())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def line(judged: Judged, said: str) -> str:
    """Returns a line such as ``FAIL     store/latest  lost-write: ...``, from the first line of the full text."""
    first = judged.text.partition("\n")[0]
    verdict = said.upper() if said == Verdict.FAIL.value else said
    return f"{verdict:<9}{judged.path}  {first.removeprefix(said.upper()).lstrip(': ')}"


def as_json(judged: Judged) -> str:
    """Returns one object with ``path``, and ``judgement`` or ``problem``."""
    said = {"problem": judged.text} if judged.judgement is None else {"judgement": judged.judgement}
    return msgspec.json.encode({"path": str(judged.path), **said}).decode()


def summary(counts: Counter[str], ends: str, example: Sequence[str]) -> str:
    """Returns the number of histories per verdict, the worst first, and the command for the details of one."""
    each = ", ".join(f"{counts[said]} {said}" for said in WORST_FIRST if counts[said])
    more = "" if ends == Verdict.PASS.value else f"; for the details of one: {shlex.join(example)}"
    return f"{counts.total()} histories: {each}{more}"
