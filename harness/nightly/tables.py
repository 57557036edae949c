"""Tables over many nights, in SQL that DuckDB and Spark share.

DuckDB computes them in this process. If a Spark master is given, Spark computes them.

- A *cell* is a workload under a nemesis, with or without a defect: one job of a nightly matrix.
- Runs without a verdict are counted separately.
- A run *catches* a defect if it fails with an anomaly that is expected of the defect. A failure with other anomalies
  counts as a failure, but catches nothing. For a defect without a description, any forbidden anomaly suffices.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.engine import DuckDB, Engine, Engines
from assay.checkers.engine.engine_selection import DUCKDB, SPARK
from assay.harness.nightly import dataset
from assay.harness.nightly.dataset_schema import NONE, DefectAnomalies

CAUGHT: Final = "caught"
NESTED: Final = ("findings", "faults", "returns")
"""Columns of a run that become tables of their own, with the ``line`` of the run in ``runs``."""
EXPECTED_SCHEMA: Final = pa.schema({"defect": pa.string(), "expected": pa.string(), "anomaly": pa.string()})
"""A row for each anomaly that is expected of a defect; ``expected`` has all anomalies of the defect."""


@dataclass(frozen=True)
class NightTables:
    """Tables by name, in display order; ``night`` is the newest, ``before`` the one before it."""

    night: str
    before: str | None
    tables: Mapping[str, pa.Table]

    @property
    def missed(self) -> list[str]:
        """The defects that no run of the newest night has caught, including those that no run had."""
        return [row["defect"] for row in self.tables["defects"].to_pylist() if row["state"] != CAUGHT]


def compute_tables(place: Path, defects: DefectAnomalies, master: str | None = None) -> NightTables:
    """Computes the tables by DuckDB, or by Spark if ``master`` is given.

    Raises ``DataSetError`` for a missing or damaged data set, and ``EngineUnavailable`` if Spark is not available.
    """
    dataset.list_parts(place)  # errors are found before Spark is started
    with open_engine(master) as engine:
        return compute_tables_on(engine, place, defects)


@contextmanager
def open_engine(master: str | None) -> Iterator[Engine]:
    """Opens Spark if there is a master, else DuckDB. Raises ``EngineUnavailable``."""
    with Engines(SPARK if master else DUCKDB, spark_master=master) as engines, engines.spark(0) or DuckDB() as engine:
        yield engine


def compute_tables_on(engine: Engine, place: Path, defects: DefectAnomalies) -> NightTables:
    """Computes the tables on this engine, and leaves it open."""
    load_runs(engine, place, defects)
    newest = engine.arrow("select night from nights where age <= 2 order by age").column("night").to_pylist()
    return NightTables(
        night=newest[0],
        before=newest[1] if len(newest) > 1 else None,
        tables={name: engine.arrow(sql) for name, sql in TABLES.items()},
    )


def load_runs(engine: Engine, place: Path, defects: DefectAnomalies) -> None:
    """Loads the tables ``runs`` and ``expectations``, and a table for each column in ``NESTED``. Defines ``VIEWS``."""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    line = 0
    for runs in dataset.read_runs(place):
        lines = pa.array(range(line, line := line + len(runs)), pa.int64())
        parts["runs"].append(runs.drop_columns(NESTED).append_column("line", lines))
        for name in NESTED:
            column = runs.column(name).combine_chunks()
            inner = pa.Table.from_struct_array(pc.list_flatten(column))
            parts[name].append(inner.append_column("line", lines.take(pc.list_parent_indices(column))))
    for name, tables in parts.items():
        engine.load(name, pa.concat_tables(tables))
    expectations = [
        {"defect": defect, "expected": ", ".join(anomalies), "anomaly": anomaly}
        for defect, anomalies in defects.items()
        for anomaly in anomalies or (None,)
    ]
    engine.load("expectations", pa.Table.from_pylist(expectations, EXPECTED_SCHEMA))
    for name, sql in VIEWS.items():
        engine.view(name, sql)


VIEWS: Final = {
    # `age` 1 is the newest night.
    "nights": """
        select night, row_number() over (order by night desc) as age from (select distinct night from runs) as known
        """,
    # Findings with their runs.
    "found": """
        select f.line, f.anomaly, f.forbidden, f.time, f.since_fault, r.workload, r.nemesis, r.defect, r.verdict, t.age
        from findings f join runs r on f.line = r.line join nights t on t.night = r.night
        """,
    # Runs that caught their defect, with the seconds to the first finding of it. Any forbidden anomaly catches a defect
    # without a description, for which `k.defect` is null.
    "hits": f"""
        select f.line, min(f.time) / 1e9 as seconds, min(f.since_fault) / 1e9 as since_fault
        from found f
            left join (select distinct defect from expectations) k on k.defect = f.defect and f.defect <> '{NONE}'
            left join expectations z on z.defect = f.defect and z.anomaly = f.anomaly
        where f.forbidden and f.verdict = 'fail' and (k.defect is null or z.anomaly is not null)
        group by f.line
        """,
    # Runs, with the line of the hit if they caught their defect.
    "results": """
        select r.*, t.age, h.line as hit, h.seconds, h.since_fault
        from runs r join nights t on t.night = r.night left join hits h on h.line = r.line
        """,
    # The worst verdict of each cell in each of the two newest nights.
    "cells": """
        select age, workload, nemesis, defect, case
                when count(*) filter (where verdict = 'fail') > 0 then 'fail'
                when count(*) filter (where verdict is null) > 0 then 'unjudged'
                when count(*) filter (where verdict = 'unknown') > 0 then 'unknown'
                else 'pass' end as verdict
        from results where age <= 2 group by age, workload, nemesis, defect
        """,
    # Anomalies that a cell has in the newest night, and not in the night before.
    "new_anomalies": """
        select workload, nemesis, defect, concat_ws(', ', array_sort(array_agg(anomaly))) as anomalies from (
            select workload, nemesis, defect, anomaly from found
            where age <= 2 group by workload, nemesis, defect, anomaly having max(age) = 1) as fresh
        group by workload, nemesis, defect
        """,
    # Per heal and key, the seconds to the first write (`change`) and the first read (`look`) that succeeded, in runs
    # without a defect. A row of `returns` is a ``RecoveryRow``.
    "waits": f"""
        select r.night, b.fault, b.change, b.changed / 1e9 as changed, b.look, b.looked / 1e9 as looked
        from returns b join runs r on b.line = r.line where r.defect = '{NONE}'
        """,
    # Statistics of these waits; `what` is the kind of the operation.
    "recovered": """
        select night, fault, what, count(*) as times, count(*) - count(took) as never, median(took) as median,
            round(percentile_cont(0.95) within group (order by took), 9) as p95, max(took) as longest
        from (select night, fault, change as what, changed as took from waits
            union all select night, fault, look, looked from waits) as each
        group by night, fault, what
        """,
}

TABLES: Final = {
    "verdicts": """
        select night, workload, nemesis, defect, runs, pass, fail, "unknown", unjudged, pass / runs as pass_share,
            fail / runs as fail_share, "unknown" / runs as unknown_share, operations, faults_meant, faults_injected,
            faults_took_effect
        from (
            select night, workload, nemesis, defect, count(*) as runs,
                count(*) filter (where verdict = 'pass') as pass, count(*) filter (where verdict = 'fail') as fail,
                count(*) filter (where verdict = 'unknown') as "unknown",
                count(*) filter (where verdict is null) as unjudged,
                coalesce(cast(sum(operations) as bigint), 0) as operations,
                coalesce(cast(sum(meant) as bigint), 0) as faults_meant,
                coalesce(cast(sum(injected) as bigint), 0) as faults_injected,
                coalesce(cast(sum(took_effect) as bigint), 0) as faults_took_effect
            from runs r left join (
                select line, count(*) as meant, count(injected) as injected,
                    count(*) filter (where took_effect) as took_effect
                from faults group by line) f on f.line = r.line
            group by night, workload, nemesis, defect) as counted
        order by night, workload, nemesis, defect
        """,
    "detection": f"""
        select r.defect, r.workload, r.nemesis, count(*) as runs, count(hit) as caught, count(hit) / count(*) as rate,
            count(*) filter (where hit is null and verdict = 'fail') as failed_otherwise,
            count(*) filter (where verdict is null) as unjudged, coalesce(min(anomalies), '') as reported,
            min(seconds) as seconds_min, median(seconds) as seconds_median, max(seconds) as seconds_max,
            median(since_fault) as since_fault_median
        from results r left join (
            select workload, nemesis, defect, concat_ws(', ', array_sort(array_agg(distinct anomaly))) as anomalies
            from found group by workload, nemesis, defect) a
            on a.workload = r.workload and a.nemesis = r.nemesis and a.defect = r.defect
        where r.defect <> '{NONE}'
        group by r.defect, r.workload, r.nemesis order by r.defect, r.workload, r.nemesis
        """,
    "defects": f"""
        select coalesce(z.defect, r.defect) as defect, z.expected, coalesce(r.runs, 0) as runs,
            coalesce(r.caught, 0) as caught,
            case when r.caught > 0 then '{CAUGHT}' when r.runs > 0 then 'missed' else 'not run' end as state
        from (select distinct defect, expected from expectations) z full outer join (
            select defect, count(*) filter (where age = 1) as runs, count(hit) filter (where age = 1) as caught
            from results where defect <> '{NONE}' group by defect) r on z.defect = r.defect
        order by defect
        """,
    "recovery": """
        select *, median / nullif(mean_before, 0) as trend from (
            select *, avg(median) over (partition by fault, what order by night
                rows between unbounded preceding and 1 preceding) as mean_before from recovered) as compared
        order by night, fault, what
        """,
    "changes": """
        select coalesce(n.workload, b.workload) as workload, coalesce(n.nemesis, b.nemesis) as nemesis,
            coalesce(n.defect, b.defect) as defect, coalesce(b.verdict, 'not run') as was,
            coalesce(n.verdict, 'not run') as is_now, coalesce(a.anomalies, '') as new_anomalies
        from (select * from cells where age = 1) n full outer join (select * from cells where age = 2) b
                on n.workload = b.workload and n.nemesis = b.nemesis and n.defect = b.defect
            left join new_anomalies a
                on a.workload = n.workload and a.nemesis = n.nemesis and a.defect = n.defect
        where exists (select 1 from nights where age = 2)
            and (n.verdict is distinct from b.verdict or a.anomalies is not null)
        order by workload, nemesis, defect
        """,
    "unjudged": """
        select night, folder, workload, nemesis, defect, status, coalesce(problem, '') as problem
        from runs where verdict is null order by night, folder, run
        """,
}
"""Every query ends with an order, so equal data sets give equal tables."""
