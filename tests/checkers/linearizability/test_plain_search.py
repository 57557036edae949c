"""A small search is done in plain Python, says what the compiled one says, and goes on compiled if it grows large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.nightly import by_night

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
SEARCHES = """
import random, sys
sys.path.insert(0, sys.argv[1])
from assay.checkers.linearizability import MODELS, Limits
from assay.checkers.linearizability import searcher
from assay.checkers.linearizability.compiled import is_all_compiled
from assay.checkers.linearizability.encode import encode
from helpers.linearizability_histories import history, table

searcher._plain.left = int(sys.argv[2])
for name, model in sorted(MODELS.items()):
    rng = random.Random(f"{name}-plain")
    encoded = encode(table((str(number), history(name, rng)) for number in range(12)), model)
    for number, key in enumerate(encoded.keys):
        found = searcher.search_key(encoded.history(number), Limits(seconds=None), witness=True)
        why = found.why and (found.why.operation, found.why.order)
        print(name, key, found.order, why, found.most_configurations, found.explored)
print("compiled:", is_all_compiled(), "numba:", "numba" in sys.modules)
"""


def answers(plain_steps: int, before: str = "") -> list[str]:
    command = [sys.executable, "-c", f"{before}\n{SEARCHES}", str(TESTS), str(plain_steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("both_ways", [(37,), by_night((1, 300))], ids=["one", "others"])
def test_plain_compiled_and_first_one_then_the_other_say_the_same(both_ways: tuple[int, ...]) -> None:
    *compiled, how = answers(0)
    assert how == "compiled: True numba: True"
    assert len(compiled) > 60
    assert any("None (" in line for line in compiled), "some are not linearizable"
    *plain, how = answers(10**9)
    assert how == "compiled: False numba: False"
    assert plain == compiled
    for steps in both_ways:
        *both, how = answers(steps)
        assert how == "compiled: True numba: True"
        assert both == compiled


def test_without_numba_all_is_plain_and_says_the_same() -> None:
    *compiled, _ = answers(10**9)
    *plain, how = answers(37, before="import sys; sys.modules['numba'] = None")
    assert how == "compiled: False numba: True", "its place is taken by None"
    assert plain == compiled


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same() -> None:
    """As numba finds an installation that is read-only, for a user without a home."""
    asked = """
from numba.core import caching
caching.CacheImpl._locator_classes = []
from assay.checkers.linearizability import core, layout, searcher
from assay.checkers.linearizability.compiled import is_all_compiled, compile_all
compile_all()
print(is_all_compiled(), hasattr(core.advance, "py_func"), hasattr(layout._assign_slots, "py_func"))
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "True True True\n", done.stderr


@pytest.mark.long
def test_a_stranger_s_model_that_cannot_be_compiled_is_an_error_for_few_operations_too() -> None:
    asked = """
import sys
sys.path.insert(0, sys.argv[1])
from assay.checkers.linearizability import Model, ModelError
from assay.checkers.linearizability.encode import encode
from assay.checkers.linearizability.searcher import search_key
from assay.checkers.linearizability import Limits, MODELS
from helpers.linearizability_histories import operation, table

class Strange(type(MODELS["register"])):
    def step(state, f, x, y):
        return open("nowhere"), state
    step = staticmethod(step)

encoded = encode(table([("k", [operation("write", 1, call=1, ret=2)])]), Strange())
try:
    search_key(encoded.history(0), Limits(seconds=None))
except ModelError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", asked, str(TESTS)], capture_output=True, text=True, timeout=120, check=False
    )
    assert "cannot be compiled" in done.stdout, done.stderr
