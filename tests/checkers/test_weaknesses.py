"""Weaknesses: each gets a warning and changes no verdict; its nearest legal neighbour gets none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.engine import Engine, Engines
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.sqlite import SQLite
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.disturbance import read_faults
from assay.checkers.judging.health import measure_health
from assay.checkers.judging.history_views import open_history, register_contract, register_history
from assay.checkers.judging.verdict import Verdict
from assay.checkers.judging.weaknesses import find_weaknesses
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.reader import InMemoryHistoryReader
from assay.harness.run.judging import UnjudgedRun, judge_together
from assay.harness.run.registry import Registry

from helpers.fault_rows import impact
from helpers.judging import judge
from helpers.log_histories import Row, effect, write

S: Final = 1_000_000_000
PROMISED: Final = Contract(
    forbidden=("id-duplicate",),
    minimum_during_fault=0,
    minimum_after_heal=0,
    recovery_deadline=1000,
)


def step(op: int, kind: str, outcome: str = "ok", error: str | None = None, **given: Any) -> Row:
    """An operation of 50 ms, called at a tenth of a second per ``op``, by worker w0."""
    call = given.pop("call", op * S // 10)
    ret = None if outcome == "info" else call + S // 20
    given = {"worker": "w0", "value": op, "process": op, **given}
    return effect(op, 0, kind, given.pop("key", "k"), call, ret, outcome=outcome, error=error, **given)


def sound() -> list[Row]:
    """Sixty ids for worker w0, in six seconds."""
    return [step(op, "id-generate") for op in range(60)]


def of_worker(errors: Iterable[str | None], first: int = 100, worker: str = "w3") -> list[Row]:
    """Operations of a worker from 10 s on, ten per second; None: it ended ok."""
    return [
        step(first + number, "id-generate", "ok" if error is None else "fail", error, worker=worker)
        for number, error in enumerate(errors)
    ]


def warnings(folder: Path, rows: list[Row], contract: Contract = PROMISED, **others: Any) -> tuple[str, ...]:
    final = 20 + max(row["call"] for row in rows) * 10 // S
    answered = step(final, "id-generate", process=1_000_000, worker="w9", value=1_000_000)
    judgement = judge(write(folder / "history", [*rows, {**answered, "op": 1_000_000}], **others), contract)
    assert judgement.verdict is Verdict.PASS, judgement.unknown
    return judgement.warnings


ROW: Final = [None] * 10 + [f"OSError: {number}" for number in range(40)]
"""Ten answers, then forty equal errors whose details differ."""


def kill(injected: float, healed: float) -> list[Row]:
    shared = {"id": 1, "fault": "kill", "targets": '["n1"]', "detail": "{}", **impact("kill")}
    return [
        {**shared, "phase": "injected", "time": int(injected * S) + 1},
        {**shared, "phase": "healed", "time": int(healed * S) - 1, "took_effect": True},
    ]


def test_a_worker_with_a_long_row_of_equal_errors_is_named_with_its_node(tmp_path: Path) -> None:
    rows = [*sound(), *of_worker(ROW)]
    (said,) = warnings(tmp_path / "last", rows)
    assert said.startswith("worker w3: OSError, 40 in a row since 11.0 s: ")
    folder = write(tmp_path / "through" / "history", [*rows, *of_worker([None] * 5, first=150)])
    (folder / "through.json").write_text(json.dumps({"w3": "n2", "w0": "n1"}))
    (said,) = judge(folder, PROMISED).warnings
    assert said.startswith("worker w3 through n2: OSError, 40 in a row from 11.0 to 14.9 s: ")


def test_several_workers_are_one_warning_that_names_three(tmp_path: Path) -> None:
    rows = sound()
    for number in range(5):
        rows += of_worker(ROW + ["OSError"] * number, first=100 * (number + 1), worker=f"w{number + 1}")
    (said,) = [one for one in warnings(tmp_path, rows) if one.startswith("worker")]
    assert said.startswith("worker w5: OSError, 44 in a row since 51.0 s; worker w4: OSError, 43 in a row")
    assert "; and 2 other workers: " in said


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param([None] * 10 + ["OSError"] * 29, id="too few"),
        pytest.param([None] * 10 + ["OSError"] * 20 + [None] + ["OSError"] * 20, id="one answer between"),
        pytest.param([None] * 10 + ["OSError"] * 20 + ["held: x"] + ["OSError"] * 20, id="one refusal between"),
        pytest.param([None] * 10 + ["OSError", "timeout"] * 20, id="errors by turns"),
        pytest.param([None] * 10 + ["held: by n1"] * 40, id="refusals"),
        pytest.param([None] * 100 + ["OSError"] * 31 + [None] * 10, id="short in its time"),
    ],
)
def test_other_errors_of_a_worker_get_no_warning(tmp_path: Path, errors: list[str | None]) -> None:
    assert not any("in a row" in one for one in warnings(tmp_path, [*sound(), *of_worker(errors)]))


@pytest.mark.parametrize(("healed", "warned"), [(14.2, False), (13.8, True)])
def test_a_fault_explains_all_but_a_few_errors_of_a_row(tmp_path: Path, healed: float, warned: bool) -> None:
    """Eight of its errors come after the heal at 14.2 s, and twelve after that at 13.8 s."""
    said = warnings(tmp_path, [*sound(), *of_worker(ROW)], faults=kill(11, healed))
    assert any("in a row" in one for one in said) is warned


def open_loop(number: int, due: float, called: float, **given: Any) -> list[Row]:
    """Operation n is due after n times ``due`` seconds, and called after n times ``called`` seconds."""
    return [
        step(op, "id-generate", call=int(op * called * S) + op, scheduled=int(op * due * S), **given)
        for op in range(number)
    ]


def test_an_open_loop_that_did_not_reach_its_rate_gets_a_warning(tmp_path: Path) -> None:
    (said,) = warnings(tmp_path, open_loop(96, 1 / 20, 1 / 4))
    assert said.startswith("the open loop did not reach its rate: 4 of 20 per second done, 19 s behind at its end; ")
    assert "--rate" in said


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(open_loop(96, 1 / 20, 1 / 20), id="in time"),
        pytest.param(
            [
                *(
                    step(op, "id-generate", call=5 * S + op * S // 100 + op, scheduled=op * S // 20)
                    for op in range(150)
                ),
                *(step(op, "id-generate", call=op * S // 20 + op, scheduled=op * S // 20) for op in range(150, 200)),
            ],
            id="late for five seconds, and then in time again",
        ),
        pytest.param([{**row, "scheduled": None} for row in open_loop(96, 1 / 20, 1 / 4)], id="a closed loop"),
        pytest.param(open_loop(200, 1 / 20, 1 / 18.5), id="late by less than a tenth"),
        pytest.param(open_loop(20, 1 / 40, 1 / 20), id="late by half a second"),
        pytest.param(open_loop(96, 1 / 20, 1 / 4, phase="drain"), id="after the main phase"),
    ],
)
def test_an_open_loop_in_time_gets_no_warning(tmp_path: Path, rows: list[Row]) -> None:
    assert warnings(tmp_path, rows) == ()


@pytest.mark.parametrize(("healed", "failover", "warned"), [(21, 0, True), (22, 0, False), (21, 1, False)])
def test_faults_explain_as_much_delay_as_they_and_their_failovers_last(
    tmp_path: Path, healed: float, failover: float, warned: bool
) -> None:
    """The loop is 19 s behind after 23.75 s, and the fault began at 5 s: a tenth remains."""
    contract = msgspec.structs.replace(PROMISED, failover=float(failover))
    said = warnings(tmp_path, open_loop(96, 1 / 20, 1 / 4), contract, faults=kill(5, healed))
    assert any("did not reach its rate" in one for one in said) is warned


TWICE: Final = {
    "set": ("set-add", "set-add"),
    "queue": ("queue-enqueue", "queue-enqueue"),
    "log": ("append", "append"),
}


@pytest.mark.parametrize("kinds", TWICE.values(), ids=TWICE)
def test_values_that_were_added_twice_get_a_warning(tmp_path: Path, kinds: tuple[str, str]) -> None:
    rows = [step(100 + number, kind, value=7, key="things") for number, kind in enumerate(kinds)]
    folder = write(tmp_path / "history", [*sound(), *rows])
    (said,) = judge(folder, PROMISED).warnings
    assert said.startswith("one value was added more than once, such as in things, ")
    meant = msgspec.structs.replace(PROMISED, repeated_values=True)
    assert judge(folder, meant).warnings == ()
    assert forbid("set-lost", repeated_values=True).repeated_values


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([step(100, "set-add", value=7), step(101, "set-add", value=8)], id="two values"),
        pytest.param([step(100, "set-add", value=7), step(101, "set-add", value=7, key="j")], id="two sets"),
        pytest.param([step(100, "set-add", "info", value=7), step(101, "set-add", value=7)], id="repeated in doubt"),
        pytest.param([step(100, "set-add", "fail", value=7), step(101, "set-add", value=7)], id="repeated"),
        pytest.param([step(100, "register-write", value=7), step(101, "register-write", value=7)], id="registers"),
        pytest.param([step(100, "counter-add", value=1), step(101, "counter-add", value=1)], id="counters"),
        pytest.param(
            [step(100, "set-add", value=7), step(101, "set-remove", value=7), step(102, "set-add", value=7)],
            id="removed between",
        ),
    ],
)
def test_values_that_may_repeat_get_no_warning(tmp_path: Path, rows: list[Row]) -> None:
    assert judge(write(tmp_path / "history", [*sound(), *rows]), PROMISED).warnings == ()


def test_of_very_many_values_some_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values 0 to 11 were added twice; those that 3 divides are compared."""
    monkeypatch.setattr("assay.checkers.judging.weaknesses.MOST_COMPARED", 10)
    rows = [step(100 + number, "set-add", value=number % 12) for number in range(24)]
    (said,) = judge(write(tmp_path / "history", [*sound(), *rows]), PROMISED).warnings
    assert said.startswith("of the values that 3 divides, 4 values were added more than once, such as in k, ")


