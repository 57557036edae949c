"""Runs in the client's own process: a request, one line of JSON, becomes a call of the client's adapter, and the answer
a line of JSON again. ``python serve.py ADAPTER BOOTSTRAP``.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback


def main() -> None:
    adapter = importlib.import_module(sys.argv[1]).Client(sys.argv[2])
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"value": getattr(adapter, name)(**arguments)}
        except Exception:  # noqa: BLE001 - the test shows it
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
