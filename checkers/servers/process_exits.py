"""Unexpected exits: a server's process ended, although no fault ended it and no fault had changed a file before.

The harness writes these rows into ``looks``, the table of snapshots, with look 0 because they belong to no snapshot:

- ``process``: a server whose process ran after every fault was healed.
- ``ended``: a server whose process did not run after every fault was healed.
- ``crashed``: a process that crashed at ``time`` by its own error. Only the simulation reports this.

A process that a fault ended, and that the harness could not restart, has not ended by itself. So a missing process
proves nothing if a fault that ends processes struck it and was never healed. If the fault's rows do not name its
targets, the fault may have struck any server. A crash during a restart does count.

A server may refuse to run on damaged files. So nothing is proved after a fault has changed any file, on any node.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of
from assay.checkers.judging.contract import UNEXPECTED_EXIT
from assay.checkers.sql_idioms import STRUCK, select_first

ENDED_BY_ITSELF: Final = Check(
    anomaly=UNEXPECTED_EXIT,
    meaning="a server's process ended by itself",
    # A sidecar's row names its node and its process (`n1/proxy`), but faults name only the node (`whose`).
    violations=f"""
        with faults_done as (
            select id, max(case when coalesce(damages_files, true) then 1 else 0 end) as damages,
                max(case when coalesce(ends_process, true) then 1 else 0 end) as ends,
                max(case when phase = 'healed' then 1 else 0 end) as healed,
                max(case when {STRUCK} then 1 else 0 end) as began
            from faults group by id),
        unhealed as (
            select f.targets from faults f join faults_done d on f.id = d.id
            where d.began = 1 and d.ends = 1 and d.healed = 0 and {STRUCK} group by f.targets),
        excused as (
            select s.node from (
                select node, case when instr(node, '/') > 0 then substr(node, 1, instr(node, '/') - 1) else node end
                    as whose
                from looks where what = 'ended' group by node) s
                cross join unhealed u
            where u.targets not like '["%' or instr(u.targets, concat('"', s.whose, '"')) > 0 group by s.node)
        select p.key, p.moment, p.crashed from (
            select l.node as key, min(l.time) as moment,
                max(case when l.what = 'crashed' then 1 else 0 end) as crashed
            from looks l left join excused x on l.node = x.node
                cross join (select count(case when began = 1 and damages = 1 then 1 end) as damaged
                    from faults_done) files
            where files.damaged = 0 and (l.what = 'crashed' or (l.what = 'ended' and x.node is null))
            group by l.node) p
        """,
    evidence=select_first("found_unexpected_exit", "key"),
    examined="select count(*) as examined from looks where what in ('process', 'ended', 'crashed')",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="The process of {key} [crashed=1?crashed at {moment:time}, although|had ended by {moment:time}, although "
    "no fault was in force that ends processes, and] no fault had damaged what was on its disk; what it printed is "
    "among the run's logs.",
    time="moment",
    optional=True,  # a run without data for it may pass
)

PROCESSES: Final = family_of(
    ENDED_BY_ITSELF, applies="looks where what in ('process', 'ended', 'crashed')", about_servers=True
)
