"""Recognises the workload of a file of Jepsen or Maelstrom, if the user names neither a workload nor a model.

Sources, in this order:

1. ``test.edn`` next to the file, with the test's ``:workload``.
2. The folder of the test, which Jepsen names after the test: ``store/broadcast/20260101T000000.000Z/history.edn``.
3. The operations, if only one workload has them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from assay.harness.foreign import ForeignFormat, MalformedError, list_verbs
from assay.harness.stored.workload_table import BY_NAME

TEST_FILE: Final = "test.edn"
MOST_BYTES: Final = 1 << 20
"""Maximum number of bytes of ``test.edn`` that are searched."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "dirty-read": "dirty-reads",
    "linearizable-register": "register",
    "sets": "set",
    "txn-list-append": "list-append",
    "txn-rw-register": "rw-register",
    "unique-id": "unique-ids",
    "wr": "rw-register",
}
"""Names of workloads in other tests, and their names here."""

TELLING_VERBS: Final[Mapping[str, str]] = {
    "append": "list-append",
    "broadcast": "broadcast",
    "cas": "cas-register",
    "drain": "total-queue",
    "generate": "unique-ids",
    "poll": "kafka",
    "read-init": "causal",
    "send": "kafka",
    "strong-read": "dirty-reads",
    "transfer": "bank",
}
"""Verbs of operations or micro-operations that only one workload has."""

_IN_TEST: Final = re.compile(r""":workload(?:-name)?\s+[:"]?([\w-]+)""")
_TIME: Final = re.compile(r"\d{8}T\d{6}")


def recognise_workload(path: Path, format: ForeignFormat) -> tuple[str, str] | None:
    """Returns the workload's name and a clause on its source, or None if it is not certain.

    Raises ``OSError``.
    """
    test = path.parent / TEST_FILE
    if test.is_file():
        with test.open(encoding="utf-8", errors="replace") as file:
            named = _IN_TEST.search(file.read(MOST_BYTES))
        if named is not None and (name := _find_name(named[1])) is not None:
            return name, f"{TEST_FILE} names the workload {named[1]}"
    run = path.resolve().parent
    if _TIME.match(run.name):
        words = {name for word in re.split(r"[^\w-]+", run.parent.name) if (name := _find_name(word)) is not None}
        if len(words) == 1:
            return words.pop(), f"the folder of the test is named {run.parent.name}"
    if path.is_file():
        verbs = _list_telling_verbs(path, format)
        found = {TELLING_VERBS[verb] for verb in verbs}
        if len(found) == 1:
            return found.pop(), f"only this workload has :{min(verbs)}"
    return None


def _list_telling_verbs(path: Path, format: ForeignFormat) -> set[str]:
    """Returns no verbs for a damaged file: the error that asks for the workload comes first."""
    try:
        return list_verbs(path, format) & TELLING_VERBS.keys()
    except MalformedError:
        return set()


def _find_name(word: str) -> str | None:
    name = OTHER_NAMES.get(word, word)
    return name if name in BY_NAME else None
