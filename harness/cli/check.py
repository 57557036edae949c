"""``assay check PATH``: judges a stored history, or one from elsewhere."""

from __future__ import annotations

import argparse
import math
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from assay.cluster.operating_system import measure_age
from assay.harness.cli.command import EXITS, PATIENCE, ExitCode, add_plugin_options, note, note_wait
from assay.harness.cli.time_estimate import LongReading
from assay.harness.run.limits import LONG
from assay.harness.run.settings import ENGINES, parse_engine
from assay.harness.stored.request import (
    AUTO,
    FORMATS,
    KEYS,
    MODEL_NAMES,
    MODELS,
    ORDERS,
    WORKLOADS,
    CheckRequest,
)
from assay.harness.stored.workload_table import describe_workloads

if TYPE_CHECKING:
    from assay.checkers.judging.verdict import Finding

UNITS: Final = {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("b", 1000), ("ib", 1024))
    for power, prefix in enumerate("kmgt", 1)
}
"""The bytes of each unit of ``--memory-limit``: ``kb`` is 1000, ``kib`` 1024."""
MOST_NOTED: Final = 20
"""Maximum number of findings that are printed before the search has ended."""
MAX_MEMORY: Final = 2**60
"""Maximum of ``--memory-limit`` in bytes. DuckDB cannot count many more."""
MIN_MEMORY: Final = 1_000_000
"""Minimum of ``--memory-limit`` in bytes. With less, even a trivial search runs out of memory."""

DESCRIPTION: Final = """\
Judges a history. A run is judged by the contract stored with it, a bare history folder by the strictest contract. A
file of another tool (Jepsen's history.edn, lines of a jepsen.log) is judged by a model: is it linearizable? Or it is
judged by the workload that made it, with the questions of Jepsen's checker of that name. The file is EDN (maps, or
vectors of process, type, f and value), JSON or JSON lines, history.txt or a jepsen.log, and may be compressed (.gz)."""

EXAMPLES: Final = """\
examples:
  assay check store/latest                                the last run, by its own contract
  assay check store                                       all runs in one pass, a line each; exits with the worst
  assay check /nights/* --spark-master=yarn --json        the same as one job of Spark; a line of JSON for each run
  assay check history/                                    Parquet folders ops/ and effects/, by the strictest contract
  assay check copy/ --contract=strictest                  the history of a run without its settings.json
  assay check history/ --model=kv                         Parquet folder ops/, by a model
  assay check part-000000.parquet --workload=bank         operations of one Parquet file, by a workload
  assay check history.edn --model=cas-register            Jepsen's: a vector of operations, or one map per line
  assay check history.edn --model=register --keys=tuples  values are [key value], of jepsen.independent
  assay check a.edn b.json.gz --workload=list-append      several files, a line each; exits with the worst
  assay check history.txt --model=register                Jepsen's lines of process, type, f and value
  assay check jepsen.log --model=cas-register             lines such as INFO  jepsen.util - 0 :invoke :read nil
  assay check kv.txt --format=edn --model=kv --json       {:process 1, :type :invoke, :f :get, :key "7", :value nil}
  assay check history.edn --workload=bank --total=100     Jepsen's bank: transfers, and reads of all accounts
  assay check history.edn --workload=set-full --linearizable
                                                          its elements, and no stale reads; --workload=help lists all
  assay check history.edn --workload=list-append --real-time
                                                          Elle's transactions, which must be strictly serializable
  assay check history.edn --workload=rw-register --level=snapshot-isolation
                                                          the level that the store promises
  assay check history.edn --model=bank.models:Account     your own model: the class Account in bank/models.py
  assay check history/ --model=kv --time-limit=60 --memory-limit=2GB
                                                          a key that takes more is unknown, and is named
  assay check history/ --model=kv --spark-master=yarn     its keys are searched by the executors

models:
{models}
  The initial value is nil, for kv the empty string, unless --initial says another. Your own model is a subclass of
  Model, `from assay import Model` (docs/cookbook/checking.md, "A model of your own").
exit codes: 0 pass, 1 fail, 2 unknown (also if no operation succeeded), 64 wrong usage or a malformed file (one line
  with file, line, column and reason), 130 Ctrl-C, after printing the result so far; of several runs the worst: 1,
  64 (one could not be judged, or is in a wrong place of the store), 2, 0
"""


