"""``assay carry STORE --into=DIR``: the small files of runs and nights, from which the page of a morning is made."""

import argparse
from pathlib import Path
from typing import Any, Final

from assay.harness.cli.command import Exit, InputError, note

DESCRIPTION: Final = """\
Copies what a page of later nights needs: of each run the small JSON files, of each night its record, and the schedules
that were made small. With it a store that begins empty every night knows what was seen before, and since when.

  assay carry store --into=past      after a night
  assay carry past --into=store      before `assay index` and `assay summary` of the next
  assay gc past --keep=100 --yes           now and then
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("carry", help="the small files of a store, for the nights after it",
        description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("store", type=Path, metavar="STORE", help="from there; one that is not there yet has nothing")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR", help="a store, made if it is not there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from assay.harness.nightly.carry_over import SameStoreError, carry

    if arguments.store.exists() and not arguments.store.is_dir():
        raise InputError(f"{arguments.store} is not a folder; give the store's path")
    try:
        runs, nights = carry(
            arguments.store, arguments.into, lambda path: note(f"not carried: {path} is a link or a special file")
        )
        arguments.into.mkdir(parents=True, exist_ok=True)
    except SameStoreError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"{arguments.into}: {error}") from error
    print(f"{runs} runs and {nights} nights carried to {arguments.into}")
    return Exit.PASS
