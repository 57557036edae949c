"""Coverage: whether enough happened for a pass, and whether the system recovered after each fault.

A run passes only if all of these hold. Each that does not hold is a reason for ``unknown``:

- Every intended fault was injected and took effect. A step of a schedule may yield to active faults, as the steps of
  the random mix do. A fault that was not injected for this reason is ignored if any other fault took effect. A kind of
  fault that took effect ten times has tested the system. Further faults of that kind without a target or an effect are
  warnings, unless they are more than those that took effect.
- Enough operations succeeded under faults (:mod:`assay.checkers.judging.disturbance`) and after the last heal.
- Every check had data.
- The drain (the last reads) reached the sentinel (the last record sent) in every partition.

The module finds one anomaly, ``no-recovery``: clients kept sending to a key or polling it after a heal, and no new
fault disturbed them. Yet no send was acknowledged, or no poll reached the end, within the contract's deadline. A new
fault counts from the earliest time at which it may have begun. A key that was first tried just before the deadline,
such as by the first reads of a drain, is exempt.

*Reaching the end*: a poll counts if it was called after the heal and ended ok. Its end offset must be above all offsets
acknowledged before the heal, and above the first offset acknowledged after the heal. So a reader that makes no progress
does not count. If the drain itself ended below this offset, records are missing. Then it is enough to reach the end of
the drain, because the loss checks report the missing records. A register has recovered after the first acknowledged
write or CAS, and the first answered read.

``log_sends`` has the sends to logs, and ``log_settled`` the end that the drain of each log reached (``log.views``).
``register_rows`` has the operations on registers (``register.views``), and ``effect_kinds`` the number of effects by
key and kind.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from assay.checkers.engine import INFINITY, Engine, Row
from assay.checkers.judging.contract import NO_RECOVERY, Contract
from assay.checkers.judging.disturbance import ADVICE_IF_LATE, FaultTimes, find_silences
from assay.checkers.judging.health import Health, advise_on_timeouts, measure_health
from assay.checkers.judging.verdict import Finding
from assay.checkers.sql_idioms import ROWS_SO_FAR, extract_topic, order_by, strip_incarnation
from assay.checkers.times import format_seconds, shorten_times
from assay.harness.core.printable import count_noun

NO_RECOVERY_MEANING: Final = "after a fault was healed, service did not come back within the deadline"
NO_RECOVERY_UNCLAIMED: Final = "it is judged by the first success after each heal, and names the slowest one in a note"
"""Why the check counts no claims: a clause."""

MOST_SLOW: Final = 20
"""Maximum number of recoveries that the note of the check names."""
_WITHOUT_SUCCESS: Final = (
    "('observe-begin', 'observe-end', 'seek', 'reset', 'start', 'end', 'drained', 'queue-drained', 'assign', 'revoke', "
    "'lost', 'idle')"
)
"""Kinds of effects that do not count as a success, such as an empty poll or a request for the log's end."""

# Counts the successes that were called and returned in an interval.
_SUCCEEDED: Final = "select count(*) as examined from successes where call >= {begin} and ret <= {end}"


def _at_work(begin: int, end: int, patience: int) -> str:
    """Returns SQL: the operation was called, returned or pending in this interval.

    An operation without a known return counts as pending for ``patience`` nanoseconds.
    """
    return f"call <= {end} and (call >= {begin} or ret >= {begin} or (ret is null and call >= {begin - patience}))"


@dataclass(frozen=True)
class RecoverySubject:
    """Subject of recovery: a log or a register.

    - ``write``, ``read``: names of an operation that writes to the subject, and of one that reads it
    - ``write_clause``, ``read_clause``: a clause of a finding that names a successful operation
    """

    write: str
    read: str
    write_clause: str
    read_clause: str


@dataclass(frozen=True)
class KeyRecovery:
    """Recovery of one key after one heal. Delays are nanoseconds until the first write or read that counts."""

    subject: RecoverySubject
    fault: FaultTimes
    key: str
    write_delay: int | None
    read_delay: int | None


