"""Tests that the counter says of each line and branch once that it was reached, and changes nothing else."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import pytest

from assay.harness.search.code_coverage.counter import THINNING_RUNS, CodePlace, CoverageCounter
from assay.harness.search.code_coverage.points import Point
from assay.harness.search.code_coverage.source import (
    SourceModule,
    find_loaded,
    find_modules,
    is_same_code,
    iterate_nested_code,
)

from helpers import decisions

SOURCE = Path(decisions.__file__)
NAME = "counted_decisions"
Make = Callable[[tuple[SourceModule, ...]], CoverageCounter]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A fresh copy of ``helpers.decisions``."""
    (tmp_path / f"{NAME}.py").write_text(SOURCE.read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(NAME)
    del sys.modules[NAME]


@pytest.fixture
def make() -> Make:
    def started(of: tuple[SourceModule, ...]) -> CoverageCounter:
        counter = CoverageCounter(of)
        counter.start()
        return counter

    return started


def line_of(text: str) -> int:
    source = SOURCE.read_text()
    where = source.index(text)
    return source.count("\n", 0, where) + 1


def branches(places: frozenset[CodePlace]) -> set[tuple[int, bool]]:
    return {(place.line, place.branch) for place in places if place.branch is not None}


def lines(places: frozenset[CodePlace]) -> set[int]:
    return {place.line for place in places if place.branch is None}


def traced(call: Callable[[], object], module: ModuleType, points: set[Point]) -> set[int]:
    """The lines that are reached, by the interpreter's own tracing."""
    found: set[int] = set()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            found.add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return {line for line in found if Point(line) in points}


HEADS = {line_of("number > 20\n"): line_of("if (\n")}
"""Tracing sees where a test begins; the statement begins before."""


@pytest.mark.parametrize("name", decisions.CALLS)
def test_what_one_call_reaches(name: str, toy: ModuleType, make: Make) -> None:
    (module,) = find_modules([NAME])
    points = {point for function in module.functions for point in function.points}
    heads = {Point(line) for line in HEADS}
    expected = {HEADS.get(line, line) for line in traced(toy.CALLS[name], toy, points | heads)}
    counter = make((module,))
    value = toy.CALLS[name]()
    found = counter.take_new()
    assert value == decisions.CALLS[name]()
    assert lines(found) == expected
    assert branches(found) == {(line_of(text), outcome) for text, outcome in decisions.REACHED[name]}


def test_each_is_reported_once_and_what_is_known_elsewhere_never(toy: ModuleType, make: Make) -> None:
    counter, seen = make(find_modules([NAME])), []
    counter.on_new = lambda: seen.append(True)
    toy.decide(-1)
    first = counter.take_new()
    assert len(seen) >= 1
    counter.add_known([CodePlace(NAME, line_of('found = "zero"'), None)])
    del seen[:]
    toy.decide(-1)
    assert (counter.take_new(), seen) == (frozenset(), [])
    toy.decide(0)
    second = counter.take_new()
    assert not first & second
    assert line_of('found = "zero"') not in lines(second)
    assert (line_of("elif number == 0:"), True) in branches(second)


def test_tracebacks_names_and_objects_stay_as_they_are(toy: ModuleType, make: Make) -> None:
    def said() -> tuple[list[tuple[str, int | None]], str, int]:
        with pytest.raises(ValueError, match="7") as caught:
            toy.fail(7)
        frames = traceback.extract_tb(caught.value.__traceback__)
        return [(frame.name, frame.lineno) for frame in frames[1:]], toy.fail.__qualname__, id(toy.fail)

    before = said()
    make(find_modules([NAME]))
    assert said() == before


def test_a_process_that_was_forked_counts_for_itself(toy: ModuleType, make: Make) -> None:
    counter = make(find_modules([NAME]))
    toy.decide(-1)
    counter.take_new()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            toy.decide(0)
            os.write(write, pickle.dumps(counter.take_new()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        elsewhere: frozenset[CodePlace] = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    assert line_of('found = "zero"') in lines(elsewhere)
    assert line_of('return "negative"') not in lines(elsewhere)
    assert counter.take_new() == frozenset(), "it was the child alone that came there"


def test_a_module_that_is_loaded_later_counts_once_the_run_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    (tmp_path / "loaded_later.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    counter = make(find_modules(["loaded_later"]))
    module = importlib.import_module("loaded_later")
    try:
        module.f()
        assert counter.take_new() == frozenset()
        counter.end_run()
        module.f()
        assert counter.take_new() == {CodePlace("loaded_later", 2, None)}
    finally:
        del sys.modules["loaded_later"]


def test_what_is_loaded_otherwise_than_its_file_has_it_is_left_alone(toy: ModuleType, make: Make) -> None:
    """To count it would change what it does."""
    assert toy.__file__ is not None
    text = Path(toy.__file__).read_text()
    Path(toy.__file__).write_text(text.replace('return "negative"', 'return "very negative"'))
    (module,) = find_modules([NAME])
    assert {key.name for key in find_loaded([module])[NAME].changed} == {"decide"}
    counter = make((module,))
    assert toy.decide(-1) == "negative"
    assert counter.take_new() == frozenset()
    toy.loop([])
    assert lines(counter.take_new()) >= {line_of("total = 0")}


def code_of(module: ModuleType, name: str) -> Any:
    function = getattr(module, name)
    assert isinstance(function, FunctionType)
    return function.__code__


def test_probes_that_have_spoken_are_left_out_and_the_others_speak_later(toy: ModuleType) -> None:
    """A function of which all was reached is as it was: it costs nothing any more."""
    plain = {name: code_of(toy, name) for name in ("decide", "generate", "match")}
    counter = CoverageCounter(find_modules([NAME]))
    counter.start()
    assert not any(is_same_code(code_of(toy, name), plain[name]) for name in plain)
    for name in ("generate", "match int", "decide -1"):
        toy.CALLS[name]()
    counter.take_new()
    for _ in range(min(THINNING_RUNS)):
        counter.end_run()
    assert is_same_code(code_of(toy, "generate"), plain["generate"])
    assert not is_same_code(code_of(toy, "decide"), plain["decide"])
    toy.CALLS["decide 0"]()
    assert branches(counter.take_new()) == {(line_of(t), o) for t, o in decisions.REACHED["decide 0"]}
    for name in ("decide 0", "decide 11", "decide 22", "match"):
        toy.CALLS[name]()
    counter.remove_used_probes()
    assert is_same_code(code_of(toy, "decide"), plain["decide"])
    assert is_same_code(code_of(toy, "match"), plain["match"])


def test_code_is_alike_when_it_does_the_same_at_the_same_lines() -> None:
    def code(text: str) -> Any:
        return next(iterate_nested_code(compile(text, "x.py", "exec")))

    nested = "def f():\n    def g():\n        return {}\n    return g\n"
    assert is_same_code(code("def f():\n    return 1\n"), code("def f():\n    return 1\n"))
    for other in ("def f():\n    return 2\n", "def f():\n    return True\n", "def f():\n\n    return 1\n"):
        assert not is_same_code(code("def f():\n    return 1\n"), code(other))
    assert is_same_code(code(nested.format(1)), code(nested.format(1)))
    assert not is_same_code(code(nested.format(1)), code(nested.format(2)))
