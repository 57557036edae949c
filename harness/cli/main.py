"""The ``assay`` command: what is done with runs when no test is running.

Exit codes: 0 pass (or done), 1 fail, 2 unknown, 64 wrong usage or unreadable input, 70 an error of the program itself.
Results go to standard output, everything else to standard error, so that ``--json`` can be piped.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from assay.harness.cli import check_options
from assay.harness.run.settings import ENGINES, SettingsError, parse_engine
from assay.harness.synthetic.catalogue import CATALOGUE


class Exit(IntEnum):
    """64 and 70 are those of ``sysexits.h``, 130 is a shell's for SIGINT."""

    PASS = 0
    FAIL = 1
    UNKNOWN = 2
    USAGE = 64
    INTERNAL = 70
    INTERRUPTED = 130


class InputError(Exception):
    """What was given cannot be worked with; the message says what to give instead."""


DESCRIPTION = """\
A correctness tester for distributed systems. Runs are made by pytest; this command looks at them afterwards.

  pytest workloads/ --nemesis=partition      run a test under a fault (pytest --help, group assay)
  assay check store/latest                   judge the last run again
  assay check history.edn --model=register   judge a history from elsewhere (Jepsen's; assay check --help)
  assay report store/latest                  write its HTML report again and say where it is
  assay replay store/latest                  do the last run again and compare
  assay shrink store/latest                  make its schedule small, if it failed
  assay nights show nights                   what the runs of many nights come to (assay nights --help)
  assay up                                   a cluster of the broker, for whatever else needs one
"""

GENERATE = """\
Writes the history that many clients of correct objects could have had, with one anomaly for each --plant in it, and
tells where those are (also in DIR/planted.json). `assay check DIR` must find them, and nothing else. Memory does not
grow with the number of operations.

  assay generate log --operations=10000000 --keys=1000 --seed=7 --plant=lost-write --out=big
  assay check big                            1: it is found
  assay generate register --clients=200 --info-share=0.1 --bursts=3 --out=hard
  assay check hard                           0: nothing is, although every tenth operation timed out
"""

NIGHTS = """\
Keeps what the runs of many nights came to in one partitioned data set (night=2026-11-21/<run>.parquet), and computes
tables over it, by Spark.

  assay nights add store --into=nights                 tonight's runs; again, or from other machines, as often as wanted
  assay nights show nights                             verdicts, recovery times, what changed, which defects were caught
  assay nights show nights --json --require-detection  for a program; 1: the newest night missed a defect
"""

EPILOG = """\
A PATH is a run folder (store/<test>/<time>), a latest link, or a history folder with ops/ and effects/ in it; for check
also a file with a history of Jepsen's.
exit codes: 0 pass or done, 1 fail, 2 unknown, 64 wrong usage or unreadable input, 70 internal error
"""


