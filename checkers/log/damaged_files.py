"""A log that its own node finds damaged, although no fault has touched a file.

A kill leaves the files as they are, and a power loss takes nothing that was fsynced. So a log never lacks what its node
has noted as durable, and no byte of it fails its checksum. A node that finds otherwise, at a start or at a read, writes
the event ``log-damaged`` (``key``; ``position``: where the good part ends). Runs with a fault that changed files, or
may have, are not judged.
"""

from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, Table, family_of
from assay.checkers.engine import Row
from assay.checkers.sql_idioms import BEGUN, select_first


def _explain_damaged_log(row: Row, _: Evidence) -> Explanation:
    claim = (
        f"{row['node']} found its log of {row['key']} damaged from offset {row['position']} on, although no fault had "
        "touched a file of it."
    )
    return Explanation(claim, (), 0, row["moment"])


DAMAGED_LOG: Final = Check(
    anomaly="damaged-log",
    meaning="a node found its log damaged, although no fault had touched a file",
    views=(
        Table(
            "found_damaged_log",
            f"""
            select e.key, e.node, min(e.position) as position, min(e.time) as moment
            from events e cross join (
                select count(*) as many from faults where coalesce(damages_files, true) and {BEGUN}) f
            where e.event = 'log-damaged' and e.key is not null and f.many = 0
            group by e.key, e.node
            """,
        ),
    ),
    evidence=select_first("found_damaged_log", "key, node"),
    examined="select count(*) as examined from events where event = 'recovered'",
    explain=_explain_damaged_log,
)

DAMAGE: Final = family_of(DAMAGED_LOG, applies="events where event = 'recovered'")