@dataclass(frozen=True)
class Coverage:
    """Result of the measurement.

    ``reasons``: reasons not to pass. ``overdue``: findings of ``no-recovery``. ``recoveries``: one per key and heal
    with data. ``warnings``: about faults, and no reasons.
    """

    reasons: tuple[str, ...]
    overdue: tuple[Finding, ...]
    recoveries: tuple[KeyRecovery, ...]
    warnings: tuple[str, ...] = ()


def describe_slowest(recoveries: tuple[KeyRecovery, ...]) -> str | None:
    """Returns each fault's slowest key in words: ``fault 1 (partition): send 0.412 s, poll 1.020 s after the heal``.

    If there are more than ``MOST_SLOW``, only the slowest are named.
    """
    found: dict[tuple[int, str], list[KeyRecovery]] = {}
    for recovery in recoveries:
        found.setdefault((recovery.fault.id, recovery.subject.write), []).append(recovery)
    groups = list(found.values())
    if len(groups) > MOST_SLOW:
        slowest = {id(group) for group in sorted(groups, key=_find_longest)[-MOST_SLOW:]}
        groups = [group for group in groups if id(group) in slowest]
    lines = [
        f"fault {one.fault.id} ({one.fault.name}): "
        f"{one.subject.write} {_describe_longest([recovery.write_delay for recovery in group])}, "
        f"{one.subject.read} {_describe_longest([recovery.read_delay for recovery in group])} after the heal"
        for group in groups
        for one in group[:1]
    ]
    if len(groups) < len(found):
        lines.append(f"{len(found) - len(groups)} others recovered sooner")
    return "; ".join(map(shorten_times, lines)) or None


def _find_longest(group: list[KeyRecovery]) -> int:
    """Returns the longest time of recovery; ``INFINITY`` if a key did not recover."""
    return max(INFINITY if time is None else time for one in group for time in (one.write_delay, one.read_delay))


def _describe_longest(times: list[int | None]) -> str:
    known = [time for time in times if time is not None]
    return "never" if len(known) < len(times) else format_seconds(max(known))


def measure_coverage(
    engine: Engine, contract: Contract, faults: list[FaultTimes], *, ended: bool, health: Health | None = None
) -> Coverage:
    """Returns the coverage. ``faults`` has all faults of the history.

    ``ended``: the run came to its own end, so its deadlines count. ``health``: given if the run can be repeated; then
    reasons also say why operations failed, and what helps. Needs the views of the log and register families.
    """
    if not ended:  # an interruption cuts faults short, whatever the plan was
        faults = [replace(fault, delay=0.0, planned_seconds=None) for fault in faults]
    untested, warnings = _find_fault_reasons(faults, ended=ended)
    reasons = [
        *untested,
        *_find_operation_reasons(engine, contract, faults, health, ended=ended),
        *_find_drain_reasons(engine),
    ]
    recoveries: list[KeyRecovery] = []
    overdue: list[Finding] = []
    if ended and any(fault.healed is not None for fault in faults):
        _make_recovery_tables(engine, contract.deadline)
        found = _group_by_fault(engine.rows(_RECOVERIES))
        last = _count(engine, "select coalesce(max(coalesce(ret, call)), 0) as examined from effects")
        for fault in faults:
            if fault.healed is not None:
                of_fault, late = _find_recoveries(contract, faults, fault, fault.healed, found.get(fault.id, ()), last)
                recoveries += of_fault
                overdue += late
    return Coverage(tuple(map(shorten_times, reasons)), tuple(overdue), tuple(recoveries), tuple(warnings))


RUN_ENDED: Final = "the run ended first"
"""The words of a run for a fault that waited in vain until the end of the main phase."""
ENOUGH_FAULTS: Final = 10
"""A kind of fault that took effect this often has tested the system. An hour of the mix has a thousand faults, and some
of them always find no server that is free, or no packet to drop."""


