"""Histories in the formats of other tools, read into the ``ops`` table.

Read them in this order:

- ``read``: a file to its operations; ``recognise``: which format a file has, by how it begins.
- ``jepsen_log`` (lines of ``jepsen.log``), on ``edn`` (the notation), in which ``history.edn`` is written, too.
- ``entry`` (what one map or line says), ``keys`` (which object it is about), ``pairing`` (calls and completions to
  operations), ``shapes`` (what each model's and workload's operations look like).
- ``edn_text`` (values as JSON), ``source`` (the text of a file, in pieces), ``malformed`` (errors with line and
column).

``harness.stored`` imports it; it imports ``harness.core`` alone.
"""

from assay.harness.foreign.keys import Keys
from assay.harness.foreign.malformed import MalformedError
from assay.harness.foreign.pairing import Order
from assay.harness.foreign.read import Foreign, Format, read
from assay.harness.foreign.recognise import recognise
from assay.harness.foreign.shapes import MODELS, WORKLOADS

__all__ = [
    "MODELS", "WORKLOADS", "Foreign", "Format", "Keys", "MalformedError", "Order", "read", "recognise",
]  # fmt: skip
