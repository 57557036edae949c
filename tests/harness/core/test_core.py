"""A client's worker needs no Arrow."""

from __future__ import annotations

import subprocess
import sys


def test_what_a_worker_on_a_node_imports_needs_no_arrow() -> None:
    script = "import sys, assay.harness.remote.server\nassert 'pyarrow' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", script], check=True)
