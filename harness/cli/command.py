"""Common parts of all verbs of the ``assay`` command: exit codes, input errors, the parser, argument types.

``hide_pandas`` keeps pyarrow from importing pandas, which takes as long as ``assay check`` of a small history. The
import would happen when pyarrow converts the first list to an array, to recognise objects of pandas. There are none
here. A later ``to_pandas`` still works, and imports pandas.
"""

import argparse
import errno
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NoReturn

from assay.harness.core.printable import to_printable
from assay.harness.run.full_disk import is_full
from assay.harness.run.limits import COUNT, check_number
from assay.harness.run.systems import DEFAULT, list_defects


class ExitCode(IntEnum):
    """Exit codes. 64 and 70 are from ``sysexits.h``; 130 is the shell's code for SIGINT."""

    PASS = 0
    FAIL = 1
    UNKNOWN = 2
    USAGE = 64
    INTERNAL = 70
    INTERRUPTED = 130


PATIENCE: Final = 1.0
"""Seconds without input after which a line reports the wait."""
EXITS: Final = {"pass": ExitCode.PASS, "fail": ExitCode.FAIL, "unknown": ExitCode.UNKNOWN}
"""The exit code of a verdict."""

UNUSABLE: Final = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG,
        errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY,
    }
)  # fmt: skip
"""Errors about a path that a user gave, or about the permissions there."""


class InputError(Exception):
    """The input cannot be used; the message says what to give instead. See also :func:`describe_input_error`."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of a description that has several, and wraps a description of one line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        kind = argparse.RawDescriptionHelpFormatter if "\n" in text else argparse.HelpFormatter
        return kind._fill_text(self, text, width, indent)


class Parser(argparse.ArgumentParser):
    """argparse's parser with exit code 64, and with the limits of ``harness.run.limits`` for whole numbers.

    It rejects an empty path, because ``Path("")`` is the current folder.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": HelpFormatter} | options)
        self.register("type", Path, _parse_path)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Adds an argument, as argparse does."""
        if options.get("type") in (parse_count, parse_positive):
            options["type"] = _limit_number(names[0], options["type"])
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}\nTry `{self.prog} --help`.\n")


def describe_input_error(error: Exception) -> str | None:
    """Returns the line to print for an error that the input or a full disk caused, or None for an internal error."""
    # Imported here, because most commands end without an error.
    from assay.checkers.engine import EngineExhausted, EngineUnavailable
    from assay.cluster.docker.image import ImageError
    from assay.cluster.system import DeploymentError
    from assay.harness.core.files import SpecialFileError
    from assay.harness.core.history import HistoryError
    from assay.harness.nightly.carry_over import SameStoreError
    from assay.harness.nightly.dataset import DataSetError
    from assay.harness.nightly.night_record import NightError
    from assay.harness.run.settings import SettingsError
    from assay.harness.synthetic.plan import PlanError
    from assay.reports.index.known import KnownFailuresError
    from assay.reports.index.trends import TrendsError

    if isinstance(error, UnicodeEncodeError) and any("\ud800" <= letter <= "\udfff" for letter in error.object):
        return f"{to_printable(error.object)} is not UTF-8, and Parquet files cannot have such a path; rename it"
    if isinstance(error, OSError) and error.errno in UNUSABLE and error.filename is not None:
        place = error.filename if error.filename2 is None else error.filename2
        return f"{place}: {error.strerror}; give a place that can be read and written"
    kinds = (
        InputError, FileNotFoundError, NotADirectoryError, SpecialFileError, HistoryError, EngineExhausted,
        EngineUnavailable, SettingsError, DeploymentError, ImageError, PlanError, DataSetError, NightError,
        SameStoreError, KnownFailuresError, TrendsError,
    )  # fmt: skip
    return str(error) if isinstance(error, kinds) or is_full(error) else None


def add_plugin_options(parser: argparse.ArgumentParser) -> None:
    """Adds ``--plugin`` and ``--trust-run``, for verbs that judge stored runs."""
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="MODULE",
        help="import this module, which has models, or hooks that add checks and models as a conftest.py does; may be "
        "repeated (docs/cookbook/extending.md)",
    )  # fmt: skip
    parser.add_argument(
        "--trust-run", action="store_true",
        help="import the module of a model even if the run names it and no --import does; this executes the module's "
        "code (docs/help/security.md)",
    )  # fmt: skip


def _parse_path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; is a variable of the shell not set?")
    return Path(text)


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--yes``, for verbs that ask before they delete or execute."""
    parser.add_argument(
        "--yes", action="store_true", help="answer the question with yes; required if there is no terminal"
    )


