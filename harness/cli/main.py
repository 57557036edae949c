"""The ``assay`` command, which works with stored runs.

Exit codes: 0 pass (or done), 1 fail, 2 unknown, 64 wrong usage or unreadable input, 70 an error of the program itself.
Results go to standard output, everything else to standard error, so ``--json`` can be piped.
"""

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final

from assay.harness.cli import (
    carry,
    check,
    defects,
    doctor,
    gc,
    generate,
    heal,
    image,
    index,
    init,
    nightly,
    nights,
    replay,
    report,
    search,
    sensitivity,
    serve,
    shrink,
    summary,
    up,
    verify,
    watch,
)
from assay.harness.cli.command import ExitCode, Parser, describe_input_error
from assay.harness.run.full_disk import is_full
from assay.harness.run.interrupt import handle_stop_signals

VERBS: Final = (
    init, check, verify, watch, report, sensitivity, replay, shrink, up, heal, doctor, gc, defects, generate, nightly,
    nights, summary, index, serve, carry, image, search,
)  # fmt: skip
"""The verbs, in the order of ``assay --help``."""

DESCRIPTION: Final = """\
A correctness tester for distributed systems. pytest makes runs; this command works with them afterwards.

  pytest workloads/ --nemesis=partition      run a test under a fault (pytest --help, group assay)
  assay init docker-compose.yml              write a test of the services of a Compose file
  assay check store/latest                   judge the last run again
  assay check history.edn --model=register   judge a history from elsewhere (Jepsen's; assay check --help)
  assay watch                                judge the newest run while it goes on
  assay report store/latest                  write its HTML report again and say where it is
  assay sensitivity store/latest             which violations would a passed run have shown?
  assay replay store/latest                  repeat the last run and compare
  assay shrink store/latest                  make its schedule small, if it failed
  assay nightly --budget=30min               run a matrix of cells within a time budget
  assay nights show nights                   tables over the runs of many nights (assay nights --help)
  assay summary store                        the results of the last night, as Markdown or JUnit XML
  assay defects --verify isr-of-one          is a built-in defect caught, and the same run green without it?
  assay index store                          one page over all runs: what broke, since when, how to repeat it
  assay up                                   a cluster of the broker, for any program that needs one
"""

EPILOG: Final = """\
A PATH is a run folder (store/<test>/<time>), a latest link, or a history folder with ops/ and effects/ in it; for check
also a file with a Jepsen history.
exit codes: 0 pass or done, 1 fail, 2 unknown, 64 wrong usage or unreadable input, 70 internal error
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may support ASCII only
            stream.reconfigure(errors="backslashreplace")
    arguments = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], ExitCode] = arguments.run
    try:
        with handle_stop_signals():
            code = int(run(arguments))
            sys.stdout.flush()  # at the end of the process, a failed write would have an exit code of its own
            return code
    except KeyboardInterrupt:
        print("assay: interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        return 141
    except Exception as error:  # noqa: BLE001 - the last resort: full traceback, and an exit code of no verdict
        if (problem := describe_input_error(error)) is not None:
            print(f"assay: {problem}", file=sys.stderr)
            if is_full(error):
                _discard_output()
            return int(ExitCode.USAGE)
        traceback.print_exc()
        print("assay: internal error, see above; please report it with the command line", file=sys.stderr)
        return int(ExitCode.INTERNAL)


def open_missing_streams() -> None:
    """Opens /dev/null in the place of each standard stream that was closed before the start (``>&-``).

    Printing would fail otherwise, and the next file to be opened would get the number of the stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is the stream's own
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def _discard_output() -> None:
    """Redirects standard output, which cannot be written, to /dev/null, so that the interpreter can exit normally."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    """Builds the parser of all verbs with their options."""
    top = Parser(prog="assay", description=DESCRIPTION, epilog=EPILOG)
    top.add_argument("--version", action="version", version=f"assay {metadata.version('assay')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for verb in VERBS:
        verb.add(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
