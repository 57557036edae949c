"""``python -m assay.system_under_test broker --config FILE``: one broker as a process of a real machine."""

import sys

from assay.system_under_test.broker import arguments, entry
from assay.system_under_test.process import ProcessRuntime, run


def main() -> int:
    """Returns the exit code of the process; says in one line why it cannot begin."""
    event_log = arguments(sys.argv[1:]).event_log
    try:
        runtime = ProcessRuntime(event_log)
    except OSError as error:
        print(f"broker: event log {event_log}: {error.strerror or error}", file=sys.stderr)
        return 1
    return run(entry(runtime, sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