def _find_fault_reasons(faults: list[FaultTimes], *, ended: bool = True) -> tuple[list[str], list[str]]:
    """Returns the reasons not to pass, and the warnings about kinds of faults that took effect often enough.

    ``ended``: the run came to its own end, so it left faults out for another reason than an interruption.
    """
    effective = Counter(fault.name for fault in faults if fault.took_effect)
    ineffective = Counter(fault.name for fault in faults if _had_no_effect(fault))
    tested = {name for name, count in effective.items() if count >= max(ENOUGH_FAULTS, ineffective[name])}
    warnings = [
        f"{name}: {count_noun(count, 'fault')} found no target or had no effect, {effective[name]} took effect"
        for name, count in sorted(ineffective.items())
        if name in tested
    ]
    untested = [fault for fault in faults if not (fault.name in tested and _had_no_effect(fault))]
    never = _explain_missing_injection(faults) if ended else ""
    return _list_fault_reasons(untested, never, any_took_effect=bool(effective)), warnings


def _had_no_effect(fault: FaultTimes) -> bool:
    """Returns whether the fault never began, or was healed without an effect.

    A fault that began and was not healed may still be active, also if its injection failed.
    """
    if fault.has_begun and fault.healed is None:
        return False
    return not fault.took_effect and not (fault.injected is None and fault.hindered)


def _list_fault_reasons(faults: list[FaultTimes], never: str, *, any_took_effect: bool) -> list[str]:
    """Returns a reason for each fault that did not go as intended.

    ``never``: a clause about faults whose turn never came.
    """
    reasons = []
    for fault in faults:
        name = f"fault {fault.id} ({fault.name})"
        if fault.injected is None and fault.hindered and any_took_effect:
            continue
        if fault.injected is None:
            clause = never if fault.why is None else f": {fault.why}"
            if RUN_ENDED in clause:
                clause += "; a longer --time-limit leaves it time"
            reasons.append(f"{name} was intended but never injected{clause}")
        elif fault.healed is None:
            reasons.append(f"{name} was injected at {format_seconds(fault.injected)} but never healed")
        elif not fault.took_effect:
            reasons.append(
                f"{name} was injected at {format_seconds(fault.injected)}, but nothing shows that it took effect"
                + "".join(f"; {clause}" for clause in (fault.why, fault.describe_lateness()) if clause)
            )
        elif fault.failed:
            reasons.append(f"{name} failed in part (see faults)" + ("" if fault.why is None else f": {fault.why}"))
    return reasons


def _explain_missing_injection(faults: list[FaultTimes]) -> str:
    """Returns a clause about faults whose turn had not come when the main phase ended, with advice."""
    if any(fault.describe_lateness() for fault in faults):
        return f": the main phase ended before its turn; {ADVICE_IF_LATE}"
    return ": the main phase ended before its turn; let the workload last until the --time-limit"


def make_successes(engine: Engine, *, materialized: bool = True, by_outcome: bool = False) -> None:
    """Creates the relation ``successes``: operations (``op``, ``call``, ``ret``) that wrote or read a value.

    ``materialized``: creates a table instead of a view, for several reads. ``by_outcome``: includes all operations that
    ended ok, for a history without effects.
    """
    make = engine.table if materialized else engine.view
    if by_outcome:
        make("successes", "select \"index\" as op, call, ret from ops where outcome = 'ok'")
        return
    make(
        "successes",
        "select op, min(call) as call, min(ret) as ret from effects "
        f"where outcome = 'ok' and ret is not null and kind not in {_WITHOUT_SUCCESS} group by op",
    )


def _find_operation_reasons(
    engine: Engine, contract: Contract, faults: list[FaultTimes], health: Health | None, *, ended: bool
) -> list[str]:
    by_outcome = contract.model is not None and _count(engine, "select count(*) as examined from effect_kinds") == 0
    make_successes(engine, materialized=bool(faults), by_outcome=by_outcome)
    reasons = []
    # If the first operations of the history are enough, the others need not be counted.
    total = _count(engine, f"select count(*) as examined from successes where op < {100 * contract.minimum_operations}")
    if total < contract.minimum_operations:
        total = _count(engine, "select count(*) as examined from successes")
    if total < contract.minimum_operations:
        few = f"only {count_noun(total, 'operation')} succeeded, the contract asks for {contract.minimum_operations}"
        reasons.append(few if health is None else f"{few}; {health.advise(ended=ended)}")
    patience = contract.failover_nanoseconds
    reasons += find_silences(
        faults,
        contract,
        lambda begin, end: _count(engine, _SUCCEEDED.format(begin=begin, end=end)),
        lambda begin, end: _count(
            engine, f"select count(*) as examined from ops where {_at_work(begin, end, patience)}"
        ),
        lambda begin, end: _describe_failures(measure_health(engine, contract, _at_work(begin, end, patience))),
    )
    heals = [fault.healed for fault in faults if fault.healed is not None]
    if heals:
        after = _count(engine, f"select count(*) as examined from successes where call >= {max(heals)}")
        if after < contract.minimum_after_heal:
            advice = ""
            if health is not None:
                since = measure_health(engine, contract, f"call >= {max(heals)}")
                advice = f"; {since.advise(ended=ended)}"
            reasons.append(
                f"only {count_noun(after, 'operation')} succeeded after the last heal at {format_seconds(max(heals))}, "
                f"the contract asks for {contract.minimum_after_heal}{advice}"
            )
    return reasons