def add(commands: Any) -> None:
    models = "\n".join(f"  {name:24}{about}" for name, about in MODELS.items())
    parser = commands.add_parser(
        "check",
        help="judge a stored history, or one of another tool",
        description=DESCRIPTION,
        epilog=EXAMPLES.replace("{models}", models),
    )
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH",
        help="a run, a history folder, a file, or Jepsen's folder; or a store, several runs, or several files",
    )  # fmt: skip
    parser.add_argument(
        "--contract", metavar="FILE",
        help="for a run that has lost its contract: a settings.json of the same test, or the word strictest",
    )  # fmt: skip
    add_file_options(parser)
    add_plugin_options(parser)
    parser.add_argument("--json", action="store_true", help="print the judgement as one JSON object")
    add_engine_options(parser)
    parser.set_defaults(run=run)


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say how the history of another tool is read and judged, for all verbs that judge one."""
    parser.add_argument(
        "--format", choices=FORMATS, default=AUTO, help="format of a file (default: recognised by its beginning)"
    )
    parser.add_argument(
        "--model", type=_parse_model, metavar="MODEL",
        help=f"the model of the operations ({', '.join(MODELS)}, or your own: package.module:Class), perhaps with "
        "arguments: 'cas-register(0)'; a file needs it or --workload",
    )  # fmt: skip
    parser.add_argument(
        "--initial", action="append", metavar="[KEY=]VALUE", default=[],
        help="the initial value of the registers (default: nil), or that of one KEY; repeatable: --initial=0 "
        "--initial=x=1",
    )  # fmt: skip
    parser.add_argument(
        "--workload", action=ChooseWorkload, metavar="WORKLOAD",
        help="the workload of Jepsen or Maelstrom that made the operations, whose question is asked "
        f"({', '.join(WORKLOADS)}); --workload=help describes each",
    )  # fmt: skip
    parser.add_argument(
        "--total", type=int, metavar="N", help="the sum of all accounts of a bank (default: what most reads show)"
    )
    parser.add_argument(
        "--level", type=_parse_level, metavar="LEVEL",
        help="for a workload of transactions: the isolation level that they must satisfy, such as read-committed, "
        "snapshot-isolation or strict-serializable (default for rw-register: serializable)",
    )  # fmt: skip
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE",
        help="for a workload of transactions: write the order that shows the level to FILE, for assay verify",
    )  # fmt: skip
    parser.add_argument(
        "--all-reads", action="store_true",
        help="for a workload of transactions: judge the reads of failed and unknown transactions as well",
    )  # fmt: skip
    parser.add_argument(
        "--negative-balances", action="store_true", help="accounts of a bank may have a negative balance"
    )
    parser.add_argument(
        "--linearizable", action="store_true",
        help="for a workload: ask for linearizability, beyond the question of the original checker",
    )  # fmt: skip
    parser.add_argument(
        "--real-time", action="store_true",
        help="for a workload: require real-time order, so an operation comes after all that ended before it began",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit", dest="seconds", type=_parse_seconds, metavar="SECONDS",
        help="seconds that the search by --model may take for each key, or that by --level for the history; beyond "
        "them it is unknown (default: 300). Reading the file does not count",
    )  # fmt: skip
    parser.add_argument(
        "--memory-limit", dest="bytes", type=_parse_bytes, metavar="SIZE",
        help="memory of the search of all keys, in addition to the history (4GiB), and memory of DuckDB, beyond which "
        "it uses the disk (4GB); for example 512MB",
    )  # fmt: skip
    parser.add_argument(
        "--keys", choices=KEYS, default=AUTO,
        help="tuples: every value is [key value]; none: values are as they are (default: by the first call)",
    )  # fmt: skip
    parser.add_argument(
        "--order",
        choices=ORDERS,
        default=ORDERS[0],
        help="time: by :time; file: as in the file (default: by :time unless it goes backwards)",
    )
    parser.add_argument(
        "--cas-refusals", dest="refusals", action="store_true",
        help="a cas with :fail and no error proves that the register held another value (default: it proves nothing)",
    )  # fmt: skip
    parser.add_argument(
        "--all-keys", dest="every_key", action="store_true",
        help="with --model: search each key to its limit even if another key is wrong (default: a second for each)",
    )  # fmt: skip


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say where the checks run."""
    parser.add_argument(
        "--engine", choices=ENGINES, default=ENGINES[0],
        help="default: sqlite for a small history, duckdb while it fits, else spark",
    )  # fmt: skip
    parser.add_argument(
        "--spark-master",
        metavar="URL",
        help="the Spark that judges the history: local[4], spark://..., yarn, k8s://...",
    )


