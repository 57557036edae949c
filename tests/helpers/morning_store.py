"""Stores of many nights, made in a moment: run folders with their small files alone, and the records of nights."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import AttemptResult, CellKind, MatrixCell, Night, NightFolder, night_folder
from assay.harness.run import store

LAST = datetime(2026, 11, 24, 1, 0, tzinfo=UTC)
HOSTILE = "</script><img src=x onerror=alert(1)><script>window.pwned=1</script>"
WORKLOADS = (
    "test_async_sends", "test_controller", "test_group", "test_log", "test_moves", "test_offsets", "test_queue",
    "test_register", "test_retention", "test_storage", "test_transactions", "test_zookeeper",
)  # fmt: skip
NEMESES = (
    "none", "clock", "connection", "corrupt", "disk-full", "freeze", "hold", "kill", "kill+partition", "mix",
    "move-replicas", "packets", "partition", "partition-one-way", "power-loss", "restart", "slow-fsync", "stop", "wipe",
    "zookeeper-kill",
)  # fmt: skip
FORBIDDEN = ("double-ownership", "lost-write", "no-recovery", "stale-read", "vanished", "zombie-commit")
FAILING = (
    ("test_log", "power-loss"), ("test_group", "kill+partition"), ("test_register", "clock"), ("test_offsets", "wipe")
)  # fmt: skip
"""The cells that have failures, which run every night."""
HUNG = "pytest workloads/test_moves.py::test_moves --cluster=docker --nemesis=stop --seed=7"
REASONS = (
    "fault 3 (partition halves) did not take effect: packets went through after 1.2 s",
    "only 7 operations succeeded while kill of n2 was in force",
)


@dataclass
class Made:
    """Description of a run to make. The defaults are those of a pass."""

    began: datetime = LAST
    workload: str = "test_log"
    nemesis: str = "kill"
    verdict: str | None = "pass"
    anomalies: Sequence[str] = ()
    seed: int = 7
    system: str = "broker"
    cluster: str = "sim"
    defect: str | None = None
    status: str = store.FINISHED
    reason: str = ""
    command: str | None = None
    version: str = "41f0"
    operations: int = 5_000
    time: int = 4_200_000_000
    faults: Sequence[str] = ("kill",)
    replay: str | None = None
    problem: str | None = None
    figures: dict[str, float] = field(default_factory=dict)
    report: bool = False


def write(root: Path, made: Made) -> Path:
    """The run's folder, as an attempt leaves it, without a history's rows."""
    path = store.create_run_folder(
        root, f"workloads/{made.workload}.py::{made.workload}[{made.nemesis}]", made.began
    ).path
    (path / "logs").rmdir()
    faults = f"--replay={made.replay}" if made.replay else f"--nemesis={made.nemesis}"
    command = f"pytest workloads/{made.workload}.py::{made.workload} --cluster={made.cluster} {faults}"
    documents: dict[str, Any] = {
        "run.json": {
            "test": f"workloads/{made.workload}.py::{made.workload}[{made.nemesis}]", "status": made.status,
            "started": made.began.isoformat(), "ended": (made.began + timedelta(seconds=9)).isoformat(),
            "owner": "1.2.3", "seed": made.seed, "cluster": made.cluster, "nemesis": made.nemesis,
            "command": made.command or f"{command} --seed={made.seed}", "verdict": made.verdict,
            "problem": made.problem,
        },
        "settings.json": {
            "settings": {"defect": made.defect, "replay": made.replay}, "experiment": made.workload,
            "system": {"name": made.system}, "versions": {"source": made.version},
        },
        "schedule.json": {"type": "run", "schedule": {"steps": [{"fault": name} for name in made.faults]}},
    }  # fmt: skip
    if made.verdict is not None:
        documents["verdict.json"] = {
            "verdict": made.verdict, "anomalies": dict.fromkeys(made.anomalies, 1), "forbidden": [*FORBIDDEN, HOSTILE],
            "tolerated": [], "examined": [], "unknown": [made.reason] if made.reason else [],
            "operations": made.operations, "effects": 2 * made.operations, "seconds": 0.1, "engine": "duckdb",
            "findings": [
                {"anomaly": name, "key": "orders-0", "claim": "it is gone.", "time": made.time}
                for name in made.anomalies
            ],
        }  # fmt: skip
    if made.figures:
        documents["figures.json"] = made.figures
    for name, document in documents.items():
        (path / name).write_bytes(msgspec.json.encode(document))
    if made.report:
        (path / "report.html").write_text("<!doctype html><title>report</title><h1>the report</h1>")
    return path


def night(
    root: Path, began: datetime, cells: Sequence[MatrixCell], results: Sequence[AttemptResult], *, ended: bool = True
) -> NightFolder:
    """The record of a night; its name is the day on which it began."""
    made = night_folder(root, f"{began:%Y-%m-%d}")
    end = {"ended": (began + timedelta(hours=5)).isoformat()} if ended else {}
    made.write(
        Night(folder_name=made.path.name, started=began.isoformat(), budget_seconds=18_000, seed=1,
              version=version(began), host="n1", cells=tuple(cells), **end)
    )  # fmt: skip
    with (made.path / "cells.jsonl").open("wb") as file:
        file.writelines(msgspec.json.encode(result) + b"\n" for result in results)
    return made


def cell(workload: str, nemesis: str, **changes: Any) -> MatrixCell:
    plain: dict[str, Any] = {"kind": CellKind.RUN, "system": "broker", "cluster": "sim"}
    return MatrixCell(name=f"{workload}-{nemesis}", workload=workload, nemesis=nemesis, **{**plain, **changes})


def result(of: MatrixCell, outcome: Outcome, *runs: str, **changes: Any) -> AttemptResult:
    plain: dict[str, Any] = {"attempt": 1, "seed": 7, "command": "pytest", "started": LAST.isoformat(), "seconds": 9.0}
    return AttemptResult(cell=of.name, outcome=outcome, runs=runs, **{**plain, **changes})


def version(began: datetime) -> str:
    """Another one every fourth day."""
    return f"{0x3C1D08 + began.toordinal() // 4 * 7919:07x}"


def many(root: Path, runs: int, nights: int = 14, seed: int = 1) -> Path:
    """A store that has something of everything: new, open and forgotten failures, unknowns, defects, a crash."""
    chance = random.Random(seed)
    for back in range(nights - 1, -1, -1):
        _one_night(root, LAST - timedelta(days=back), back, runs // nights, chance)
    broken = write(root, Made(LAST + timedelta(hours=4), workload="test_queue", seed=99))
    (broken / "run.json").write_bytes(b'{"test": "half a li')
    (root / "foreign" / "holiday pictures").mkdir(parents=True)
    return root


def _one_night(root: Path, began: datetime, back: int, runs: int, chance: random.Random) -> None:
    cells, results = {}, []
    for number in range(runs):
        made = _run(began + timedelta(seconds=5 * 3600 * number / runs), number, back, chance)
        of = cell(made.workload, made.nemesis, defect=made.defect,
                  kind=CellKind.CANARY if made.defect else CellKind.RUN)  # fmt: skip
        of = msgspec.structs.replace(of, name=f"{of.name}-{made.defect}" if made.defect else of.name)
        path = write(root, made)
        cells[of.name] = of
        results.append(result(of, _outcome(made), f"{path.parent.name}/{path.name}", started=made.began.isoformat()))
    hung = cell("test_moves", "stop", cluster="docker")
    cells[hung.name] = hung
    if back in (0, 5):
        began_then = (began + timedelta(hours=3)).isoformat()
        results.append(
            result(
                hung,
                Outcome.HUNG,
                command=HUNG,
                detail="no line for 600 s",
                log="logs/hung.txt",
                started=began_then,
            )
        )
    night(root, began, list(cells.values()), results)


def _outcome(made: Made) -> Outcome:
    if made.defect:
        return Outcome.DETECTED if made.verdict == "fail" else Outcome.MISSED
    return Outcome(made.verdict) if made.verdict else Outcome.CRASHED


def _run(began: datetime, number: int, back: int, chance: random.Random) -> Made:
    workload, nemesis = chance.choice(WORKLOADS), chance.choice(NEMESES)
    if 1 <= number % 60 <= len(FAILING):
        workload, nemesis = FAILING[number % 60 - 1]
    slow = 3 + WORKLOADS.index(workload) + (6 - min(back, 6) if workload == "test_retention" else 0)
    made = Made(
        began, workload=workload, nemesis=nemesis, seed=chance.randrange(2**32),
        operations=chance.randrange(4000, 6000),
        figures={"median_ms": slow * chance.uniform(0.9, 1.1), "p99_ms": slow * chance.uniform(8, 12),
                 "recovery_seconds": chance.uniform(0.5, 3.0)},
        report=number % 40 == 0,
    )  # fmt: skip
    if number % 12 == 0:
        made.defect = ("ack-before-replication", "fetch-past-high-watermark", "no-fencing", "zombie-group")[
            number // 12 % 4
        ]
        caught = chance.random() < (0.4 if made.defect == "no-fencing" else 0.97)
        made.verdict, made.anomalies = ("fail", ["lost-write"]) if caught else ("pass", [])
        made.time = chance.randrange(2, 20) * 1_000_000_000
    elif (workload, nemesis) == ("test_log", "power-loss") and back < 6 and chance.random() < 0.6:
        made.verdict, made.anomalies, made.report = "fail", ["lost-write", "vanished"], True
    elif (workload, nemesis) == ("test_group", "kill+partition") and back == 0:
        made.verdict, made.anomalies, made.report = "fail", ["zombie-commit"], True
        made.replay, made.faults = "store/found/71-zombie-commit.json", ("kill", "partition")
    elif (workload, nemesis) == ("test_register", "clock") and chance.random() < 0.5:
        made.verdict, made.anomalies = "fail", ["stale-read"]
    elif (workload, nemesis) == ("test_offsets", "wipe") and back > 8:
        made.verdict, made.anomalies = "fail", ["no-recovery"]
    elif chance.random() < 0.015:
        made.verdict, made.reason = "unknown", chance.choice(REASONS)
    elif chance.random() < 0.004:
        made.verdict, made.status, made.problem = None, store.ERROR, "NodeError: n2 did not start within 90 s"
    return made
