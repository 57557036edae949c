"""``assay generate``: writes a synthetic history of any size, correct except for planted anomalies, to test checks.

    assay generate log --operations=10000000 --plant=lost-write --out=DIR
    assay check DIR

The history is in ``DIR/history``. ``DIR/planted.json`` has the options and the planted anomalies; the checks must find
these and no others. Memory is bounded, and equal options make equal histories.
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from assay.harness.core.history import HistoryError, HistoryReader
from assay.harness.synthetic.background_writer import BackgroundWriter
from assay.harness.synthetic.bank import BankTraffic
from assay.harness.synthetic.counter import CounterTraffic
from assay.harness.synthetic.group import GroupTraffic
from assay.harness.synthetic.ids import IdTraffic
from assay.harness.synthetic.lease import LeaseTraffic
from assay.harness.synthetic.log import LogTraffic
from assay.harness.synthetic.max_register import MaxRegisterTraffic
from assay.harness.synthetic.monotonic import MonotonicTraffic
from assay.harness.synthetic.offsets import OffsetsTraffic
from assay.harness.synthetic.plan import GenerationResult, Plan, Record
from assay.harness.synthetic.queue import QueueTraffic
from assay.harness.synthetic.register import RegisterTraffic
from assay.harness.synthetic.sets import SetTraffic
from assay.harness.synthetic.traffic import Traffic
from assay.harness.synthetic.txn import TxnListTraffic, TxnRegisterTraffic

PLANTED: Final = "planted.json"
HISTORY: Final = "history"
UNFINISHED: Final = ".unfinished"
"""Folder in which the history is written. A killed process leaves it under this name, which nothing reads."""

MODELS: Final[Mapping[str, type[Traffic]]] = {
    traffic.model: traffic
    for traffic in (
        LogTraffic,
        RegisterTraffic,
        GroupTraffic,
        OffsetsTraffic,
        LeaseTraffic,
        TxnListTraffic,
        TxnRegisterTraffic,
        QueueTraffic,
        SetTraffic,
        MaxRegisterTraffic,
        CounterTraffic,
        BankTraffic,
        IdTraffic,
        MonotonicTraffic,
    )
}


def generate(model: str, plan: Plan, out: Path) -> GenerationResult:
    """Writes a history of one of ``MODELS`` into the folder ``out``, which must be empty or missing.

    Raises ``PlanError`` if the plan cannot be fulfilled, ``HistoryError`` if the folder is not empty. After any
    exception, ``KeyboardInterrupt`` too, nothing is left behind.
    """
    begun = time.perf_counter()
    traffic = MODELS[model](plan)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HistoryError(f"{out} is not an empty folder: a history is never written over; take a new one")
    made_folder = not out.exists()
    unfinished = out / UNFINISHED
    try:
        with BackgroundWriter(unfinished, part_rows=4_000_000) as writer:
            planted = traffic.write(writer)
        record = Record(
            model=model,
            operations=plan.operations,
            clients=plan.clients,
            keys=plan.keys,
            seed=plan.seed,
            info_share=plan.info_share,
            bursts=plan.bursts,
            planted=planted,
        )
        (out / PLANTED).write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        os.replace(unfinished, out / HISTORY)
    except BaseException:
        shutil.rmtree(out if made_folder else unfinished, ignore_errors=True)
        (out / PLANTED).unlink(missing_ok=True)
        raise
    reader = HistoryReader(out / HISTORY)
    return GenerationResult(
        operations=reader.rows("ops"),
        effects=reader.rows("effects"),
        seconds=time.perf_counter() - begun,
        planted=planted,
    )
