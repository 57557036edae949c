"""``python -m assay.system_under_test broker --config FILE``: one broker as a process of a real machine."""

import sys

from assay.system_under_test.broker import parse_arguments, run_broker
from assay.system_under_test.process import ProcessRuntime, open_missing_streams, run_process


def main() -> int:
    """Returns the exit code of the process; prints one line if it cannot start."""
    open_missing_streams()
    runtime = ProcessRuntime(parse_arguments(sys.argv[1:]).event_log)
    return run_process(run_broker(runtime, sys.argv[1:], runtime.open_event_log))


if __name__ == "__main__":
    sys.exit(main())
