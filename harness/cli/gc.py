"""``assay gc``: deletes old runs."""

import argparse
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from assay.harness.cli.command import ExitCode, InputError, add_yes_option, confirm, note, parse_count, show
from assay.harness.core.printable import to_printable

DESCRIPTION: Final = """\
Deletes old runs: folders STORE/TEST/RUN that have a readable run.json of assay. Every other folder is kept, and a line
names it. Symbolic links are kept in the same way. Runs that contain another run, a mount point, a FIFO, a socket, a
device, a link to a folder elsewhere, or a file beside run.json that assay did not make are kept, too.
A run that starts more than a day in the future or before 2000, because of a wrong clock, is kept, and a line names it.
It does not count as one of the newest.
A run in a wrong place, such as STORE/X/TEST/RUN or a folder named latest, is kept, and a line names it.
The newest runs of each test, those that latest links point at, and those in use are kept, too. A run is in use until
its session has judged it and has written its report. A run may still be in use if another machine began it, or if a
machine without /etc/machine-id began it and was restarted. Such a run is kept, and a line names it.
A run is renamed before its files are deleted. If a deletion is interrupted, the next gc names the rest and deletes it.
"""
EPILOG: Final = """\
exit codes: 0 done, or nothing to do; 2 nothing was deleted, because it was not confirmed; 64 wrong usage
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("gc", help="delete old runs", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "store", nargs="?", type=Path, default=Path("store"), metavar="STORE", help="the store (default: store)"
    )
    parser.add_argument(
        "--keep",
        type=parse_count,
        default=10,
        metavar="N",
        help="number of newest runs to keep of each test (default: 10)",
    )
    parser.add_argument(
        "--older-than", type=parse_count, metavar="DAYS", help="delete only runs that began longer ago than this"
    )
    parser.add_argument("--dry-run", action="store_true", help="only list the runs that would be deleted")
    add_yes_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.run import store

    root, now = arguments.store, datetime.now(UTC)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; give the store's path (default: ./store)")
    age = None if arguments.older_than is None else timedelta(days=arguments.older_than)
    paths = store.find_collectable(root, keep=arguments.keep, older_than=age, now=now)
    for error in store.find_special_files(root):
        note(f"kept: the run of {error}")
    for path, why in store.list_kept_by_gc(root, now):
        note(f"kept: {path}, because {why}")
    partly_deleted = store.find_partly_deleted(root)
    for folder in partly_deleted:
        note(f"rest of a deleted run: {folder}")
    for path in paths:
        show(to_printable(str(path)))
    if arguments.dry_run or not (paths or partly_deleted):
        print(f"{len(paths)} runs would be deleted", file=sys.stderr)
        return ExitCode.PASS
    if paths and not confirm(f"delete these {len(paths)} runs?", arguments):
        note("nothing was deleted")
        return ExitCode.UNKNOWN
    try:
        store.finish_deletions(root)
        store.delete_runs(paths)
    except OSError as error:
        raise InputError(f"{error.filename} cannot be deleted: {error.strerror}") from error
    except KeyboardInterrupt:
        for folder in store.find_partly_deleted(root):
            note(f"{folder} is the rest of a deleted run; the next `assay gc` of this store deletes it")
        raise
    print(f"{len(paths)} runs deleted", file=sys.stderr)
    return ExitCode.PASS