class ChooseWorkload(argparse.Action):
    """Stores the name of a workload. ``help`` prints the list of workloads and ends the command."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if values == "help":
            print(describe_workloads())
            parser.exit()
        if values not in WORKLOADS:
            parser.error(f"argument --workload: there is no workload {values!r}; --workload=help lists them")
        setattr(namespace, self.dest, values)


def run(arguments: argparse.Namespace) -> ExitCode:
    import msgspec

    from assay.checkers.engine import Engines
    from assay.checkers.engine.duck import DEFAULT_MEMORY
    from assay.checkers.judging.verdict import add_stage
    from assay.harness.cli.command import hide_pandas
    from assay.harness.cli.time_estimate import show_estimate
    from assay.harness.run.registry import Registry
    from assay.harness.run.store import list_runs_below
    from assay.harness.stored.check_path import check, find_foreign_files

    if not arguments.plugin and not arguments.trust_run and (arguments.model is None or ":" not in arguments.model):
        hide_pandas()  # importing it would take as long as the check of a small history
    registry = Registry.with_modules(arguments.plugin, trusts_runs=arguments.trust_run)
    engine = parse_engine(arguments.engine, arguments.spark_master)
    if len(arguments.paths) > 1 and (files := find_foreign_files(make_request(arguments), arguments.paths)):
        from assay.harness.cli.check_many import check_files

        return check_files(files, arguments, engine)
    path = arguments.paths[0]
    if len(arguments.paths) > 1 or list_runs_below(path) or _has_only_overlooked_runs(make_request(arguments)):
        from assay.harness.cli.check_many import check_many

        return check_many(arguments, engine)
    start_seconds = measure_age()
    memory = DEFAULT_MEMORY if arguments.bytes is None else f"{arguments.bytes}B"
    with (
        Engines(engine, spark_master=arguments.spark_master, memory=memory) as engines,
        show_estimate() as estimate,
        note_wait(path) as end_wait,
        note_findings() as report,
    ):
        reading = LongReading(arguments.seconds)

        def show_progress(stage: str, done: int, total: int) -> None:
            end_wait()
            estimate.step(stage, done, total)
            reading.step(stage, done, total)

        checked = check(make_request(arguments), engines, registry, show_progress, report)
    judgement = add_stage(checked.judgement, "starting the command", start_seconds, first=True)
    print(msgspec.json.encode(judgement).decode() if arguments.json else checked.text)
    if judgement.interrupted:
        print("assay: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    return EXITS[judgement.verdict]


def _has_only_overlooked_runs(request: CheckRequest) -> bool:
    """Returns whether a folder that is no run, no history and not Jepsen's has runs in wrong places."""
    from assay.harness.run.store import find_overlooked, may_have_runs
    from assay.harness.stored.check_path import find_foreign_file

    if not may_have_runs(request.path) or find_foreign_file(request) is not None:
        return False
    return bool(find_overlooked(request.path, ()))


@contextmanager
def note_findings() -> Iterator[Callable[[Finding], None]]:
    """Prints findings of a search that goes on, because other keys may take long. A search that ends within
    ``PATIENCE`` prints none, because the result has them all.

    Yields a function that receives each finding.
    """
    waiting: SimpleQueue[Finding] = SimpleQueue()
    over = threading.Event()

    def print_findings() -> None:
        if over.wait(PATIENCE):
            return
        for _ in range(MOST_NOTED):
            found = waiting.get()
            if over.is_set():
                return
            note(f"FAIL so far, while other keys are searched: {found.claim}")

    printer = threading.Thread(target=print_findings, daemon=True)

    def report(finding: Finding) -> None:
        waiting.put(finding)
        if not printer.ident:
            printer.start()

    try:
        yield report
    finally:
        over.set()


def make_request(arguments: argparse.Namespace) -> CheckRequest:
    options = {field.name: getattr(arguments, field.name) for field in fields(CheckRequest) if field.name != "path"}
    options["initial"] = tuple(arguments.initial)
    return CheckRequest(arguments.paths[0], **options)


def _parse_model(text: str) -> str:
    base, parenthesis, rest = text.partition("(")
    module, colon, name = base.partition(":")
    imported = colon and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))
    if (base in MODEL_NAMES or imported) and (not parenthesis or rest.endswith(")")):
        return text
    raise argparse.ArgumentTypeError(
        f"there is no model {text!r}; the models are {', '.join(MODELS)}, and your own as package.module:Class; "
        "arguments "
        "stand in parentheses, as in 'cas-register(0)'"
    )


def _parse_level(text: str) -> str:
    from assay.checkers.isolation.levels import find_level

    try:
        return find_level(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONG:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; give seconds above 0, such as 60 or 0.5")
    return seconds


def _parse_bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]i?b)", text.strip(), re.IGNORECASE)
    size = float(match[1]) * UNITS[match[2].lower()] if match else 0.0
    if not MIN_MEMORY <= size <= MAX_MEMORY:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an amount of memory; give a number of MB or more with its unit, such as 500MB, 2GB "
            "or 2GiB"
        )
    return int(size)
