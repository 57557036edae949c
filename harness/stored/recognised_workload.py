"""Recognises the workload of a file of Jepsen or Maelstrom, if the user names neither a workload nor a model.

Sources, in this order:

1. ``test.edn`` next to the file, with the test's ``:workload``.
2. The folder of the test, which Jepsen names after the test: ``store/broadcast/20260101T000000.000Z/history.edn``.
3. The operations, if only one workload has them. Workloads with the same question count as one.

If several workloads have such operations, the error names all of them, because the operations do not say which question
was meant.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from assay.harness.foreign import MODELS, WORKLOADS, ForeignFormat, MalformedError, read_first_entries
from assay.harness.foreign.entry import INVOKE, Entry
from assay.harness.foreign.keys import remove_tag
from assay.harness.foreign.shapes import ONLY_OPERATIONS, OperationShape
from assay.harness.stored.workload_table import BY_NAME, Workload

TEST_FILE: Final = "test.edn"
MOST_BYTES: Final = 1 << 20
"""Maximum number of bytes of ``test.edn`` that are searched."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "dirty-read": "dirty-reads",
    "linearizable-register": "register",
    "monotonic-multitable": "monotonic-rows",
    "sets": "set",
    "txn-list-append": "list-append",
    "txn-rw-register": "rw-register",
    "unique-id": "unique-ids",
    "wr": "rw-register",
}
"""Names of workloads in other tests, and their names here."""

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
    questions = _group_by_question(list_fitting(path, format)[0])
    if len(questions) == 1:
        return questions[0][0], "only this workload has such operations"
    return None


def list_fitting(path: Path, format: ForeignFormat) -> tuple[list[str], list[str]]:
    """Returns the workloads and the models that have all of the first operations.

    Returns none for a pipe, and for a damaged file. The user is then asked for the workload first, and the damage is
    reported when the file is judged.
    """
    try:
        first = read_first_entries(path, format) if path.is_file() else []
    except MalformedError:
        first = []
    if not first:
        return [], []
    workloads = [name for name in BY_NAME if all(_fits(entry, name, WORKLOADS[name]) for entry in first)]
    return workloads, [name for name in MODELS if all(_fits(entry, name, MODELS[name]) for entry in first)]


def _fits(entry: Entry, name: str, shapes: Mapping[str, OperationShape]) -> bool:
    """Returns whether an entry is an operation of a workload or a model. Its value may also be ``[key value]``."""
    shape = shapes.get(entry.f or ONLY_OPERATIONS.get(name, ""))  # a workload's only operation may have no name
    if shape is None or shape.ignores_values or entry.type not in (INVOKE, "ok"):
        return shape is not None
    fits = shape.argument_fits if entry.type == INVOKE else shape.result_fits
    value = remove_tag(entry.value)
    return fits(value) or (isinstance(value, tuple) and len(value) == 2 and fits(value[1]))


def _group_by_question(names: Sequence[str]) -> list[list[str]]:
    """Groups workloads that ask the same question, and differ only in their names."""
    groups: list[tuple[Workload, list[str]]] = []
    for name in names:
        nameless = dataclasses.replace(BY_NAME[name], name="", asks="", operations="")
        same = next((names for question, names in groups if question == nameless), None)
        if same is None:
            groups.append((nameless, [name]))
        else:
            same.append(name)
    return [names for _, names in groups]


def _find_name(word: str) -> str | None:
    name = OTHER_NAMES.get(word, word)
    return name if name in BY_NAME else None
