"""Time of DuckDB, and of Spark in local[2], to compute the trends and the tables of many nights.

For comparison, the time of DuckDB to compute only medians is printed.

The data set is synthetic: one packed file per night, in which each cell has one run with random figures of a constant
distribution. ``peak``: resident bytes of this process, Spark's JVM and its Python workers.

    PYTHONPATH=tests python benchmarks/trends.py [--nights 1000] [--cells 500] [--engines duckdb,spark] [--keep DIR]
"""

from __future__ import annotations

import random
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assay.harness.nightly import tables, trends
from assay.harness.nightly.dataset import PACKED, PARTITION
from assay.harness.nightly.dataset_schema import SCHEMA

from figures import Output, make_parser, names, track_peak_memory
from helpers.night_runs import ZOO, cells_of_a_night

NEWEST = date(2026, 11, 24)
MEDIANS = """
    select night, workload, nemesis, defect, count_if(verdict = 'fail'), median(operations), median(rate),
        median(median_ms), median(p99_ms), median(recovery_seconds)
    from read_parquet('{place}/*/*.parquet', hive_partitioning = true) group by all
    """


def write_data_set(place: Path, nights: int, cells: int) -> None:
    """Writes the data set; figures have an equal distribution on every night."""
    base, chance = cells_of_a_night(random.Random(1), cells), np.random.default_rng(1)
    for number in range(nights):
        night = NEWEST - timedelta(days=nights - 1 - number)
        found = base.set_column(
            SCHEMA.get_field_index("run"), "run", pa.array([f"{number:08x}{cell:08x}" for cell in range(cells)])
        )
        for name in ("rate", "median_ms", "p99_ms", "recovery_seconds"):
            drawn = pa.array(chance.lognormal(sigma=0.2, size=cells).round(4))
            found = found.set_column(SCHEMA.get_field_index(name), name, drawn)
        folder = place / f"{PARTITION}{night.isoformat()}"
        folder.mkdir(parents=True)
        pq.write_table(found, folder / PACKED)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--nights", type=int, default=1_000)
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--engines", type=names, default=["duckdb", "spark"])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the data set there, and leave it")
    options = parser.parse_args()
    out = Output(options.json)
    with tempfile.TemporaryDirectory() as folder:
        place = options.keep or Path(folder)
        write_data_set(place, options.nights, options.cells)
        figures: dict[str, float] = {"nights": options.nights, "cells": options.cells}
        figures["medians"] = time_medians(place)
        for name in options.engines:
            measured = measure(place, "local[2]" if name == "spark" else None)
            figures |= {f"{name}_{figure}": value for figure, value in measured.items()}
    for name, value in figures.items():
        out.text(f"{name:16} {value:,.1f}")
    out.figures(figures)


def measure(place: Path, master: str | None) -> dict[str, float]:
    """Returns seconds, and the numbers of rows, tested figures and trends found."""
    began = time.monotonic()
    with track_peak_memory() as peak, tables.open_engine(master) as engine:
        started = time.monotonic()
        found = trends.compute_trends_on(engine, place, ZOO)
        middle = time.monotonic()
        rows = tables.compute_tables_on(engine, place, ZOO).tables
        ended = time.monotonic()
    return {
        "start": started - began, "trends": middle - started, "tables": ended - middle,
        "rows": sum(map(len, rows.values())), "asked": found.asked, "worse": len(found.worse),
        "peak": peak.bytes,
    }  # fmt: skip


def time_medians(place: Path) -> float:
    """Returns seconds."""
    with duckdb.connect(config={"threads": 2}) as peer:
        began = time.monotonic()
        peer.sql(MEDIANS.format(place=place)).to_arrow_table()
        return time.monotonic() - began


if __name__ == "__main__":
    main()