def confirm(question: str, arguments: argparse.Namespace) -> bool:
    """Returns whether the user agrees, by ``--yes`` or at the terminal. Without a terminal the answer is no.

    The question may quote a stored run, whose texts must not change what the terminal shows.
    """
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        note(f"{question} There is no terminal to ask at; --yes agrees")
        return False
    print(f"assay: {to_printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def show(text: str) -> None:
    """Prints lines on standard output. A name in them cannot control the terminal."""
    print("\n".join(map(to_printable, text.split("\n"))), flush=True)


def show_path(path: Path) -> None:
    """Prints the path of a file that was written. A stream is not named, because its content may be on the output."""
    from assay.harness.core.files import is_stream

    if not is_stream(path):
        print(path, flush=True)


def note(line: str) -> None:
    """Prints progress on standard error. A name in it cannot add a line or control the terminal."""
    print(f"assay: {to_printable(line)}", file=sys.stderr, flush=True)


def note_overlooked(effect: str, stores: Iterable[Path]) -> None:
    """Prints a line for each run in a wrong place of a store, with what this means for it, and the remedy."""
    from assay.harness.run import store

    for root in stores:
        for run, reason in store.find_overlooked(root, store.list_runs(root)):
            note(f"{effect}: {run}, because {reason}")


def add_system_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--system``, for verbs that need a system but have no run that names it."""
    parser.add_argument(
        "--system", default=DEFAULT, metavar="NAME", help="the system, as package.module:Class (default: the broker)"
    )


def read_defects(arguments: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Returns the defects of the given system, each with the anomalies that it causes."""
    return {defect.name: tuple(defect.anomalies) for defect in list_defects(arguments.system)}


@contextmanager
def note_wait(path: Path) -> Iterator[Callable[[], None]]:
    """Prints a line if a pipe has delivered nothing for ``PATIENCE``, because perhaps no program writes to it.

    Yields a function that the caller calls once something has been read.
    """
    line = f"waiting for {path}, which is no regular file: a program must write to it and close it; Ctrl-C ends this"
    timer = threading.Timer(PATIENCE, note, [line])
    timer.daemon = True
    if path.exists() and not (path.is_file() or path.is_dir()):
        timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date; give one such as 2026-11-21") from None


def parse_count(text: str) -> int:
    """Parses a whole number, 0 or more."""
    return _parse_at_least(0, text)


def parse_positive(text: str) -> int:
    """Parses a whole number, 1 or more."""
    return _parse_at_least(1, text)


def _limit_number(option: str, parse: Callable[[str], int]) -> Callable[[str], int]:
    """Adds the limits of the option to the parser of a number."""

    def parse_number(text: str) -> int:
        value = parse(text)
        if value and (reason := check_number(option, text, value, COUNT)) is not None:  # `parse` has accepted 0
            raise argparse.ArgumentTypeError(reason)
        return value

    parse_number.__name__ = "whole number"  # argparse: invalid whole number value
    return parse_number


def _parse_at_least(minimum: int, text: str) -> int:
    value = int(text)
    if value < minimum:
        raise argparse.ArgumentTypeError(f"{text} is below {minimum}: give a larger number")
    return value


class _PandasHider:
    """Import hook that hides pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("pandas is hidden from pyarrow")


def hide_pandas() -> None:
    """Makes pyarrow work without pandas, unless pandas is imported already.

    pyarrow looks for pandas once, and this function makes it do so while pandas cannot be imported. Call it only in
    processes that run no code of a user.
    """
    import pyarrow as pa

    if "pandas" in sys.modules or not hasattr(pa.lib, "_pandas_api"):
        return
    hider = _PandasHider()
    sys.meta_path.insert(0, hider)
    try:
        _ = pa.lib._pandas_api.have_pandas  # pyarrow's Python part looks for pandas, and caches the result
        pa.infer_type([0])  # its C++ part does the same
    finally:
        sys.meta_path.remove(hider)
