"""The limit of a search is of memory that is there: a process does not grow beyond it, whatever its states are."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from assay.checkers.linearizability import MODELS, Limits, search
from assay.checkers.linearizability.model import measure_deep_size

from helpers.hard_searches import HARD
from helpers.linearizability_histories import table
from helpers.linearizability_models import Stack
from helpers.nightly import by_night

LIMIT: Final = 30_000_000
ALLOWANCE: Final = 25_000_000
"""Bytes for what the search of anything takes: what numba loads, lists of answers, a heap with holes."""
SCRIPT: Final = """
import re, sys
from helpers.hard_searches import HARD
from assay.checkers.linearizability import MODELS, Limits, search
from assay.checkers.linearizability.compiled import compile_all
from helpers.linearizability_histories import operation, table
from helpers.nightly import by_night

def peak():  # ru_maxrss is handed down to a new program; this is not
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

model, ops = HARD[sys.argv[1]]
limits = Limits(seconds=None, bytes=int(sys.argv[2]))
search(table([("small", ops[:3])]), model)
compile_all()
search(table([("small", ops[:3])]), model)
before = peak()
judged = search(table([("hard", ops)]), model, limits=limits)
print((peak() - before) * 1024)
print(*judged.unknown)
"""


@pytest.mark.parametrize("name", ["fifo-queue", by_night("set"), by_night("text")])
def test_a_search_that_explodes_ends_unknown_before_the_process_is_larger_than_the_limit(name: str) -> None:
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, str(LIMIT)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    grown, reported = done.stdout.splitlines()
    assert reported.startswith("key hard: the memory limit (")
    assert f"bytes of {LIMIT})" in reported
    assert LIMIT / 4 < int(grown) <= LIMIT + ALLOWANCE


def test_strings_that_no_read_returned_do_not_explode() -> None:
    """All orders of 32 concurrent appends are possible until a read arrives, which fits none."""
    judged = search(table([("k", HARD["kv"][1])]), MODELS["kv"], limits=Limits(bytes=2_000_000))
    assert judged.anomalies == {"nonlinearizable": 1}


def test_states_are_counted_with_their_parts() -> None:
    assert measure_deep_size(((1, "a"), frozenset({2}))) > 4 * sys.getsizeof(())
    assert Stack().size((("a" * 1000,),)) > 1000
    assert measure_deep_size({"a": ["b" * 500]}) > 500
