"""Unique ids: an id is handed out at most once (Jepsen's unique-ids).

A workload records itself in ``effects`` as follows (``key`` is the generator's name):

- ``id-generate``: the id is ``value``, or ``name`` if it is text; neither if it is unknown. Only ok ones count, because
  an id that no client got belongs to no one. An operation that takes a range of ids has a row for each.

Two rows with one id contradict each other at any time, so the check is exact. Ids need not rise (``objects.monotonic``
checks that values do).
"""

from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, Table, value_of
from assay.checkers.engine import Row
from assay.checkers.objects.kinds import family
from assay.checkers.sql_idioms import first_rows_subquery, order_by, row_number, total_of

IDS: Final = Table(
    "ids_generated",
    """
    select key, value, name, count(*) as times from effects
    where kind = 'id-generate' and outcome = 'ok' and (value is not null or name is not null)
    group by key, value, name
    """,
    fine=True,
)


def _explain_id_duplicate(row: Row, evidence: Evidence) -> Explanation:
    first, again = row["first_op"], row["again_op"]
    handed = row["value"] if row["name"] is None else f"{row['name']!r}"
    others = "" if row["times"] == 2 else f", and {row['times'] - 2} more did"
    if first == again:
        claim = f"{evidence.who(first)} got {handed} twice in one answer at {evidence.returned(first)}{others}"
    else:
        claim = (
            f"{evidence.who(first)} got {handed} at {evidence.returned(first)}, and {evidence.who(again)} got it again "
            f"at {evidence.returned(again)}{others}"
        )
    about = (value_of(row["key"], row["value"]),) if row["name"] is None else ()
    return Explanation(f"{row['key']}: {claim}.", (first, again), row["times"] - 2, about=about)


ID_DUPLICATE: Final = Check(
    anomaly="id-duplicate",
    meaning="one unique id was handed out more than once",
    views=(Table("found_id_duplicate", "select key, value, name, times from ids_generated where times > 1"),),
    evidence=f"""
        select key, value, name, times, max(case when turn = 1 then op end) as first_op,
            max(case when turn = 2 then op end) as again_op
        from (
            select f.key, f.value, f.name, f.times, e.op,
                {row_number(by="f.key, f.value, f.name", order="e.ret, e.op, e.sub")} as turn
            from {first_rows_subquery("found_id_duplicate", "key, value, name")} f join effects e
                on e.kind = 'id-generate' and e.outcome = 'ok' and f.key = e.key
                and coalesce(f.value = e.value, f.value is null and e.value is null)
                and coalesce(f.name = e.name, f.name is null and e.name is null)) as handed
        where turn <= 2 group by key, value, name, times {order_by("key, value, name")}
        """,
    examined=f"select {total_of('times')} as examined from ids_generated",
    explain=_explain_id_duplicate,
)

UNIQUE_IDS: Final = family("unique-ids", (ID_DUPLICATE,), (IDS,))

ID_ANOMALIES: Final = UNIQUE_IDS.anomalies
