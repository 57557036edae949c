"""A broker that runs and answers is registered by the contract's rejoin deadline.

An unregistered broker gets no leadership and its replicas cannot be in sync; other checks do not judge them.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import at_rest_check, claimed, lasting, of_broker
from assay.checkers.sql_idioms import first_of
from assay.checkers.times import seconds


def _absent(row: Row, _: Evidence) -> Explanation:
    claim = (
        f"{row['node']} answered and was not registered from {seconds(row['since'])} to {seconds(row['until'])}, "
        f"although no fault was in force; the contract's deadline is {seconds(row['deadline'])}."
    )
    return claimed(claim, row, of_broker(row["node"]))


UNREGISTERED: Final = at_rest_check(
    anomaly="unregistered",
    meaning="a server that answers was not registered by the deadline",
    views=(
        View(
            "registration_missing",
            """
            select a.look, a.node as key, a.node
            from looks a left join rest_brokers b on b.look = a.look and b.node = a.node
            where a.what = 'answer' and b.node is null
            """,
        ),
        lasting("found_unregistered", "registration_missing", "key, node", "rejoin_deadline"),
    ),
    evidence=first_of("found_unregistered", "key"),
    explain=_absent,
)
