"""``python -m assay.system_under_test broker --config FILE``: one broker as a process of a real machine."""

import sys

from assay.system_under_test.broker import arguments, entry
from assay.system_under_test.process import ProcessRuntime, run


def main() -> int:
    """Returns the exit code of the process; prints one line if it cannot start."""
    runtime = ProcessRuntime(arguments(sys.argv[1:]).event_log)
    return run(entry(runtime, sys.argv[1:], runtime.open_event_log))


if __name__ == "__main__":
    sys.exit(main())
