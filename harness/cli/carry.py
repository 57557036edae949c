"""``assay carry STORE --into=DIR``: copies the small files of runs and nights that later index pages need."""

import argparse
from pathlib import Path
from typing import Any, Final

from assay.harness.cli.command import ExitCode, InputError, note, note_overlooked
from assay.harness.core.printable import to_printable

DESCRIPTION: Final = """\
Copies the files of a store that pages of later nights need: the small JSON files of each run, the record of each
night, and the shrunk schedules. A store that begins empty every night then knows earlier failures and their dates.

  assay carry store --into=past      after a night
  assay carry past --into=store      before `assay index` and `assay summary` of the next
  assay gc past --keep=100 --yes           now and then
"""
EPILOG: Final = """\
exit codes: 0 done; 64 wrong usage, or a file or folder in DIR was in the way: each of these is named, the rest is
carried
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "carry", help="copy the small files of a store, for later nights", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument(
        "store", type=Path, metavar="STORE", help="the store that is read; a missing folder counts as empty"
    )
    parser.add_argument(
        "--into",
        type=Path,
        required=True,
        metavar="DIR",
        help="the store that is written; it is created if it is missing",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.nightly.carry_over import carry

    if arguments.store.exists() and not arguments.store.is_dir():
        raise InputError(f"{arguments.store} is not a folder; give the store's path")
    refused: list[str] = []
    try:
        runs, nights = carry(
            arguments.store,
            arguments.into,
            lambda path: note(f"not carried: {path} is a link or a special file"),
            refused.append,
            lambda run: note(f"not carried: {run} goes on, or is being judged; carry it when its session has ended"),
        )
        arguments.into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{arguments.into}: {error}") from error
    note_overlooked("not carried", [arguments.store])
    for obstacle in refused:
        note(f"not carried: {obstacle}")
    print(f"{runs} runs and {nights} nights carried to {to_printable(str(arguments.into))}")
    return ExitCode.USAGE if refused else ExitCode.PASS
