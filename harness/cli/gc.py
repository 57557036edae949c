"""``assay gc``: deletes old runs."""

import argparse
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assay.harness.cli.command import Exit, InputError, count


def add(commands: Any) -> None:
    parser = commands.add_parser("gc", help="delete old runs", description=(
        "Keeps the newest runs of each test, those that latest links point at, and those still going on."))  # fmt: skip
    parser.add_argument("store", nargs="?", type=Path, default=Path("store"), metavar="STORE", help="default: store")
    parser.add_argument("--keep", type=count, default=10, metavar="N", help="newest runs to keep of each test (10)")
    parser.add_argument("--older-than", type=count, metavar="DAYS", help="only runs that began longer ago")
    parser.add_argument("--dry-run", action="store_true", help="only list what would go")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
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
