"""Compares the times of recovery with a direct computation from their definition, on random histories."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.engine import Engine
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.sqlite import SQLite
from assay.checkers.judging import coverage
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.disturbance import FaultTimes, read_faults
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import judge

from helpers.judging import TABLES
from helpers.log_histories import Row, effect, write

DEADLINE = 4_000
CONTRACT = forbid("lost-write", recovery_deadline=DEADLINE / 1000)
SETTLED = 6
"""The drain's end of the first log."""
Recovery = tuple[int, str, int | None, int | None]
"""The fault, the key, and the milliseconds to the first change and the first look that count."""


def make_faults(draw: random.Random) -> list[dict[str, Any]]:
    rows, at = [], 0
    for number in range(1, draw.randint(1, 5) + 1):
        at += draw.randint(1, 5_000)
        healed = at + draw.randint(1, 1_000)
        for phase, time in (("intended", 0), ("injected", at), ("healed", healed), ("recovered", healed)):
            rows.append({"id": number, "fault": "kill", "targets": "[]", "phase": phase, "time": time * 1_000_000,
                         "detail": "{}", "took_effect": phase == "healed" or None})  # fmt: skip
    return rows


def make_effects(draw: random.Random) -> list[Row]:
    rows: list[Row] = []
    for op in range(draw.choice([5, 60, 250])):
        key = draw.choice(["a-0", "b-0", "r"])
        call = draw.randint(0, 20_000)
        outcome = draw.choice(["ok", "ok", "ok", "fail", "info"])
        ret = None if outcome == "info" else call + draw.choice([1, 2, 50, 3_000])
        kinds = ("register-read", "register-write") if key == "r" else ("append", "observe")
        kind = draw.choice(kinds)

        times = (call * 1_000_000 + 2 * op, None if ret is None else ret * 1_000_000 + 2 * op + 1)  # all differ
        common: dict[str, Any] = {"outcome": outcome, "process": op}
        if kind == "observe":
            end = draw.randint(0, 9)
            rows += [effect(op, sub, f"observe-{side}", key, *times, position=end, assignment=1, **common)
                     for sub, side in enumerate(("begin", "end"))]  # fmt: skip
        else:
            position = draw.randint(0, 8) if kind == "append" and outcome == "ok" and draw.random() < 0.9 else None
            rows.append(effect(op, 0, kind, key, *times, position=position, value=1_000 + op, **common))
    sentinel = len(rows) + 1_000
    for at, kind, position in ((30_000, "append", SETTLED - 1), (30_100, "drained", SETTLED)):
        rows.append(effect(sentinel, 0, kind, "a-0", at * 1_000_000, (at + 10) * 1_000_000, position=position,
                           value=9_999 if kind == "append" else None, process=9_999,
                           phase="sentinel" if kind == "append" else "drain"))  # fmt: skip
        sentinel += 1
    return rows


def compute(faults: Sequence[dict[str, Any]], rows: Sequence[Row]) -> set[Recovery]:
    """Returns the recoveries of keys at work before a deadline, by the module's docstring."""
    found = set()
    deadline = DEADLINE * 1_000_000
    for fault in faults:
        if fault["phase"] != "healed":
            continue
        healed = fault["time"]
        for key in {row["key"] for row in rows}:
            mine = [row for row in rows if row["key"] == key and row["kind"] != "drained"]
            if not any(healed <= row["call"] <= healed + deadline for row in mine):
                continue
            after = [row for row in mine if row["call"] >= healed and row["outcome"] == "ok"]
            acks = [row for row in mine if row["kind"] == "append" and row["outcome"] == "ok"]
            changes = [row["ret"] for row in after if row["kind"] in ("append", "register-write")]
            back = min((row["ret"] for row in acks if row["call"] >= healed and row["ret"] <= healed + deadline),
                       default=None)  # fmt: skip
            before = [row["position"] + 1 for row in acks
                      if row["position"] is not None and (row["ret"] < healed or row["ret"] == back)]  # fmt: skip
            needed = max(before, default=0)
            needed = min(needed, SETTLED) if key == "a-0" else needed
            looks = [row["ret"] for row in after if row["kind"] == "register-read"
                     or (row["kind"] == "observe-end" and row["position"] >= needed)]  # fmt: skip
            times = (None if not times else min(times) - healed for times in (changes, looks))
            found.add((fault["id"], key, *times))
    return found


@pytest.mark.parametrize("opens", [DuckDB, SQLite])
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed < 8 else pytest.mark.long) for seed in range(20)])
def test_times_are_those_of_the_definition(tmp_path: Path, seed: int, opens: type[Engine]) -> None:
    draw = random.Random(seed)
    faults, rows = make_faults(draw), make_effects(draw)
    history = open_history(write(tmp_path / "history", rows, faults=faults))
    with opens() as engine:  # type: ignore[attr-defined]
        judge(history, CONTRACT, engine, families=TABLES)
        found = coverage.measure_coverage(engine, CONTRACT, read_faults(engine), ended=True)
    assert {(one.fault.id, one.key, one.write_delay, one.read_delay) for one in found.recoveries} == compute(
        faults, rows
    )


def make_recovery(fault: int, seconds: float | None, subject: int = 0) -> coverage.KeyRecovery:
    times = FaultTimes(fault, "kill", 1, 2, failed=False, took_effect=True)
    time = None if seconds is None else int(seconds * 1e9)
    return coverage.KeyRecovery(coverage.SUBJECTS[subject], times, "a-0", time, time)


def test_few_faults_are_all_described() -> None:
    few = tuple(make_recovery(fault, fault / 4) for fault in (1, 2, 2))
    assert coverage.describe_slowest(few) == (
        "fault 1 (kill): send 0.250 s, poll 0.250 s after the heal; "
        "fault 2 (kill): send 0.500 s, poll 0.500 s after the heal"
    )
    assert coverage.describe_slowest(()) is None


def test_of_many_faults_the_slowest_are_described_in_their_order() -> None:
    slow = {7: None, 30: 9.0, 55: 8.0}
    many = tuple(make_recovery(fault, slow.get(fault, fault / 1000)) for fault in range(1, 61))
    said = coverage.describe_slowest(many)
    assert said is not None
    places = [said.index(f"fault {fault} (kill)") for fault in slow]
    assert places == sorted(places)
    assert "fault 7 (kill): send never" in said
    assert said.count("fault ") == coverage.MOST_SLOW
    assert said.endswith("40 others recovered sooner")
