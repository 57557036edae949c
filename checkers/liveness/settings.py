"""A live replica applies a topic's changed settings by the contract's obedience deadline.

The check compares fingerprints: of the settings in ZooKeeper merged over the cluster's own, and of those that the
replica reports. A change that is announced while an earlier one is being read must not be lost.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import (
    at_rest_check,
    broker_subject,
    explain_at_rest,
    lasting_states,
    node_subject,
)
from assay.checkers.log.incarnations import extract_topic
from assay.checkers.sql_idioms import select_first
from assay.checkers.times import seconds


def _explain_disobeyed_settings(row: Row, _: Evidence) -> Explanation:
    claim = (
        f"{row['node']} did not go by the settings that {row['topic']} has in ZooKeeper, with its replica of "
        f"{row['key']}, from {seconds(row['since'])} to {seconds(row['until'])}, and no fault was in force; the "
        f"contract's deadline is {seconds(row['deadline'])}."
    )
    about = (node_subject(row["topic"], row["node"]), broker_subject(row["node"]))
    return explain_at_rest(claim, row, *about)


DISOBEYED_SETTINGS: Final = at_rest_check(
    anomaly="disobeyed-settings",
    meaning="a replica did not go by its topic's settings by the deadline",
    views=(
        View(
            "settings_lacking",
            f"""
            select r.look, r.key, r.node, t.key as topic, t.settings
            from looks r
                join looks t on t.look = r.look and t.what = 'topic' and t.key = {extract_topic("r.key")}
                left join rest_busy m on m.look = r.look and m.key = r.key
            where r.what = 'role' and r.settings <> t.settings and m.key is null
            """,
        ),
        lasting_states(
            "found_disobeyed_settings", "settings_lacking", "key, node, topic, settings", "obedience_deadline"
        ),
    ),
    evidence=select_first("found_disobeyed_settings", "key, node"),
    explain=_explain_disobeyed_settings,
    explained_by=("unregistered",),
    seen_again=True,
)
