"""``figures.json``: a few measurements of a run. The page of a store reads thousands of these files."""

from typing import Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from assay.checkers.times import NANOSECONDS
from assay.harness.core.history import HistoryReader

FIGURES: Final = "figures.json"
MILLISECOND: Final = 1_000_000


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of successful operations, and the longest time from a heal until all targets served. None: unknown.

    ``rate``: successful operations per second, from the first call to the last return.
    """

    rate: float | None = None
    median_ms: float | None = None
    p99_ms: float | None = None
    recovery_seconds: float | None = None


def measure_run(history: HistoryReader) -> RunFigures:
    """Computes the figures. Latencies count from an operation's scheduled time, as in ``assay.reports.series``."""
    parts = [np.empty(0, dtype=np.int64)]
    calls, answers = [], []
    for batch in history.batches("ops"):
        calls.append(pc.min(batch.column("call")).as_py())
        answers.append(pc.max(batch.column("ret")).as_py())
        ended = batch.filter(pc.equal(batch.column("outcome"), "ok"))
        due = pc.coalesce(ended.column("scheduled"), ended.column("call"))
        parts.append(pc.subtract(ended.column("ret"), due).drop_null().to_numpy(zero_copy_only=False))
    latencies = np.concatenate(parts) / MILLISECOND
    quantiles = np.quantile(latencies, (0.5, 0.99)).round(3).tolist() if len(latencies) else (None, None)
    times: dict[str, dict[int, int]] = {"healed": {}, "recovered": {}}
    for batch in history.batches("faults"):
        for row in batch.select(["id", "phase", "time"]).to_pylist():
            times.get(row["phase"], {})[row["id"]] = row["time"]
    recovered = [time - times["healed"][id] for id, time in times["recovered"].items() if id in times["healed"]]
    first = min((time for time in calls if time is not None), default=0)
    lasted = max((time for time in answers if time is not None), default=first) - first
    return RunFigures(
        rate=round(len(latencies) / (lasted / NANOSECONDS), 3) if lasted > 0 else None,
        median_ms=quantiles[0],
        p99_ms=quantiles[1],
        recovery_seconds=max(recovered) / NANOSECONDS if recovered else None,
    )
