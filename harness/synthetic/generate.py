"""``assay generate``: writes a synthetic history of any size, correct except for planted anomalies, to test checks.

    assay generate log --operations=10000000 --plant=lost-write --out=DIR
    assay check DIR

The history is in ``DIR/history``. ``DIR/planted.json`` has the options and the planted anomalies; the checks must find
these and no others. Memory is bounded, and equal options make equal histories.
"""

import os
import random
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from assay.harness.core.history import HistoryError, HistoryReader, HistoryWriter
from assay.harness.synthetic.bank import BankModel
from assay.harness.synthetic.catalogue import CATALOGUE
from assay.harness.synthetic.containers import QueueModel, SetModel
from assay.harness.synthetic.counters import CounterModel, IdModel, MaxRegisterModel, MonotonicModel
from assay.harness.synthetic.group import GroupModel
from assay.harness.synthetic.history import TILE, HistoryMaker
from assay.harness.synthetic.lease import LeaseModel
from assay.harness.synthetic.log import LogModel
from assay.harness.synthetic.model import Model
from assay.harness.synthetic.plan import GenerationResult, Plan, PlanError, Record
from assay.harness.synthetic.registers import OffsetsModel, RegisterModel
from assay.harness.synthetic.txn import TxnListModel, TxnRegisterModel

PLANTED: Final = "planted.json"
HISTORY: Final = "history"
UNFINISHED: Final = ".unfinished"
"""Folder in which the history is written. It is renamed at the end, so no reader uses a part of a history."""

MODELS: Final[Mapping[str, type[Model]]] = {
    model.model: model
    for model in (
        LogModel, RegisterModel, GroupModel, OffsetsModel, LeaseModel, TxnListModel, TxnRegisterModel, QueueModel,
        SetModel, MaxRegisterModel, CounterModel, BankModel, IdModel, MonotonicModel,
    )
}  # fmt: skip


def prepare(model: str, plan: Plan) -> HistoryMaker:
    """Returns the maker of a history. Raises ``PlanError`` if an anomaly cannot be planted."""
    kind = CATALOGUE[model]
    for anomaly in plan.plant:
        if anomaly not in kind.anomalies:
            raise PlanError(
                f"{kind.title} history has no anomaly {anomaly!r}; plant one of {', '.join(kind.anomalies)}"
            )
    objects = MODELS[model](plan)
    rng, spacing, many = random.Random(plan.seed), objects.key_spacing, len(plan.plant)
    # If there are more keys than operations in a tile, each copy of the tile uses other keys. The keys of planted
    # anomalies are left out of this rotation.
    rotated_keys = (plan.keys // spacing - many) * spacing if plan.keys > TILE and plan.keys % spacing == 0 else 0
    keys = [spacing * index for index in rng.sample(range(rotated_keys // spacing, -(-plan.keys // spacing)), many)]
    objects.scene_keys = frozenset(keys)
    objects.begin(rng)
    scenes = [objects.make_scene(anomaly, key) for anomaly, key in zip(plan.plant, keys, strict=True)]
    for anomaly, scene in zip(plan.plant, scenes, strict=True):
        if scene.clients > plan.clients:
            raise PlanError(f"{anomaly} takes {scene.clients} clients at once, and there are {plan.clients}")
    return HistoryMaker(plan, objects, scenes, keys, rotated_keys)


def generate(
    model: str, plan: Plan, out: Path, progress: Callable[[int], None] = lambda done: None
) -> GenerationResult:
    """Writes a history of one of ``MODELS`` into the folder ``out``, which must be empty or missing.

    ``progress`` is called with the number of operations of the main phase done so far.
    Raises ``PlanError`` if the plan cannot be fulfilled, and ``HistoryError`` if the folder is not empty. After any
    exception, including ``KeyboardInterrupt``, nothing is left behind.
    """
    began = time.perf_counter()
    maker = prepare(model, plan)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HistoryError(f"{out} is not an empty folder: a history is never written over; take a new one")
    is_new = not out.exists()
    unfinished = out / UNFINISHED
    is_begun = is_recorded = False
    try:
        unfinished.mkdir(parents=True)  # fails if another process has created the folder
        is_begun = True
        with HistoryWriter(unfinished, part_rows=4_000_000) as writer:
            planted = maker.write(writer, progress)
        options = {name: value for name, value in vars(plan).items() if name != "plant"}
        record = Record(model=model, planted=planted, **options)
        with open(out / PLANTED, "xb") as file:  # fails if another process has created the file
            is_recorded = True
            file.write(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        os.replace(unfinished, out / HISTORY)
    except BaseException:
        if is_begun:
            shutil.rmtree(unfinished, ignore_errors=True)
        if is_recorded:
            (out / PLANTED).unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # another process has put a file there
                out.rmdir()
        raise
    reader = HistoryReader(out / HISTORY)
    return GenerationResult(
        operations=reader.rows("ops"),
        effects=reader.rows("effects"),
        seconds=time.perf_counter() - began,
        planted=planted,
    )
