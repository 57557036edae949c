"""Adya's phenomena in workloads whose operations are no transactions of micro-operations: dirty reads (G1a) and
predicate write skew (G2).

- *dirty-reads*, by rows (Galera, Percona): writers set all rows to a value that no other writer uses; a read returns
  all rows. No row shows the value of a write that failed.
- *dirty-reads*, by strong reads (Crate, Elasticsearch): a ``read`` looks for one value and ends ok if it was there. At
  the end every process makes a ``strong-read`` of all values. Every value that was read or acknowledged is in some
  strong read, and all strong reads agree. No read of either kind has the value of a write that failed.
- *adya-g2*: two transactions insert into two tables, each only if a predicate finds no row of this key in either one.
  At most one insert per key succeeds. If both succeeded, each one missed the other's row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from assay.checkers.times import format_seconds
from assay.checkers.workload_checks.visibility import freeze
from assay.checkers.workload_checks.workload_result import (
    WorkloadAnomaly,
    WorkloadResult,
    describe_some,
    group_by_key,
    list_elements,
    name_object,
    select_ok,
)
from assay.harness.core.operation import Completed, Outcome

DIRTY_READ = "dirty-read"
LOST_INSERT = "lost-insert"
DIVERGED = "diverged-reads"
PREDICATE_SKEW = "G2-predicate"

DIRTY_READ_ANOMALIES: Final = {
    DIRTY_READ: WorkloadAnomaly(
        "a value was read whose write failed, or which no strong read has",
        "values that were read, if the object has a strong read; otherwise values whose writes failed",
        "if the object has a strong read, or a read returned after the failed write was called",
    ),
    LOST_INSERT: WorkloadAnomaly(
        "an acknowledged value is in no strong read",
        "acknowledged values of objects on which a strong read was called",
        "if a strong read succeeded",
    ),
    DIVERGED: WorkloadAnomaly(
        "strong reads disagree",
        "strong reads",
        "if another strong read of the object succeeded, and a value was written",
    ),
}
PREDICATE_INSERT_ANOMALIES: Final = {
    PREDICATE_SKEW: WorkloadAnomaly(
        "two inserts succeeded, although each one excludes the other by a predicate",
        "keys with a successful insert",
        "if another insert of the key was called",
    )
}


def check_dirty_reads(operations: Sequence[Completed]) -> WorkloadResult:
    """Looks for reads of failed writes. If there are strong reads, also for values that they lack."""
    result = WorkloadResult()
    total = 0
    for key, ones in group_by_key(operations).items():
        strong = select_ok(ones, "strong-read")
        reads = select_ok(ones, "read")
        total += len(reads) + len(strong)
        if any(one.operation.f == "strong-read" for one in ones):
            acked = {freeze(one.operation.argument) for one in select_ok(ones, "write")}
            result.count_claims(LOST_INSERT, [bool(strong)] * len(acked))
        may_differ = len(strong) > 1 and any(_may_write(one) for one in ones)
        result.count_claims(DIVERGED, [may_differ] * len(strong))
        if strong:
            _check_strong_reads(result, key, ones, reads, strong)
        else:
            _check_rows(result, key, ones, reads)
    if not total:
        result.doubts.append("nothing was ever read")
    result.examined = dict.fromkeys((DIRTY_READ, LOST_INSERT, DIVERGED), total)
    return result


def _may_write(one: Completed) -> bool:
    """Returns whether the operation is a write that did not certainly fail."""
    return one.operation.f == "write" and one.completion.outcome is not Outcome.FAIL


def _check_rows(result: WorkloadResult, key: str | None, ones: Sequence[Completed], reads: Sequence[Completed]) -> None:
    failed = _find_failed_writes(ones)
    last = max((read.ret or read.call for read in reads), default=-1)
    result.count_claims(DIRTY_READ, (one.call < last for one in failed.values()))
    _find_dirty_reads(result, key, failed, ((read, list_elements(read.completion.result)) for read in reads))


def _find_failed_writes(ones: Sequence[Completed]) -> dict[object, Completed]:
    """Returns the failed write of each value that no other write can have left."""
    writes = [one for one in ones if one.operation.f == "write"]
    failed = {freeze(one.operation.argument): one for one in writes if one.completion.outcome is Outcome.FAIL}
    for one in writes:
        if one.completion.outcome is not Outcome.FAIL:
            failed.pop(freeze(one.operation.argument), None)  # another write of this value may have succeeded
    return failed


def _find_dirty_reads(
    result: WorkloadResult,
    key: str | None,
    failed: Mapping[object, Completed],
    reads: Iterable[tuple[Completed, Sequence[Any]]],
) -> None:
    """Looks for values of failed writes. ``reads``: each read with the values that it shows."""
    for read, values in reads:
        dirty = [value for value in dict.fromkeys(map(freeze, values)) if value in failed]
        if dirty:
            writer = failed[dirty[0]]
            result.add_finding(
                DIRTY_READ,
                key,
                f"{name_object(key)}: operation {read.index}, called at {format_seconds(read.call)}, read {dirty[0]}, "
                f"but its write by operation {writer.index} at {format_seconds(writer.call)} had failed.",
                [writer, read],
            )


def _check_strong_reads(
    result: WorkloadResult,
    key: str | None,
    ones: Sequence[Completed],
    reads: Sequence[Completed],
    strong: Sequence[Completed],
) -> None:
    sets = [{freeze(value) for value in one.completion.result} for one in strong]
    in_some, in_all = set().union(*sets), set(sets[0]).intersection(*sets[1:])
    first = min(strong, key=lambda one: one.call)
    seen: dict[object, Completed] = {}
    sought = [
        (read, read.operation.argument if read.completion.result is None else read.completion.result) for read in reads
    ]
    for read, value in sought:
        seen.setdefault(freeze(value), read)
    shown = [*((read, [value]) for read, value in sought), *((one, one.completion.result) for one in strong)]
    failed = _find_failed_writes(ones)
    _find_dirty_reads(result, key, failed, shown)
    unconfirmed = {value: read for value, read in seen.items() if value not in failed}
    result.count_claims(DIRTY_READ, [True] * len(seen))
    acked = {freeze(one.operation.argument): one for one in select_ok(ones, "write")}
    for anomaly, values, verb in ((DIRTY_READ, unconfirmed, "read"), (LOST_INSERT, acked, "acknowledged")):
        for value, one in values.items():
            if value not in in_some:
                result.add_finding(
                    anomaly,
                    key,
                    f"{name_object(key)}: {value} was {verb} by operation {one.index} at "
                    f"{format_seconds(one.ret or 0)}, and none of the {len(strong)} strong reads has it.",
                    [one, first],
                )
    if in_some != in_all:
        lacking = next(one for one, values in zip(strong, sets, strict=True) if values != in_some)
        absent = sorted(map(str, in_some - sets[strong.index(lacking)]))
        other = next(
            one for one, values in zip(strong, sets, strict=True) if any(str(value) == absent[0] for value in values)
        )
        result.add_finding(
            DIVERGED,
            key,
            f"{name_object(key)}: the strong read by operation {lacking.index}, called at "
            f"{format_seconds(lacking.call)}, lacks {describe_some(absent)}, which the strong read by operation "
            f"{other.index} shows.",
            [other, lacking],
        )


def check_predicate_inserts(operations: Sequence[Completed]) -> WorkloadResult:
    """Looks for keys with two successful inserts."""
    result = WorkloadResult()
    keys = group_by_key(operations)
    for key, ones in keys.items():
        inserted = select_ok(ones, "insert")
        result.count_claims(PREDICATE_SKEW, [sum(one.operation.f == "insert" for one in ones) > 1] if inserted else [])
        if len(inserted) > 1:
            first, second = inserted[:2]
            result.add_finding(
                PREDICATE_SKEW,
                key,
                f"{name_object(key)}: operation {first.index} inserted {_describe_ids(first)} and operation "
                f"{second.index} inserted {_describe_ids(second)}; each one succeeds only if it finds no row of this "
                f"key{f' ({len(inserted)} inserts succeeded in all)' if len(inserted) > 2 else ''}.",
                inserted,
            )
    if not select_ok(operations, "insert"):
        result.doubts.append("no insert succeeded")
    result.examined = {PREDICATE_SKEW: len(keys)}
    return result


def _describe_ids(one: Completed) -> str:
    ids = one.operation.argument if one.completion.result is None else one.completion.result
    return " and ".join(
        f"{value} into table {name}" for name, value in zip("ab", ids, strict=False) if value is not None
    )
