"""A broker that runs and answers is registered by the contract's rejoin deadline.

An unregistered broker gets no leadership and its replicas cannot be in sync; other checks do not judge them.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import at_rest_check, broker_subject, explain_at_rest, lasting_states
from assay.checkers.sql_idioms import select_first
from assay.checkers.times import seconds


def _explain_unregistered(row: Row, _: Evidence) -> Explanation:
    claim = (
        f"{row['node']} answered and was not registered from {seconds(row['since'])} to {seconds(row['until'])}, "
        f"although no fault was in force; the contract's deadline is {seconds(row['deadline'])}."
    )
    return explain_at_rest(claim, row, broker_subject(row["node"]))


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
        lasting_states("found_unregistered", "registration_missing", "key, node", "rejoin_deadline"),
    ),
    evidence=select_first("found_unregistered", "key"),
    explain=_explain_unregistered,
)