class Parser(argparse.ArgumentParser):
    """As argparse's, with exit code 64."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {message}\nTry `{self.prog} --help`.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], Exit] = arguments.run
    try:
        return int(run(arguments))
    except InputError as error:
        print(f"assay: {error}", file=sys.stderr)
        return int(Exit.USAGE)
    except KeyboardInterrupt:
        print("assay: interrupted", file=sys.stderr)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has had enough of it; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception:  # noqa: BLE001 - the last resort: shown whole, told apart from a verdict by its exit code
        traceback.print_exc()
        print("assay: internal error, see above; please report it with the command line", file=sys.stderr)
        return int(Exit.INTERNAL)


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    top = Parser(
        prog="assay", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"assay {metadata.version('assay')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    check = commands.add_parser(
        "check", help="judge a stored history, or one from elsewhere", description=check_options.DESCRIPTION,
        epilog=check_options.EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    check_options.add(check)
    check.add_argument("--json", action="store_true", help="print the judgement as one JSON object")
    check.add_argument(
        "--engine", choices=ENGINES, default=ENGINES[0], help="default: duckdb while it fits, else spark"
    )
    check.add_argument(
        "--spark-master", metavar="URL", help="judge on this Spark: local[4], spark://..., yarn, k8s://..."
    )
    check.set_defaults(run=_check)

    report = commands.add_parser("report", help="write a run's HTML report again")
    report.add_argument("path", type=Path, metavar="PATH")
    report.set_defaults(run=_report)

    replay = commands.add_parser("replay", help="do a stored run again and compare", description=(
        "Does the run again: in the simulation exactly, so that the history's digest must be the same; on real nodes "
        "with the faults as they came out, and compares what is found. Exit code 0: the same, 1: not."))  # fmt: skip
    replay.add_argument("path", type=Path, metavar="RUN")
    replay.add_argument("--store", type=Path, metavar="DIR", help="where the new run is kept (beside the first)")
    replay.set_defaults(run=_replay)

    shrink = commands.add_parser("shrink", help="make a failing run's schedule small", description=(
        "Does a failing run again and again, leaving out faults, clients, nodes and time, and keeps what still fails "
        "with the same anomaly. How often it fails is estimated first, and told with its interval."))  # fmt: skip
    shrink.add_argument("path", type=Path, metavar="RUN")
    shrink.add_argument("--replays", type=_count, default=10, metavar="N", help="to estimate how often it fails (10)")
    shrink.add_argument(
        "--budget", type=_count, metavar="S", help="seconds to go on for (default: until it is minimal)"
    )
    shrink.add_argument("--store", type=Path, metavar="DIR", help="where the runs are kept (beside the first)")
    shrink.set_defaults(run=_shrink)

    up = commands.add_parser("up", help="a broker cluster in Docker, until Ctrl-C", description=(
        "Starts the broker and its ZooKeeper in containers, prints the brokers' addresses, which this machine reaches, "
        "on one line of standard output, and takes it all away at Ctrl-C. Topics are made when first asked for."),
        epilog="example: kcat -b $(cat addresses) -L, after: assay up > addresses")  # fmt: skip
    up.add_argument("--nodes", type=_positive, default=3, metavar="N", help="brokers (3)")
    up.add_argument("--zookeepers", type=_positive, default=1, metavar="N", help="ZooKeeper servers (1)")
    up.add_argument("--partitions", type=_positive, default=4, metavar="N", help="of a topic that is asked for (4)")
    up.add_argument("--defect", metavar="NAME", help="one of `assay defects` switched on")
    up.set_defaults(run=_up)

    heal = commands.add_parser("heal", help="undo what broken-off runs left behind", description=(
        "Replays the undo journals of sessions that are dead and removes their containers and networks."))  # fmt: skip
    heal.add_argument("--all", action="store_true", help="also what sessions that are still alive have done")
    heal.set_defaults(run=_heal)

    doctor = commands.add_parser("doctor", help="what this machine can do, and what to install")
    doctor.add_argument("--json", action="store_true", help="as a JSON list")
    doctor.set_defaults(run=_doctor)

    gc = commands.add_parser("gc", help="delete old runs", description=(
        "Keeps the newest runs of each test, those that latest links point at, and those still going on."))  # fmt: skip
    gc.add_argument("store", nargs="?", type=Path, default=Path("store"), metavar="STORE", help="default: store")
    gc.add_argument("--keep", type=_count, default=10, metavar="N", help="newest runs to keep of each test (10)")
    gc.add_argument("--older-than", type=_count, metavar="DAYS", help="only runs that began longer ago")
    gc.add_argument("--dry-run", action="store_true", help="only list what would go")
    gc.set_defaults(run=_gc)

    defects = commands.add_parser("defects", help="the defects built into the broker, for --defect=NAME", description=(
        "Lists what --defect switches on, the fault that shows it, and the anomaly to be reported."))  # fmt: skip
    defects.add_argument("--json", action="store_true", help="as a JSON list")
    defects.set_defaults(run=_defects)

    generate = commands.add_parser("generate", help="write a synthetic history of any size to check",
        description=GENERATE, epilog=_catalogue(), formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    generate.add_argument("model", choices=tuple(CATALOGUE), metavar="MODEL", help=f"{', '.join(CATALOGUE)}")
    generate.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder that holds nothing yet")
    generate.add_argument("--operations", type=_count, default=100_000, metavar="N", help="default: 100000")
    generate.add_argument("--clients", type=_count, default=50, metavar="N", help="operations open at once (50)")
    generate.add_argument(
        "--keys", type=_count, default=100, metavar="N", help="partitions, registers, leases... (100)"
    )
    generate.add_argument("--seed", type=_count, default=0, metavar="N", help="the same seed, the same history (0)")
    generate.add_argument("--info-share", type=float, default=0.01, metavar="SHARE", help="that time out (0.01)")
    generate.add_argument(
        "--bursts", type=_count, metavar="N", help="they time out in N windows of time, in which hardly anybody is "
        "answered, as under faults of the network; 0: anywhere (default: one for each 25000 operations)"
    )  # fmt: skip
    generate.add_argument(
        "--plant", action="append", default=[], metavar="ANOMALY", help="plant one, in a key of its own; may be given "
        "more than once"
    )  # fmt: skip
    generate.set_defaults(run=_generate)

    _nights_commands(commands)

    image = commands.add_parser("image", help="the node image").add_subparsers(required=True, metavar="ACTION")
    build = image.add_parser("build", help="build the image that Docker nodes run, unless it is there")
    build.set_defaults(run=_image_build)
    return top


def _nights_commands(commands: Any) -> None:
    about = commands.add_parser("nights", help="what the runs of many nights come to", description=NIGHTS,
        formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    nights = about.add_subparsers(required=True, metavar="ACTION")

    add = nights.add_parser("add", help="add the runs of stores to a data set", description=(
        "Each run becomes one row; added again, it takes its own place. Runs that did not come to their end, or are "
        "damaged, are rows without a verdict, and named on standard error."))  # fmt: skip
    add.add_argument("stores", nargs="+", type=Path, metavar="STORE", help="a folder with <test>/<time>/ in it")
    add.add_argument("--into", type=Path, required=True, metavar="DATASET", help="made if it is not there")
    add.add_argument("--night", type=_date, metavar="DATE", help="2026-11-21 (default: the UTC day each run began on)")
    add.set_defaults(run=_nights_add)

    show = nights.add_parser("show", help="the tables over a data set, by Spark", description=(
        "Verdicts and recovery times of the newest night, what changed since the one before, and which runs caught "
        "which defect, over all nights."))  # fmt: skip
    show.add_argument("dataset", type=Path, metavar="DATASET")
    show.add_argument("--json", action="store_true", help="all tables of all nights as one JSON object")
    show.add_argument("--out", type=Path, metavar="DIR", help="write each as Parquet and CSV, too")
    show.add_argument(
        "--require-detection", action="store_true",
        help="exit 1 unless the newest night caught every one of `assay defects`, and every other that was ever run",
    )  # fmt: skip
    show.add_argument("--spark-master", metavar="URL", help="compute on this Spark (default: in a JVM of its own)")
    show.set_defaults(run=_nights_show)


def _check(arguments: argparse.Namespace) -> Exit:
    import msgspec

    from assay.checkers.engine import Engines
    from assay.checkers.verdict import Verdict
    from assay.harness.cli.estimate import estimating
    from assay.harness.stored.check import Checked, check

    asked = check_options.asked(arguments)
    engine = _input(lambda: parse_engine(arguments.engine, arguments.spark_master))
    with Engines(engine, spark_master=arguments.spark_master) as engines, estimating() as estimate:
        checked: Checked = _input(lambda: check(asked, engines, estimate))
    print(msgspec.json.encode(checked.judgement).decode() if arguments.json else checked.text)
    if checked.judgement.interrupted:
        print("assay: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    return {Verdict.PASS: Exit.PASS, Verdict.FAIL: Exit.FAIL, Verdict.UNKNOWN: Exit.UNKNOWN}[checked.judgement.verdict]


def _report(arguments: argparse.Namespace) -> Exit:
    from assay.harness.stored.stored import open_stored
    from assay.reports.page import render

    stored = _input(lambda: open_stored(arguments.path))
    if stored.run is None:
        raise InputError(f"{arguments.path} is a bare history; a report needs the run folder around it")
    print(render(stored.run))
    return Exit.PASS


def _replay(arguments: argparse.Namespace) -> Exit:
    from assay.harness.stored.replay import replay

    compared = _input(lambda: replay(arguments.path, arguments.store))
    print(f"assay: {compared.told}\nassay: replayed as {compared.again}")
    return Exit.PASS if compared.same else Exit.FAIL


def _shrink(arguments: argparse.Namespace) -> Exit:
    from assay.harness.search.shrunk import shrink

    def note(line: str) -> None:
        print(f"assay: {line}", file=sys.stderr, flush=True)

    shrunk = _input(lambda: shrink(arguments.path, arguments.store, arguments.replays, arguments.budget, note))
    print(shrunk.told())
    return Exit.PASS


def _up(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.doctor import engine_available
    from assay.cluster.node import NodeError
    from assay.cluster.system import DeploymentError
    from assay.harness.cli.up import Addresses, up
    from assay.system_under_test.deployment import Broker

    if not engine_available():
        raise InputError("no Docker engine answers, or no node image can be made; `assay doctor` tells what is missing")
    system = Broker(partitions=0, auto_create_topics=True, auto_create_partitions=arguments.partitions)
    if arguments.defect is not None:
        if arguments.defect not in system.defects:
            raise InputError(f"no defect {arguments.defect!r}; there are {', '.join(system.defects)}")
        system = system.with_defect(arguments.defect)

    def note(line: str) -> None:
        print(f"assay: {line}", file=sys.stderr, flush=True)

    def serving(addresses: Addresses) -> None:
        print(addresses.bootstrap, flush=True)
        note(f"brokers at {addresses.bootstrap}, ZooKeeper at {addresses.zookeeper}; Ctrl-C takes it all away")

    try:
        up(system, arguments.nodes, arguments.zookeepers, note, serving)
    except (NodeError, DeploymentError) as error:
        raise InputError(str(error)) from error
    return Exit.PASS


def _heal(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.undo import heal

    report = heal(everything=arguments.all)
    for line in report.undone:
        print(line)
    for line in report.failed:
        print(f"failed: {line}", file=sys.stderr)
    if not report.undone and not report.failed:
        print("nothing to undo")
    return Exit.FAIL if report.failed else Exit.PASS


def _doctor(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.doctor import diagnose

    findings = diagnose()
    if arguments.json:
        import msgspec

        print(msgspec.json.encode(findings).decode())
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            mark = "ok" if finding.good else "MISSING" if finding.required else "no"
            print(f"{mark:<8}{finding.name:<{width}}  {finding.detail}")
            if not finding.good:
                print(
                    f"{'':<8}{'':<{width}}  {finding.remedy}" + (f" (for {finding.enables})" if finding.enables else "")
                )
    return Exit.FAIL if any(finding.required and not finding.good for finding in findings) else Exit.PASS


def _defects(arguments: argparse.Namespace) -> Exit:
    from assay.system_under_test.defects import DEFECTS

    if arguments.json:
        import msgspec

        print(msgspec.json.encode(list(DEFECTS.values())).decode())
        return Exit.PASS
    for defect in DEFECTS.values():
        print(f"{defect.name}\n  what goes wrong   {defect.summary}\n  shown by          {defect.fault}")
        print(f"  must be reported  {', '.join(defect.anomalies)}\n  reference         {defect.reference}")
        print(f"  caught by         pytest {defect.run} --defect={defect.name}\n")
    return Exit.PASS


def _gc(arguments: argparse.Namespace) -> Exit:
    from assay.harness.run import store

    if not arguments.store.is_dir():
        raise InputError(f"{arguments.store} is not a folder; give the store's path (default: ./store)")
    age = None if arguments.older_than is None else timedelta(days=arguments.older_than)
    paths = store.collectable(arguments.store, keep=arguments.keep, older_than=age, now=datetime.now(UTC))
    for path in paths:
        print(path)
    if not arguments.dry_run:
        store.delete(paths)
    print(f"{len(paths)} runs {'would be ' if arguments.dry_run else ''}deleted", file=sys.stderr)
    return Exit.PASS


def _generate(arguments: argparse.Namespace) -> Exit:
    from assay.harness.synthetic.generate import generate
    from assay.harness.synthetic.plan import Plan, PlanError

    try:
        plan = Plan(
            operations=arguments.operations,
            clients=arguments.clients,
            keys=arguments.keys,
            seed=arguments.seed,
            info_share=arguments.info_share,
            bursts=arguments.bursts,
            plant=tuple(arguments.plant),
        )
        made = _input(lambda: generate(arguments.model, plan, arguments.out))
    except PlanError as error:
        raise InputError(str(error)) from error
    print(f"{arguments.out}: {made.operations} operations, {made.effects} effects")
    for planted in made.planted:
        where = "" if planted.position is None else f" at offset {planted.position}"
        what = "" if planted.value is None else f", value {planted.value}"
        when = f"{planted.time / 1e9:.6f} s to {planted.until / 1e9:.6f} s"
        told = ", ".join(map(str, planted.operations))
        place = "" if planted.key is None else f" in {planted.key}"
        print(f"planted: {planted.anomaly}{place}{where}{what}, from {when}, operations {told}")
    family = CATALOGUE[arguments.model].family
    check = f"assay check {arguments.out}" + ("" if family is None else f" --family={family}")
    print(f"in {made.seconds:.1f} s; to check it: {check}", file=sys.stderr)
    return Exit.PASS


def _nights_add(arguments: argparse.Namespace) -> Exit:
    from assay.harness.nights.dataset import add
    from assay.harness.nights.rows import Run

    def told(run: Run) -> None:
        if run.verdict is None:
            print(f"assay: {run.folder} has no verdict ({run.status}): {run.problem}", file=sys.stderr, flush=True)

    number = _input(lambda: add(arguments.stores, arguments.into, arguments.night, told))
    print(f"{number} runs added to {arguments.into}")
    return Exit.PASS


def _nights_show(arguments: argparse.Namespace) -> Exit:
    from rich.console import Console

    from assay.checkers.engine import Engines
    from assay.harness.nights import show
    from assay.system_under_test.defects import DEFECTS

    _input(Engines("spark", spark_master=arguments.spark_master).check)
    from assay.harness.nights.tables import Tables, compute

    zoo = {defect.name: defect.anomalies for defect in DEFECTS.values()}
    tables: Tables = _input(lambda: compute(arguments.dataset, zoo, arguments.spark_master))
    if arguments.json:
        print(show.as_json(tables))
    else:
        show.show(tables, Console(width=None if sys.stdout.isatty() else show.WIDTH))
    if arguments.out is not None:
        for path in _input(lambda: show.write(tables, arguments.out)):
            print(f"assay: {path}", file=sys.stderr)
    if not arguments.require_detection or not tables.missed:
        return Exit.PASS
    print(f"assay: {tables.night} did not catch {', '.join(tables.missed)}", file=sys.stderr)
    return Exit.FAIL


def _catalogue() -> str:
    """What can be made, and planted in it."""
    lines = []
    for name, entry in CATALOGUE.items():
        lines += textwrap.wrap(entry.about, 100, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12)
        lines += textwrap.wrap(
            "plant: " + ", ".join(entry.anomalies), 100, initial_indent=" " * 12, subsequent_indent=" " * 19,
            break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(["models, and what can be planted in each:", *lines])


def _image_build(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.docker.image import ensure

    print(ensure(lambda line: print(line, file=sys.stderr)))
    return Exit.PASS


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date such as 2026-11-21") from None


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _input(read: Callable[[], Any]) -> Any:
    """What is wrong with the files given is the caller's affair, not an internal error."""
    from assay.checkers.engine import EngineUnavailable
    from assay.harness.core.history import HistoryError
    from assay.harness.nights.dataset import DataSetError

    wrong = (FileNotFoundError, NotADirectoryError, HistoryError, EngineUnavailable, SettingsError, DataSetError)
    try:
        return read()
    except wrong as error:
        raise InputError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