def _describe_failures(health: Health) -> str:
    failures = health.describe_failures()
    return failures + advise_on_timeouts(health.all_errors) if failures else ""


def _find_drain_reasons(engine: Engine) -> list[str]:
    """Returns a reason for each partition in which the drain did not reach the sentinel, but names at most ten.

    The drain reached the sentinel if it recorded `drained`, or if one of its polls returned the sentinel. Topics that
    the run created may be deleted by its end, and are not drained.
    """
    # Logs that the run did not create, and whose drain did not record the sentinel below its end.
    rows = engine.rows(
        f"""
        select k.key, t.settled from (
            select key from effect_kinds where kind in ('append', 'observe', 'observe-begin') group by key) k
            left join log_settled t on k.key = t.key
            left join (select {strip_incarnation("key")} as name from effect_kinds where kind = 'topic-create'
                group by {strip_incarnation("key")}) c on {extract_topic(strip_incarnation("k.key"))} = c.name
        where t.sentinel_call is null and c.name is null order by k.key nulls first
        """
    )
    if rows:
        found = engine.rows("""
            select s.key from log_effects s join log_effects d on s.key = d.key and s.value = d.value
            where s.kind = 'append' and s.phase = 'sentinel' and s.outcome = 'ok'
                and d.kind = 'observe' and d.phase = 'drain' and d.outcome = 'ok'
            group by s.key
            """)
        read = {row["key"] for row in found}
        rows = [row for row in rows if row["key"] not in read]
    reasons = [f"the drain did not reach a sentinel in {row['key']}" for row in rows[:10]]
    return reasons if len(rows) <= 10 else [*reasons, f"nor in {len(rows) - 10} other partitions"]


def _find_recoveries(
    contract: Contract, faults: list[FaultTimes], fault: FaultTimes, healed: int, rows: Sequence[Row], last: int
) -> tuple[list[KeyRecovery], list[Finding]]:
    """Returns the recoveries after one heal, and the findings. ``last``: the end of the history."""
    limit = healed + contract.deadline
    undisturbed = not any(other.may_overlap(healed, limit) for other in faults if other.id != fault.id)
    recoveries, late = [], []
    for row in rows:
        subject = SUBJECTS[row["subject"]]
        write_delay = None if row["write_ret"] is None else row["write_ret"] - healed
        read_delay = None if row["read_ret"] is None else row["read_ret"] - healed
        recoveries.append(KeyRecovery(subject, fault, row["key"], write_delay, read_delay))
        if undisturbed and last >= limit:
            late += [
                _to_finding(contract, fault, healed, row, clause, time, tries)
                for clause, time, tries in (
                    (subject.write_clause, write_delay, row["writes"]),
                    (subject.read_clause, read_delay, row["reads"]),
                )
                if tries > 0 and (time is None or time > contract.deadline)
            ]
    return recoveries, late


def _group_by_fault(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """Groups rows by fault and sorts them by subject and key.

    The rows are sorted here, because queries without an order can be run for many histories at once.
    """
    found: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["subject"], row["key"] is not None, row["key"] or "")):
        found.setdefault(row["id"], []).append(row)
    return found