def all_of_them(folder: Path) -> Path:
    rows = [*open_loop(60, 1 / 20, 1 / 6), *of_worker([f"{one}" if one else None for one in ROW])]
    rows += [step(200 + number, "set-add", value=number // 2, key=f"s{number % 2}", worker="w4") for number in range(9)]
    rows += [step(210 + number, "set-add", value=7, key="s", worker="w4") for number in range(2)]
    return write(folder / "history", rows, faults=kill(11, 12))


def found_by(engine: Engine, folder: Path) -> list[str]:
    register_history(engine, folder)
    register_contract(engine, PROMISED)
    health = measure_health(engine, PROMISED)
    return find_weaknesses(engine, PROMISED, health, read_faults(engine), {"set-add"}, {"w3": "n2"})


def test_duckdb_and_sqlite_find_the_same_weaknesses(tmp_path: Path) -> None:
    folder = all_of_them(tmp_path)
    with DuckDB() as duck, SQLite() as lite:
        by_duck = found_by(duck, folder)
        assert found_by(lite, folder) == by_duck
    assert [one.partition(" ")[0] for one in by_duck] == ["worker", "the", "one"]


def test_runs_that_are_judged_together_get_the_warnings_of_each_alone(tmp_path: Path) -> None:
    folders = [all_of_them(tmp_path / "weak"), write(tmp_path / "sound" / "history", sound())]
    folders.append(write(tmp_path / "row" / "history", [*sound(), *of_worker(ROW)]))
    readers = []
    for folder in folders:
        tables = {name: open_history(folder).table(name) for name in DATA_SETS}
        columns = {name: [column.to_pylist() for column in table.columns] for name, table in tables.items()}
        readers.append(
            InMemoryHistoryReader({name: columns[name] if table.num_rows else [] for name, table in tables.items()})
        )
    runs = [UnjudgedRun(reader, PROMISED) for reader in readers]
    together = judge_together(runs, Engines("duckdb", threads=1), Registry.standard())
    assert [len(one.warnings) for one in together] == [3, 0, 1]
    assert [one.warnings for one in together] == [judge(folder, PROMISED).warnings for folder in folders]


@pytest.mark.spark
def test_spark_finds_the_same_weaknesses(tmp_path: Path, application: Any) -> None:
    folder = all_of_them(tmp_path)
    with DuckDB() as duck, application.engine(effects=100) as spark:
        assert found_by(spark, folder) == found_by(duck, folder)
