"""The family of checks of snapshots (``looks``): after a run, the system must reach its goal states by deadlines."""

from typing import Final

from assay.checkers.check import Family
from assay.checkers.engine import Engine
from assay.checkers.judging.contract import SNAPSHOT_DEADLINES
from assay.checkers.liveness.convergence import (
    DISOBEYED_SETTINGS,
    DISOBEYED_STATE,
    LATE_FLUSH,
    LATE_HIGH_WATERMARK,
    NO_REJOIN,
    STALE_METADATA,
    UNREGISTERED,
)
from assay.checkers.liveness.deletion import UNDELETED_TOPIC
from assay.checkers.liveness.partition_state_churn import RESTLESS_STATE
from assay.checkers.liveness.reassignment import UNFINISHED_MOVE
from assay.checkers.liveness.retention import RETENTION_UNDONE
from assay.checkers.liveness.snapshots import REST_VIEWS
from assay.checkers.times import format_seconds, shorten_times


def _find_short_inspection(engine: Engine) -> list[str]:
    """Returns a reason not to pass if the system still had unfinished work at the last snapshot (``unsettled``), and
    the snapshots do not span the longest deadline."""
    # `rest_looks`: the snapshots that count, from `time` to `ended` each
    (row,) = engine.rows(
        f"""
        select min(l.ended) as since, max(l.time) as until, max(d.deadline) as deadline,
            max(case when l.look = e.look then l.unsettled end) as unsettled
        from rest_looks l cross join (select max(look) as look from rest_looks) e
            cross join (select greatest({", ".join(SNAPSHOT_DEADLINES)}) as deadline from deadlines_declared) d
        """
    )
    if not row["unsettled"] or row["until"] - row["since"] >= row["deadline"]:
        return []
    return [
        shorten_times(
            f"some work was still unfinished at {format_seconds(row['until'])}, and the system was inspected for only "
            f"{format_seconds(row['until'] - row['since'])}, not for the contract's {format_seconds(row['deadline'])}"
        )
    ]


LIVENESS: Final = Family(
    "rest",
    checks=(
        UNFINISHED_MOVE,
        UNREGISTERED,
        NO_REJOIN,
        DISOBEYED_STATE,
        DISOBEYED_SETTINGS,
        STALE_METADATA,
        LATE_HIGH_WATERMARK,
        LATE_FLUSH,
        UNDELETED_TOPIC,
        RETENTION_UNDONE,
        RESTLESS_STATE,
    ),
    applies="select count(*) as examined from looks where what = 'look'",
    views=REST_VIEWS,
    prepare=_find_short_inspection,  # creates no tables; it only returns reasons not to pass
    about_servers=True,  # it judges no operation of a client, so a run that only this family can judge is unknown
)

LIVENESS_ANOMALIES: Final = LIVENESS.anomalies
"""The anomalies of this family: goal states that an inspected system did not reach after a run."""
