"""The limit of a search is of memory that is there: a process does not grow beyond it, whatever its states are."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest
from linearizability_histories import operation, table
from linearizability_models import Stack, Text
from linearizability_oracle import Op

from checkers.linearizability import MODELS, Limits, search
from checkers.linearizability.model import deep_size

LIMIT: Final = 30_000_000
ALLOWANCE: Final = 25_000_000
"""Bytes for what the search of anything takes: what numba loads, lists of answers, a heap with holes."""
SCRIPT: Final = """
import re, sys
from test_linearizability_memory import HARD
from checkers.linearizability import MODELS, Limits, search
from linearizability_histories import operation, table

def peak():  # ru_maxrss is handed down to a new program; this is not
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

model, ops = HARD[sys.argv[1]]
limits = Limits(seconds=None, bytes=int(sys.argv[2]))
search(table([("small", ops[:3])]), model)
before = peak()
judged = search(table([("hard", ops)]), model, limits=limits)
print((peak() - before) * 1024)
print(*judged.unknown)
"""


def at_once(*asked: tuple[str, object], reads: tuple[tuple[str, object], ...] = ()) -> list[Op]:
    """All of them overlap; afterwards come some that take care that they are not foreseen."""
    ops = [operation(f, value, call=at, ret=1000 + at) for at, (f, value) in enumerate(asked)]
    return ops + [
        operation(f, None, value, call=2000 + 2 * at, ret=2001 + 2 * at) for at, (f, value) in enumerate(reads)
    ]


LETTERS: Final = "abcdefghijklmnop"
HARD: Final = {
    "fifo-queue": (MODELS["fifo-queue"], at_once(*(("enqueue", number // 2) for number in range(24)))),
    "set": (MODELS["set"], at_once(*(("add", number) for number in range(30)), reads=(("read", [40]),))),
    "text": (Text(), at_once(*(("append", chr(97 + number) * 300) for number in range(24)))),
    "kv": (
        MODELS["kv"],
        at_once(*(("append", letter) for letter in LETTERS * 2), reads=(("get", LETTERS[::-1] * 2), ("get", "q"))),
    ),
}


@pytest.mark.parametrize("name", ["fifo-queue", "set", "text"])
def test_a_search_that_explodes_ends_unknown_before_the_process_is_larger_than_the_limit(name: str) -> None:
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, str(LIMIT)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    grown, told = done.stdout.splitlines()
    assert told.startswith("key hard: the memory limit (")
    assert f"bytes of {LIMIT})" in told
    assert LIMIT / 4 < int(grown) <= LIMIT + ALLOWANCE


def test_strings_that_no_read_returned_do_not_explode() -> None:
    """Of 32 appends at once all orders are possible until a read comes; it fits none."""
    judged = search(table([("k", HARD["kv"][1])]), MODELS["kv"], limits=Limits(bytes=2_000_000))
    assert judged.anomalies == {"nonlinearizable": 1}


def test_states_are_counted_with_their_parts() -> None:
    assert deep_size(((1, "a"), frozenset({2}))) > 4 * sys.getsizeof(())
    assert Stack().size((("a" * 1000,),)) > 1000
    assert deep_size({"a": ["b" * 500]}) > 500
