"""Tables over many nights, in SQL on Spark.

- A *cell* is a workload under a nemesis, with or without a defect: one job of a nightly matrix.
- Runs without a verdict are counted separately.
- A defect is *caught* by a run that fails with an anomaly that the zoo demands for it. A failure with other anomalies
  counts as a failure, but catches nothing. For a defect that is in no zoo, any forbidden anomaly suffices.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from assay.checkers.engine import EngineError
from assay.checkers.engine.spark_application import SparkApplication
from assay.harness.nightly import dataset
from assay.harness.nightly.rows import NONE, READ, to_spark_type

Zoo = Mapping[str, tuple[str, ...]]
"""Defect -> anomalies; at least one of them must be reported."""

CAUGHT: Final = "caught"


@dataclass(frozen=True)
class NightTables:
    """Tables by name, in display order; ``night`` is the newest, ``before`` the one before it."""

    night: str
    before: str | None
    tables: Mapping[str, pa.Table]

    @property
    def missed(self) -> list[str]:
        """The defects that no run of the newest night has caught, whether there was one or not."""
        return [row["defect"] for row in self.tables["defects"].to_pylist() if row["state"] != CAUGHT]


def compute_tables(place: Path, zoo: Zoo, master: str | None = None) -> NightTables:
    """Computes the tables. On a cluster, all nodes must see the data set under the same path.

    Raises ``DataSetError`` for a missing or damaged data set, and ``EngineUnavailable`` if Spark is not available.
    """
    dataset.list_parts(place)  # errors are found before Spark is started
    with SparkApplication(master, quick=True) as application:
        return compute_tables_on(application, place, zoo)


def compute_tables_on(application: SparkApplication, place: Path, zoo: Zoo) -> NightTables:
    """Computes the tables on a running Spark application, and leaves it running."""
    with open_session(application, place, zoo) as session:
        newest = [row["night"] for row in session.sql("select distinct night from runs order by night desc").take(2)]
        for name, night in zip(("newest", "before"), (*newest, None), strict=False):
            # A night is the name of a folder, which may be anything: it must not become part of a statement.
            session.table("cells").where(col("night").eqNullSafe(night)).createOrReplaceTempView(name)
        return NightTables(
            night=newest[0],
            before=newest[1] if len(newest) > 1 else None,
            tables={name: session.sql(sql).toArrow() for name, sql in TABLES.items()},
        )


@contextmanager
def open_session(application: SparkApplication, place: Path, zoo: Zoo) -> Iterator[SparkSession]:
    """Opens a session with ``VIEWS`` over the data set, locked against packing. Raises as ``compute_tables`` does."""
    with dataset.lock_dataset(place, alone=False):
        files = dataset.list_parts(place)
        session = application.session(effects=0)
        try:
            _create_views(session, place, files, zoo)
            yield session
        except (PySparkException, Py4JError) as error:
            dataset.require_readable(place)  # raises an error that names the damaged file, if there is one
            raise EngineError(f"Spark could not compute the tables over {place}: {error}") from error


def _create_views(session: SparkSession, place: Path, files: Sequence[Path], zoo: Zoo) -> None:
    columns = ", ".join(f"`{field.name}` {to_spark_type(field.type)}" for field in READ)
    reader = session.read.schema(f"{columns}, `night` string").option("__globPaths__", "false")
    stored = reader.parquet(f"file://{place.resolve()}")
    newer = [(file.stem,) for file in files if file.name != dataset.PACKED]
    if newer and len(newer) < len(files):
        single = session.createDataFrame(newer, "single string")
        superseded = (stored["_metadata.file_name"] == dataset.PACKED) & (stored["run"] == single["single"])
        stored = stored.join(single, superseded, "left_anti")
    stored.createOrReplaceTempView("stored")
    known = [(defect, list(anomalies)) for defect, anomalies in sorted(zoo.items())]
    session.createDataFrame(known, "defect string, expected array<string>").createOrReplaceTempView("zoo")
    for name, sql in VIEWS.items():
        session.sql(f"create or replace temporary view {name} as {sql}")


VIEWS: Final = {
    "runs": f"""
        select s.*, z.expected,
            filter(s.findings, f -> f.forbidden and s.verdict <=> 'fail'
                and (z.expected is null or array_contains(z.expected, f.anomaly))) as hits
        from stored s left join zoo z on s.defect = z.defect and s.defect <> '{NONE}'
        """,
    "cells": """
        select night, workload, nemesis, defect, case
                when count_if(verdict = 'fail') > 0 then 'fail'
                when count_if(verdict is null) > 0 then 'unjudged'
                when count_if(verdict = 'unknown') > 0 then 'unknown'
                else 'pass' end as verdict,
            array_sort(array_distinct(flatten(collect_list(transform(findings, f -> f.anomaly))))) as anomalies
        from runs group by night, workload, nemesis, defect
        """,
    "returns": f"""
        select night, r.fault, e.what, e.took / 1e9 as took from (
            select night, explode(returns) as r from runs where defect = '{NONE}') lateral view
            explode(array(struct(r.change as what, r.changed as took), struct(r.look as what, r.looked as took))) as e
        """,
    "recovered": """
        select night, fault, what, count(*) as times, count_if(took is null) as never,
            percentile(took, 0.5) as median, percentile(took, 0.95) as p95, max(took) as longest
        from returns group by night, fault, what
        """,
}

TABLES: Final = {
    "verdicts": """
        select night, workload, nemesis, defect, count(*) as runs,
            count_if(verdict = 'pass') as pass, count_if(verdict = 'fail') as fail,
            count_if(verdict = 'unknown') as unknown, count_if(verdict is null) as unjudged,
            count_if(verdict = 'pass') / count(*) as pass_share, count_if(verdict = 'fail') / count(*) as fail_share,
            count_if(verdict = 'unknown') / count(*) as unknown_share,
            coalesce(sum(operations), 0) as operations, sum(size(faults)) as faults_meant,
            sum(size(filter(faults, f -> f.injected is not null))) as faults_injected,
            sum(size(filter(faults, f -> coalesce(f.took_effect, f.bit)))) as faults_took_effect
        from runs group by night, workload, nemesis, defect order by night, workload, nemesis, defect
        """,
    "detection": f"""
        select defect, workload, nemesis, count(*) as runs, count_if(size(hits) > 0) as caught,
            count_if(size(hits) > 0) / count(*) as rate,
            count_if(size(hits) = 0 and verdict = 'fail') as failed_otherwise, count_if(verdict is null) as unjudged,
            array_join(array_sort(array_distinct(flatten(collect_list(transform(findings, f -> f.anomaly))))), ', ')
                as reported,
            min(detected) as seconds_min, percentile(detected, 0.5) as seconds_median, max(detected) as seconds_max,
            percentile(since_fault, 0.5) as since_fault_median
        from (select *, array_min(transform(hits, h -> h.time)) / 1e9 as detected,
                array_min(transform(hits, h -> h.since_fault)) / 1e9 as since_fault
            from runs where defect <> '{NONE}')
        group by defect, workload, nemesis order by defect, workload, nemesis
        """,
    "defects": f"""
        select coalesce(z.defect, r.defect) as defect, array_join(z.expected, ', ') as expected,
            coalesce(r.runs, 0) as runs, coalesce(r.caught, 0) as caught,
            case when r.caught > 0 then '{CAUGHT}' when r.runs > 0 then 'missed' else 'not run' end as state
        from zoo z full outer join (
            select defect, count_if(night = n.newest) as runs, count_if(night = n.newest and size(hits) > 0) as caught
            from runs cross join (select max(night) as newest from runs) n
            where defect <> '{NONE}' group by defect) r on z.defect = r.defect
        order by defect
        """,
    "recovery": """
        select *, median / nullif(mean_before, 0) as trend from (
            select *, avg(median) over (partition by fault, what order by night
                rows between unbounded preceding and 1 preceding) as mean_before from recovered)
        order by night, fault, what
        """,
    "changes": """
        select coalesce(n.workload, b.workload) as workload, coalesce(n.nemesis, b.nemesis) as nemesis,
            coalesce(n.defect, b.defect) as defect, coalesce(b.verdict, 'not run') as was,
            coalesce(n.verdict, 'not run') as is_now,
            coalesce(array_join(array_except(n.anomalies, coalesce(b.anomalies, array())), ', '), '') as new_anomalies
        from newest n full outer join before b
            on n.workload = b.workload and n.nemesis = b.nemesis and n.defect = b.defect
        where exists (select 1 from before) and (not n.verdict <=> b.verdict
            or size(array_except(n.anomalies, coalesce(b.anomalies, array()))) > 0)
        order by workload, nemesis, defect
        """,
    "unjudged": """
        select night, folder, workload, nemesis, defect, status, coalesce(problem, '') as problem
        from runs where verdict is null order by night, folder, run
        """,
}
"""Every query ends with an order, so equal data sets give equal tables."""