def _make_recovery_tables(engine: Engine, deadline: int) -> None:
    """Creates the relations that ``_RECOVERIES`` reads: each key's attempts before each heal's deadline.

    Rows and heals are joined by buckets of time, so the work grows with the number of rows near heals, not with rows
    times heals. A bucket is at least as long as the deadline. Times after the deadline come from a running minimum.
    ``until`` is the deadline, ``half`` the middle of the time until then, and ``quarter`` the length of a quarter of
    it.
    """
    bits = deadline.bit_length()
    engine.table(
        "heals",
        f"""
        select id, healed, healed + {deadline // 2} as half, healed + {deadline} as until,
            {(deadline - deadline // 2) // 2} as quarter, healed >> {bits} as bucket
        from (select id, max(case when phase = 'healed' then time end) as healed from faults group by id) h
        where healed is not null
        """,
    )
    engine.view("heal_buckets", "select * from heals union all "
                "select id, healed, half, until, quarter, bucket + 1 from heals")  # fmt: skip
    engine.table(
        "recovery_rows",
        f"""
        select 0 as subject, key, op, call, ret, call >> {bits} as bucket, position,
            case when kind = 'append' then 1 else 0 end as writes,
            case when kind = 'observe-begin' then 1 else 0 end as reads,
            case when kind = 'append' and outcome = 'ok' then ret end as write_ret,
            case when kind = 'observe-end' and outcome = 'ok' then ret end as read_ret
        from effects where kind in ('append', 'observe-begin', 'observe-end')
        union all
        select 1, key, op, call, ret, call >> {bits}, 0,
            case when kind <> 'read' then 1 else 0 end, case when kind = 'read' then 1 else 0 end,
            case when kind <> 'read' and outcome = 'ok' then ret end,
            case when kind = 'read' and outcome = 'ok' then ret end
        from register_rows
        """,
    )
    engine.table("recovery_tries", _TRIES)
    engine.table("recovery_needs", _NEEDS.format(bits=bits))
    engine.table("recovery_ends", _ENDS)
    engine.table("recovery_soon", _SOON)


_PROVES_OUTAGE: Final = "(call >= h.half and least(ret, call + h.quarter) <= h.until)"
"""SQL: whether a failed attempt would show that service was not back before the deadline.

1. It was called in the second half of the deadline's time, because an earlier attempt proves nothing about later ones.
2. It ended by the deadline, or had a quarter of this time for the answer. A call at the last moment proves nothing.
"""

_TRIES: Final = f"""
    select h.id, h.healed, h.until, e.subject, e.key,
        count(case when e.writes = 1 and {_PROVES_OUTAGE} then 1 end) as writes,
        count(case when e.reads = 1 and {_PROVES_OUTAGE} then 1 end) as reads
    from heal_buckets h join recovery_rows e on e.bucket = h.bucket
    where e.call >= h.healed and e.call <= h.until
    group by h.id, h.healed, h.until, e.subject, e.key
    """
"""By heal and key, the number of attempts that could prove that service was not back."""

_SO_FAR: Final = f"{{}} over (partition by subject, key {order_by('back, side, id')} {ROWS_SO_FAR})"
"""Window over all rows from this time on: ``back`` is the negated time. At equal times, ``side`` 0 comes first."""

_NEEDS: Final = f"""
    select t.id, t.healed, t.until, t.subject, t.key, t.writes, t.reads,
        least(greatest(coalesce(b.position, -1), coalesce(f.position, -1)) + 1, coalesce(s.settled, {INFINITY}))
            as needed
    from recovery_tries t
        left join (
            select id, key, position from (
                select id, key, max(position) over (partition by key {order_by("time, side, id")} {ROWS_SO_FAR})
                    as position
                from (
                    select key, ret as time, 1 as side, -1 as id, least(position, {INFINITY - 1}) as position
                    from log_sends where outcome = 'ok' and position is not null
                    union all
                    select key, healed, 0, id, null from recovery_tries where subject = 0) as acked
                ) as numbered
            where id >= 0) b on b.id = t.id and b.key = t.key and t.subject = 0
        left join (
            select w.id, w.key, max(least(s.position, {INFINITY - 1})) as position from (
                select h.id, a.key, min(a.ret) as back from heal_buckets h
                    join (select key, call, ret, call >> {{bits}} as bucket from log_sends where outcome = 'ok') a
                        on a.bucket = h.bucket
                where a.call >= h.healed and a.ret <= h.until group by h.id, a.key) w
                join log_sends s on s.key = w.key and s.ret = w.back
            where s.outcome = 'ok' and s.position is not null
            group by w.id, w.key) f on f.id = t.id and f.key = t.key and t.subject = 0
        left join log_settled s on s.key = t.key and t.subject = 0
    """
