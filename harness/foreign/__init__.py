"""Reads histories in the formats of other tools into the ``ops`` table.

``harness.stored`` imports it; it imports only ``harness.core``. Its modules, in reading order:

- ``read``: recognises the format of a file by its beginning, and reads its operations
- ``jepsen_log``: lines of ``jepsen.log`` and of ``history.txt``
- ``edn``: parser for EDN, the notation of ``history.edn`` and of values in ``jepsen.log``, and EDN values as JSON
- ``json_values``: parser for JSON and JSON lines, with the values of EDN
- ``entry``: one map, vector or line, which is a call or a completion
- ``entry_order``: the order of entries, by their times or by their lines
- ``keys``: the key of an operation, next to its value or inside it
- ``nemesis_events``: faults by the events of the nemesis, for texts
- ``pairing``: pairs calls and completions to operations
- ``shapes``: the valid operations of each model and workload
- ``answers``: answers that contradict their calls, and the differences that are allowed
- ``source``: the text of a file in pieces, also compressed, and errors with line and column
"""

from assay.harness.foreign.answers import ContradictoryAnswer
from assay.harness.foreign.edn import to_edn
from assay.harness.foreign.entry_order import EntryOrder
from assay.harness.foreign.keys import KeyMode
from assay.harness.foreign.pairing import separate_processes
from assay.harness.foreign.read import (
    ForeignFormat,
    ForeignHistory,
    read_first_entries,
    read_history,
    recognise_format,
)
from assay.harness.foreign.shapes import MODELS, WORKLOADS
from assay.harness.foreign.source import MalformedError

__all__ = [
    "MODELS",
    "WORKLOADS",
    "ContradictoryAnswer",
    "EntryOrder",
    "ForeignFormat",
    "ForeignHistory",
    "KeyMode",
    "MalformedError",
    "read_first_entries",
    "read_history",
    "recognise_format",
    "separate_processes",
    "to_edn",
]  # fmt: skip
