"""Histories in the formats of others, read into the ``ops`` table of our own.

``read`` (a file to its operations), ``recognise`` (which format a file is in); one module per format: ``jepsen_edn``
(``history.edn``), ``jepsen_log`` (lines of ``jepsen.log``), both on ``edn`` (the notation); ``entry`` (what one line or
map says), ``keys`` (whose state it is about), ``pairing`` (calls and completions to operations), ``shapes`` (what each
model's operations look like), ``plain`` (values as JSON), ``source`` (text of a file) and ``malformed`` (errors).
"""

from assay.harness.foreign.keys import Keys
from assay.harness.foreign.malformed import MalformedError
from assay.harness.foreign.pairing import Order
from assay.harness.foreign.read import Foreign, Format, read
from assay.harness.foreign.recognise import recognise
from assay.harness.foreign.shapes import MODELS

__all__ = ["MODELS", "Foreign", "Format", "Keys", "MalformedError", "Order", "read", "recognise"]
