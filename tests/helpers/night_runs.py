"""Run folders as the store makes them, and random runs as the data set keeps them."""

from __future__ import annotations

import random
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding, Judgement
from assay.cluster.owner import current_owner
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.nightly.dataset_schema import NONE, SCHEMA, FaultPhases, RecoveryRow, RunFinding, RunRow
from assay.harness.run import store
from assay.harness.run.settings import Settings
from assay.harness.run.store import RunFolder, RunInfo

from helpers.judging import judge

_JUDGED: list[Judgement] = []
SECOND = 1_000_000_000
ANOMALIES = ("lost-write", "vanished", "duplicate", "no-recovery")
ZOO = {"acks-early": ("lost-write", "vanished"), "never-run": ("phantom",)}
"""``homemade`` is in no zoo."""


def run_folder(
    root: Path,
    began: datetime,
    *,
    test: str = "workloads/test_log.py::test_log[kill]",
    status: str = store.FINISHED,
    defect: str | None = None,
    judged: bool = True,
    settings: bool = True,
    **changes: Any,
) -> RunFolder:
    """A run of four sends, the last of which is refused, with a kill from 2 s to 3 s; ``changes``: of its judgement."""
    folder = store.create_run_folder(root, test, began)
    with HistoryWriter(folder.history) as history:
        for index, call in enumerate((SECOND, 2 * SECOND, 3 * SECOND + 50_000_000, 4 * SECOND)):
            outcome = Outcome.FAIL if index == 3 else Outcome.OK
            history.completed(
                Completed(
                    index=index, process=0, worker="0", operation=Operation("send", "orders-0", [index]),
                    completion=Completion(outcome, None, None), call=call, ret=call + 1_000,
                ),
                [Effect("append", "orders-0", index if outcome is Outcome.OK else None, index)],
            )  # fmt: skip
        for phase, time, took_effect in (
            ("intended", 1, None),
            ("injected", 2 * SECOND, None),
            ("healed", 3 * SECOND, True),
            ("recovered", 3 * SECOND + 1, None),
        ):
            history.fault(id=1, fault="kill", targets=("n1",), phase=phase, time=time, took_effect=took_effect)
    info = RunInfo(
        test=test, status=status, started=began.isoformat(), ended=(began + timedelta(seconds=9)).isoformat(),
        owner=str(current_owner()), seed=7, cluster="sim", nemesis="kill", command=f"pytest --defect={defect}",
    )  # fmt: skip
    contract = Contract()
    if settings:
        chosen = asdict(Settings(seed=7, nemesis=("kill",), defect=defect))
        described = {"settings": chosen, "experiment": "test_log", "contract": msgspec.to_builtins(contract)}
        folder.write_json("settings.json", described)
    if judged:
        judgement: Judgement = msgspec.structs.replace(_judged(folder.history), **changes)
        folder.write_json("verdict.json", judgement)
        info = msgspec.structs.replace(info, verdict=str(judgement.verdict))
    folder.write_run(info)
    return folder


def _judged(history: Path) -> Judgement:
    """All these histories are the same."""
    if not _JUDGED:
        _JUDGED.append(judge(history, Contract()))
    return _JUDGED[0]


def finding(anomaly: str, time: int) -> Finding:
    return Finding(anomaly=anomaly, key="orders-0", claim="it is gone.", time=time)


def random_run(chance: random.Random) -> RunRow:
    """Any mixture of what the columns may hold."""
    status = chance.choice((store.FINISHED,) * 5 + ("damaged", store.ERROR))
    defect = chance.choice((NONE, NONE, "acks-early", "homemade"))
    recorded = ("pass", "pass", "fail", "unknown") if defect == NONE else ("pass", "fail", "fail", "fail", "unknown")
    verdict = chance.choice(recorded) if status == store.FINISHED else None
    return RunRow(
        run=f"{chance.getrandbits(64):016x}",
        folder=f"test/{chance.randrange(1000)}",
        test="t",
        workload=chance.choice(("log", "group")),
        nemesis=chance.choice(("none", "kill")),
        defect=defect,
        cluster="sim",
        seed=chance.randrange(100),
        started="2026-11-21T02:00:00+00:00",
        status=status,
        verdict=verdict,
        problem=None if verdict else chance.choice((None, "it broke off")),
        run_seconds=chance.random(),
        check_seconds=None,
        engine=None,
        operations=None if verdict is None else chance.randrange(10_000),
        effects=None,
        digest=None,
        findings=tuple(
            RunFinding(
                anomaly=anomaly,
                forbidden=chance.random() < 0.5,
                instances=1,
                time=chance.choice((None, chance.randrange(60 * SECOND))),
                since_fault=chance.choice((None, chance.randrange(-SECOND, 60 * SECOND))),
            )
            for anomaly in chance.sample(ANOMALIES, chance.randrange(3))
        ),
        faults=tuple(_fault(chance, number) for number in range(chance.randrange(3))),
        returns=tuple(
            RecoveryRow(
                fault_id=number, fault=chance.choice(("kill", "stop")), key="orders-0", change="send", look="poll",
                changed=chance.choice((None, 0, chance.randrange(10 * SECOND))),
                looked=chance.choice((None, chance.randrange(10 * SECOND))),
            )
            for number in range(chance.randrange(4))
        ),
    )  # fmt: skip


def _fault(chance: random.Random, number: int) -> FaultPhases:
    injected = chance.choice((None, number * SECOND))
    return FaultPhases(
        id=number, fault="kill", targets=("n1",), intended=0, injected=injected, healed=injected, recovered=None,
        took_effect=injected is not None and chance.random() < 0.5, failed=False,
    )  # fmt: skip


def cells_of_a_night(chance: random.Random, cells: int) -> pa.Table:
    """A run of each, all that passed or failed; every tenth cell has a defect."""
    runs = []
    while len(runs) < cells:
        number, run = len(runs), random_run(chance)
        if run.verdict is not None and (run.defect == NONE) == (number % 10 > 0):
            runs.append(
                msgspec.structs.replace(run, workload=f"w{number // 20}", nemesis=f"n{number % 20}", system="s")
            )
    return pa.Table.from_pylist([msgspec.to_builtins(run) for run in runs], schema=SCHEMA)
