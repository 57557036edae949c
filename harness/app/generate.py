"""``assay generate``: a large synthetic history on disk, with or without one anomaly in it, to try the checks on.

    assay generate log --operations=10000000 --plant=lost-write --out=DIR
    assay check DIR

The history is written in bounded memory, and is the same for the same options. What was planted stands in
``DIR/planted.json``; the check must find that, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from harness.app.synthetic.group import GroupTraffic
from harness.app.synthetic.group_scenes import GROUP_SCENES
from harness.app.synthetic.log import LogTraffic
from harness.app.synthetic.log_scenes import LOG_SCENES
from harness.app.synthetic.plan import Made, Plan, Planted
from harness.app.synthetic.register import RegisterTraffic
from harness.app.synthetic.register_scenes import SCENES
from harness.core.history import HistoryReader, HistoryWriter

PLANTED: Final = "planted.json"


class Traffic(Protocol):
    """What a model makes of a plan."""

    def write(self, writer: HistoryWriter) -> Planted | None: ...


MODELS: Final[Mapping[str, Callable[[Plan], Traffic]]] = {
    "log": LogTraffic,
    "register": RegisterTraffic,
    "group": GroupTraffic,
}
PLANTABLE: Final = {"log": LOG_SCENES, "register": tuple(SCENES), "group": tuple(GROUP_SCENES)}


def generate(model: str, plan: Plan, out: Path) -> Made:
    """Writes a history of one of ``MODELS`` into the folder ``out``, which must hold nothing yet.

    Raises ``PlanError`` for an anomaly that the model does not have, ``HistoryError`` when the folder is in use.
    """
    begun = time.perf_counter()
    traffic = MODELS[model](plan)
    with HistoryWriter(out, part_rows=4_000_000) as writer:
        planted = traffic.write(writer)
    if planted is not None:
        (out / PLANTED).write_bytes(msgspec.json.format(msgspec.json.encode(planted)) + b"\n")
    reader = HistoryReader(out)
    return Made(
        operations=reader.rows("ops"),
        effects=reader.rows("effects"),
        seconds=time.perf_counter() - begun,
        planted=planted,
    )