"""``_TRIES`` with the end offset that a poll must reach (``needed``): above all offsets acknowledged before the heal,
and above the first one acknowledged after the heal. It is 0 for a register."""

_ENDS: Final = f"""
    select id, subject, key, write_ret, first_op, farthest from (
        select id, subject, key,
            {_SO_FAR.format("min(write_ret)")} as write_ret, {_SO_FAR.format("min(op)")} as first_op,
            {_SO_FAR.format("max(case when read_ret is not null then position end)")} as farthest
        from (
            select subject, key, 0 - call as back, 0 as side, -1 as id, op, position, write_ret, read_ret
            from recovery_rows
            union all
            select subject, key, 0 - healed, 1, id, null, null, null, null from recovery_needs) as rows_and_heals
        ) as numbered
    where id >= 0
    """
"""By heal and key, over all rows called after the heal: the first acknowledged write, the first operation, and the
farthest end that a read reached."""

_SOON: Final = """
    select n.id, n.subject, n.key, min(e.read_ret) as read_ret
    from recovery_needs n join heal_buckets h on h.id = n.id
        join recovery_rows e on e.bucket = h.bucket and e.subject = n.subject and e.key = n.key
    where e.call >= n.healed and e.call <= n.until and e.position >= n.needed
    group by n.id, n.subject, n.key
    """
"""By heal and key, the first return of a read that was called before the deadline and reached the needed end."""

_RECOVERIES: Final = """
    select n.id, n.subject, n.key, n.writes, n.reads, e.write_ret, e.first_op,
        case when w.read_ret <= n.until then w.read_ret else l.read_ret end as read_ret
    from recovery_needs n
        join recovery_ends e on e.id = n.id and e.subject = n.subject and e.key = n.key
        left join recovery_soon w on w.id = n.id and w.subject = n.subject and w.key = n.key
        left join (
            select n.id, n.subject, n.key, min(r.read_ret) as read_ret
            from recovery_needs n
                join recovery_ends e on e.id = n.id and e.subject = n.subject and e.key = n.key
                left join recovery_soon w on w.id = n.id and w.subject = n.subject and w.key = n.key
                join recovery_rows r on r.subject = n.subject and r.key = n.key
            where (w.read_ret is null or w.read_ret > n.until) and e.farthest >= n.needed
                and r.call >= n.healed and r.position >= n.needed
            group by n.id, n.subject, n.key) l on l.id = n.id and l.subject = n.subject and l.key = n.key
    """
"""``write_ret``, ``read_ret``: return times of the first write and read that count. ``writes``, ``reads``: numbers of
attempts that could prove that service was not back (:data:`_PROVES_OUTAGE`)."""


SUBJECTS: Final = (
    RecoverySubject("send", "poll", "send to {} was acknowledged", "poll of {} reached the end"),
    RecoverySubject("write", "read", "write to {} was acknowledged", "read of {} was answered"),
)
"""Subjects by their number in the column ``subject``."""


def _to_finding(
    contract: Contract, fault: FaultTimes, healed: int, row: Row, clause: str, time: int | None, tries: int
) -> Finding:
    when = (
        "never again in this run"
        if time is None
        else f"only {format_seconds(time)} later, at {format_seconds(healed + time)}"
    )
    return Finding(
        anomaly=NO_RECOVERY,
        key=row["key"],
        claim=shorten_times(
            f"after fault {fault.id} ({fault.name}) was healed at {format_seconds(healed)}, the first "
            f"{clause.format(row['key'])} {when}; the contract's deadline is {contract.recovery_deadline:g} s."
        ),
        operations=(row["first_op"],),
        omitted=max(0, tries - 1),
        time=healed + contract.deadline,
        faults=(fault.id,),
    )


def _count(engine: Engine, sql: str) -> int:
    return int(engine.rows(sql)[0]["examined"])
