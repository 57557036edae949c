"""Reads histories in the formats of other tools into the ``ops`` table.

``harness.stored`` imports it; it imports only ``harness.core``. Its modules, in reading order:

- ``read``: recognises the format of a file by its beginning, and reads its operations
- ``jepsen_log``: lines of ``jepsen.log``
- ``edn``: parser for EDN, the notation of ``history.edn`` and of values in ``jepsen.log``, and EDN values as JSON
- ``entry``: one map or line, which is a call or a completion
- ``keys``: the key of an operation, next to its value or inside it
- ``nemesis_events``: faults by the events of the nemesis, for texts
- ``pairing``: pairs calls and completions to operations
- ``shapes``: the valid operations of each model and workload
- ``source``: the text of a file in pieces, and errors with line and column
"""

from assay.harness.foreign.edn import to_edn
from assay.harness.foreign.keys import KeyMode
from assay.harness.foreign.pairing import EntryOrder
from assay.harness.foreign.read import ForeignFormat, ForeignHistory, read_history, recognise_format
from assay.harness.foreign.shapes import MODELS, WORKLOADS
from assay.harness.foreign.source import MalformedError

__all__ = [
    "MODELS",
    "WORKLOADS",
    "EntryOrder",
    "ForeignFormat",
    "ForeignHistory",
    "KeyMode",
    "MalformedError",
    "read_history",
    "recognise_format",
    "to_edn",
]  # fmt: skip
