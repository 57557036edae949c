"""``assay check --model`` on a stored history: Spark as here, without its operations in this process; and Ctrl-C."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.engine import Engines
from assay.checkers.engine.spark import Spark
from assay.checkers.linearizability import MODELS, Limits
from assay.harness.cli.command import ExitCode
from assay.harness.core.history import HistoryError, HistoryReader
from assay.harness.stored.by_model import judge_by_model, open_stored_operations

from helpers.judging import without_times
from helpers.linearizability_histories import history, operation, stored, table
from helpers.linearizability_oracle import Op
from helpers.process_tree import descendants, left, started


class Shared(Engines):
    """With the Spark of all tests."""

    def __init__(self, application: Any) -> None:
        super().__init__("spark")
        self._shared = application

    def spark(self, rows: int) -> Spark:
        made: Spark = self._shared.engine(effects=rows)
        return made


def judged(reader: HistoryReader, model: str, engines: Engines, limits: Limits) -> Any:
    return without_times(judge_by_model(reader, MODELS[model], engines, lambda *step: None, limits))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("model", ["kv", pytest.param("set", marks=pytest.mark.long)])
def test_executors_read_a_stored_history_themselves(
    model: str, application: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{model}-stored")
    folder = stored(tmp_path / "history", table((f"'{n}\"\\" if n else None, history(model, rng)) for n in range(40)))
    reader = open_stored_operations(folder)
    here = judged(reader, model, Engines("duckdb"), Limits(seconds=None))
    assert here.findings
    monkeypatch.setattr(HistoryReader, "table", lambda *asked: pytest.fail("all operations were read here"))
    assert judged(reader, model, Shared(application), Limits(seconds=None)) == here


def test_a_stored_history_is_read_once_for_a_search_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random("once")
    reader = open_stored_operations(stored(tmp_path / "history", table((str(n), history("kv", rng)) for n in range(5))))
    read, batches = [], HistoryReader.batches
    monkeypatch.setattr(HistoryReader, "batches", lambda self, name: read.append(name) or batches(self, name))
    judged(reader, "kv", Engines("duckdb"), Limits())
    assert read == ["ops"]


@pytest.mark.long
@pytest.mark.spark
def test_zones_judge_on_spark_too(application: Any, tmp_path: Path) -> None:
    """Texts as values, which the checks in SQL leave to the search; some keys have a value twice."""
    rng = random.Random("zones")

    def key(number: int) -> list[Op]:
        values = [f"v{one if number % 3 else one // 2}" for one in range(5)]
        ops = [operation("write", value, call=10 * at, ret=10 * at + 12) for at, value in enumerate(values)]
        return [*ops, operation("read", None, rng.choice(values), call=60, ret=61)]

    reader = open_stored_operations(stored(tmp_path / "history", table((str(n), key(n)) for n in range(20))))
    here, there = (judged(reader, "register", one, Limits()) for one in (Engines("duckdb"), Shared(application)))
    assert there == here
    assert [one.note.split(";")[0] for one in here.examined] == ["zones on 13 keys", "search on 7 keys"]
    assert 0 < len(here.findings) < 20


@pytest.mark.spark
@pytest.mark.long
def test_an_operation_that_is_not_the_models_is_reported_on_spark_too(application: Any, tmp_path: Path) -> None:
    reader = open_stored_operations(stored(tmp_path / "history", table([("a", [operation("pop", 1, call=0, ret=1)])])))
    for engines in (Engines("duckdb"), Shared(application)):
        with pytest.raises(HistoryError, match=r"the operations are not those of kv: operation 0: .*pop"):
            judged(reader, "kv", engines, Limits())


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def test_ctrl_c_prints_what_is_known_and_leaves_no_process(engine: str, tmp_path: Path) -> None:
    """The first key is answered, and has no legal order. The other keys would take minutes."""
    slow = [operation("mix", number + 1, call=number, ret=100 + number) for number in range(14)]
    keys = ["slow", "slower"] if engine == "duckdb" else ["slow"]  # a process for each, or one of Spark's two for all
    ops = table([("quick", [operation("peek", 1, call=0, ret=1)]), *((key, slow) for key in keys)])
    process, terminal = checking(stored(tmp_path / "history", ops), engine)
    try:
        shown(terminal, r"searching \d keys: [1-9]")
        others = started(process.pid, 2)  # of the pool; or the JVM and the processes of its executor
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    finally:
        ended(process, terminal)
    assert process.returncode == ExitCode.INTERRUPTED
    assert out.startswith("FAIL")
    assert f"interrupted; 1 of {1 + len(keys)} keys were searched" in out
    assert left(others) == []


def test_a_wrong_key_is_printed_while_others_are_searched(tmp_path: Path) -> None:
    slow = [operation("mix", number + 1, call=number, ret=100 + number) for number in range(14)]
    ops = table([("slow", slow), ("quick", [operation("peek", 1, call=0, ret=1)])])
    process, terminal = checking(stored(tmp_path / "history", ops), "duckdb")
    try:
        shown(terminal, r"FAIL so far, while other keys are searched: In quick: peek\(1\) .*has no place")
        assert process.poll() is None
    finally:
        ended(process, terminal)


@pytest.mark.long
@pytest.mark.spark
def test_a_spark_that_is_lost_is_one_clear_error_and_no_keys_fault(tmp_path: Path) -> None:
    slow = [operation("mix", number + 1, call=number, ret=100 + number) for number in range(14)]
    ops = table([("quick", slow[:1]), ("slow", slow)])
    process, terminal = checking(stored(tmp_path / "history", ops), "spark")
    try:
        reported = shown(terminal, r"searching \d keys: [1-9]")
        others = descendants(process.pid)
        (jvm,) = (pid for pid in others if Path(f"/proc/{pid}/comm").read_text() == "java\n")
        os.kill(jvm, signal.SIGKILL)
        out, _ = process.communicate(timeout=120)
        reported += shown(terminal)
    finally:
        ended(process, terminal)
    assert out == ""
    assert process.returncode == ExitCode.USAGE, reported
    assert "its JVM has ended; ask again, or search here with --engine=duckdb" in reported
    assert "Traceback" not in reported
    assert "the process that searched it" not in reported
    assert left(others) == []


def checking(folder: Path, engine: str) -> tuple[subprocess.Popen[str], int]:
    """``assay check`` with a model of ours, and the terminal where it tells how far it is."""
    command = ["check", str(folder), "--model=helpers.linearizability_models:Mixer", f"--engine={engine}", "--all-keys"]
    terminal, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *command],
        stdout=subprocess.PIPE, stderr=theirs, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )  # fmt: skip
    os.close(theirs)
    return process, terminal


def shown(terminal: int, until: str | None = None) -> str:
    """Returns what is printed from now on until that is printed, or the terminal is closed."""
    reported = ""
    while until is None or not re.search(until, reported):
        try:
            reported += os.read(terminal, 4096).decode()
        except OSError:
            if until is None:
                break
            raise
    return reported


def ended(process: subprocess.Popen[str], terminal: int) -> None:
    process.kill()
    process.wait()
    os.close(terminal)
    if process.stdout is not None:
        process.stdout.close()


SCRIPT = """
import signal, sys
from assay.harness.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs this in the background ignores it
sys.exit(main())
"""
