"""State of the servers at the moment of an acknowledgement: each in-sync replica must have the record.

In the simulation, the harness writes these rows into ``looks``, with look 0 because they belong to no look:

- ``inspected``: the number of ``acknowledgements`` at which it inspected the replicas.
- ``lacking``: the log of an in-sync replica ended (``log_end``) at or below an acknowledged offset (``position``). A
  replica counts only if its broker still has the registration under which the replica joined.
- ``undurable``: an in-sync replica had the record only in memory (``log_end``: the end of its records on disk),
  although the topic is flushed with every message.

Nothing is reported after a fault that changed files. If the contract allows the loss of unflushed records, nothing is
reported after a power loss either.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import OFFSET, Check, family_of
from assay.checkers.sql_idioms import HAS_BEGUN, select_first

EARLY_ACKNOWLEDGEMENT: Final = Check(
    anomaly="early-acknowledgement",
    meaning="a send was acknowledged before every member of the in-sync set had the record, or had it durably",
    violations=f"""
        select l.key, l.what, l.node, min(l.position) as position, min(l.log_end) as log_end,
            min(l.time) as moment
        from looks l cross join log_declared d cross join ( -- d: what the contract declares about logs
            select count(case when coalesce(damages_files, true) then 1 end) as damages,
                count(case when coalesce(loses_unsynced, true) then 1 end) as losses
            from faults where {HAS_BEGUN}) f
        where l.what in ('lacking', 'undurable') and f.damages = 0 and (f.losses = 0 or d.unflushed = 0)
        group by l.key, l.what, l.node
        """,
    evidence=select_first("found_early_acknowledgement", "key, what, node"),
    examined="select coalesce(sum(acknowledgements), 0) as examined from looks where what = 'inspected'",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="Offset {position} of {key} was acknowledged by {moment:time}, when [what=lacking?the log of {node}, a "
    "member of the in-sync set, ended at {log_end}|{node}, a member of the in-sync set, surely had only the "
    "records below {log_end} on disk, and the rest in memory, although each message is flushed].",
    time="moment",
    about=("offset {position} of {key}, {what}", OFFSET),  # subjects of a finding
    explained_by=("inconsistent-offset", "lost-write", "vanished"),
    seen_again=True,  # once for each replica that lacks the record
    optional=True,  # only the simulation has the rows
)

INSPECTION: Final = family_of(EARLY_ACKNOWLEDGEMENT, applies="looks where what = 'inspected'", about_servers=True)
