"""Unique ids: an id is handed out at most once (Jepsen's unique-ids).

A workload records itself in ``effects`` as follows (``key`` is the generator's name):

- ``id-generate``: the id is ``value``, or ``name`` if it is text. Both are null if the id is unknown. Only ok rows
  count, because no client got the id of any other row. An operation that takes a range of ids has a row for each id.

Two rows with one id contradict each other at any time, so the check is exact. Ids need not rise; ``objects.monotonic``
checks values that must rise.

:class:`assay.checkers.check.Check` explains the fields of a check, such as ``more`` (the number of further operations,
which are not listed) and ``about`` (the subjects). ``high_cardinality`` tells the engine that a table has nearly one
group per row.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.objects.kinds import declare_family
from assay.checkers.sql_idioms import first_rows_subquery, order_by, row_number, total_of

ID_VIEWS: Final = parse_views("""
    create table ids_generated (high_cardinality) as
    select key, value, name, count(*) as times from effects
    where kind = 'id-generate' and outcome = 'ok' and (value is not null or name is not null)
    group by key, value, name
    """)


ID_DUPLICATE: Final = Check(
    anomaly="id-duplicate",
    meaning="one unique id was handed out more than once",
    violations="select key, value, name, times from ids_generated where times > 1",
    evidence=f"""
        select key, value, name, times, max(case when rank = 1 then op end) as first_op,
            max(case when rank = 2 then op end) as again_op
        from (
            select f.key, f.value, f.name, f.times, e.op,
                {row_number(by="f.key, f.value, f.name", order="e.ret, e.op, e.sub")} as rank
            from {first_rows_subquery("found_id_duplicate", "key, value, name")} f join effects e
                on e.kind = 'id-generate' and e.outcome = 'ok' and f.key = e.key
                and coalesce(f.value = e.value, f.value is null and e.value is null)
                and coalesce(f.name = e.name, f.name is null and e.name is null)) as handed
        where rank <= 2 group by key, value, name, times {order_by("key, value, name")}
        """,
    examined=f"select {total_of('times')} as examined from ids_generated",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{key}: {first_op} got [{name:quoted}|{value}] [first_op={again_op}?twice in one answer at "
    "{first_op:returned}|at {first_op:returned}, and {again_op} got it again at {again_op:returned}][times>2?, and "
    "{times-2} more did].",
    more="{times-2}",  # how many operations are not listed
    about=("[name?|value {value} of {key}]",),  # subjects of a finding
)

UNIQUE_IDS: Final = declare_family("unique-ids", (ID_DUPLICATE,), ID_VIEWS)

ID_ANOMALIES: Final = UNIQUE_IDS.anomalies
