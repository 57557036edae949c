"""``python -m assay.harness.remote --client MODULE:CLASS``: one worker process on a real machine."""

from __future__ import annotations

import sys

from assay.harness.remote.server import entry
from assay.system_under_test.process import ProcessRuntime, run

if __name__ == "__main__":
    sys.exit(run(entry(ProcessRuntime(None), sys.argv[1:])))
