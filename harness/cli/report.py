"""``assay report PATH``: writes the HTML report of a run again, or the page of a history of another tool."""

import argparse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.check import add_engine_options, add_file_options, make_request, note_findings
from assay.harness.cli.command import ExitCode, InputError, note, note_wait, show_path
from assay.harness.cli.time_estimate import LongReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.checkers.engine import Engines
    from assay.checkers.judging.judge import ProgressCallback
    from assay.checkers.judging.verdict import Finding
    from assay.harness.stored.request import CheckRequest

DESCRIPTION: Final = """\
Writes a page with timeline and findings: of a stored run again, or of a history of another tool, which is judged by the
options of `assay check`.

  assay report store/latest                              report.html in the run's folder
  assay report history.edn --workload=rw-register        history.edn.html beside the file
  assay report history.edn --model=cas-register --out=page.html
  assay report history/ --model=kv                       history.html beside a folder with Parquet parts in ops/
  assay report part-000000.parquet --workload=bank       the operations of one Parquet file
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "report", help="write a run's HTML report again, or a page of a history from elsewhere", description=DESCRIPTION
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a run, a file, or Jepsen's folder")
    parser.add_argument(
        "--out", type=Path, metavar="FILE",
        help="the page (default: report.html in the run's folder, or beside the file, named like it); a file that is "
        "no such page is not replaced",
    )  # fmt: skip
    add_file_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run, contract=None)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.stored.check_path import find_foreign_file, is_parquet_file

    arguments.paths = [arguments.path]
    request = make_request(arguments)
    file = find_foreign_file(request)
    is_judged = request.model is not None or request.workload is not None
    if file is None and (is_parquet_file(arguments.path) or (is_judged and _is_bare_history(arguments.path))):
        target = arguments.out or arguments.path.resolve().with_name(f"{arguments.path.resolve().name}.html")
        _write_page(target, lambda: _judge_folder(arguments, request))
        return ExitCode.PASS
    if file is None:
        _require_no_options(request)
        show_path(_render_run(arguments.path, arguments.out))
        return ExitCode.PASS
    target = arguments.out or file.with_name(f"{file.name}.html")
    _write_page(target, lambda: _judge_file(arguments, request, file))
    return ExitCode.PASS


def _write_page(target: Path, render: "Callable[[], str]") -> None:
    from assay.harness.core.files import require_own_output, write_output
    from assay.reports.page import OWN

    require_own_output(target, OWN)  # before the judging, which may take long
    write_output(target, render().encode(), OWN)
    show_path(target)


def _is_bare_history(path: Path) -> bool:
    """Returns whether the path is a history folder that belongs to no run."""
    from assay.harness.stored.by_contract import open_stored

    return (path / "ops").is_dir() and open_stored(path).run is None


def _render_run(path: Path, target: Path | None) -> Path:
    from assay.checkers.judging.history_views import open_history
    from assay.harness.core.files import require_own_output, write_output
    from assay.harness.stored.by_contract import open_stored
    from assay.reports.files import describe_outside_logs
    from assay.reports.model import read_report
    from assay.reports.page import OWN, PAGE, render, render_html

    stored = open_stored(path)
    if stored.run is None:
        raise InputError(
            f"{path} is a history without its run: give --model or --workload, or the path of the run folder"
        )
    require_own_output(target or stored.run / PAGE, OWN)
    history = open_history(stored.history)
    history.require_no_missing_values()
    for line in describe_outside_logs(stored.run):
        note(line)
    if target is None:
        return render(stored.run, history)
    write_output(target, render_html(read_report(stored.run, history)).encode(), OWN)
    return target


def _judge_file(arguments: argparse.Namespace, request: "CheckRequest", file: Path) -> str:
    from assay.harness.stored.check_path import judge_file
    from assay.harness.stored.foreign_page import render_file

    with _open_engines(arguments) as (engines, progress, report), note_wait(file) as end_wait:
        reading = LongReading(arguments.seconds)

        def show_progress(stage: str, done: int, total: int) -> None:
            end_wait()
            progress(stage, done, total)
            reading.step(stage, done, total)

        judged = judge_file(request, file, engines, show_progress, report)
    note(f"the verdict is {judged.judgement.verdict}")
    return render_file(judged)


def _judge_folder(arguments: argparse.Namespace, request: "CheckRequest") -> str:
    from assay.harness.stored.check_path import judge_folder
    from assay.harness.stored.foreign_page import render_folder

    with _open_engines(arguments) as (engines, progress, report):
        judgement, ops, notes = judge_folder(request, engines, progress, report)
    note(f"the verdict is {judgement.verdict}")
    return render_folder(request, judgement, ops, notes)


@contextmanager
def _open_engines(
    arguments: argparse.Namespace,
) -> "Iterator[tuple[Engines, ProgressCallback, Callable[[Finding], None]]]":
    """Yields the engines, the function that shows progress, and the one that notes findings."""
    from assay.checkers.engine import Engines
    from assay.checkers.engine.duck import DEFAULT_MEMORY
    from assay.harness.cli.time_estimate import show_estimate
    from assay.harness.run.settings import parse_engine

    engine = parse_engine(arguments.engine, arguments.spark_master)
    memory = DEFAULT_MEMORY if arguments.bytes is None else f"{arguments.bytes}B"
    with (
        Engines(engine, spark_master=arguments.spark_master, memory=memory) as engines,
        show_estimate() as estimate,
        note_findings() as report,
    ):
        yield engines, estimate.step, report


def _require_no_options(request: "CheckRequest") -> None:
    """Raises ``InputError`` for options on a run, because its contract judged it."""
    from assay.harness.stored.request import CheckRequest

    if request != CheckRequest(request.path):
        raise InputError(
            f"{request.path} is a folder, whose verdict is stored: leave out the options for judging, which are "
            "for a file of another tool"
        )
