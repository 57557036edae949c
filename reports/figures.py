"""``figures.json``: what a run measured, small enough that the page of a store reads it of thousands of runs."""

from typing import Final

import msgspec
import numpy as np

from assay.harness.core.history import HistoryReader

FIGURES: Final = "figures.json"
MILLISECOND: Final = 1_000_000
NANOSECONDS: Final = 1_000_000_000


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of successful operations; the longest time from a heal until all targets served. None: not known."""

    median_ms: float | None = None
    p99_ms: float | None = None
    recovery_seconds: float | None = None


def figures(history: HistoryReader) -> RunFigures:
    """Latency counts from when an operation was due, as in ``assay.reports.series``."""
    latencies: list[float] = []
    for batch in history.batches("ops"):
        calls = zip(*(batch.column(name).to_pylist() for name in ("outcome", "scheduled", "call", "ret")), strict=True)
        latencies += [
            ret - (call if due is None else due) for outcome, due, call, ret in calls if outcome == "ok" and ret
        ]
    times: dict[str, dict[int, int]] = {"healed": {}, "recovered": {}}
    for batch in history.batches("faults"):
        for row in batch.select(["id", "phase", "time"]).to_pylist():
            times.get(row["phase"], {})[row["id"]] = row["time"]
    recovered = [time - times["healed"][id] for id, time in times["recovered"].items() if id in times["healed"]]
    median, p99 = np.quantile(latencies, (0.5, 0.99)) / MILLISECOND if latencies else (None, None)
    return RunFigures(
        median_ms=None if median is None else round(float(median), 3),
        p99_ms=None if p99 is None else round(float(p99), 3),
        recovery_seconds=max(recovered) / NANOSECONDS if recovered else None,
    )
