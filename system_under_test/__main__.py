"""``python -m assay.system_under_test broker --config FILE``: one broker as a process of a real machine."""

import sys

from assay.system_under_test.broker import arguments, entry
from assay.system_under_test.process import ProcessRuntime, run

if __name__ == "__main__":
    sys.exit(run(entry(ProcessRuntime(arguments(sys.argv[1:]).event_log), sys.argv[1:])))
