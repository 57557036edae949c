"""Order in which writes become visible, as in Jepsen's causal, causal-reverse, comments and sequential workloads.

- *causal-reverse* and *comments*: values are written once. A read returns all values that are there. If it shows a
  value, it must show every value whose write had been acknowledged before that value's write was called. It is enough
  to test this for the shown value whose write was called last. A read shows no value whose write failed, and none whose
  write was not called before the read returned.
- *sequential*: one process inserts the parts of a series one after another. A read looks for the parts in reverse
  order, the last part first. If it finds a part, it must also find all parts for which it looks afterwards, because
  they were inserted before.
- *causal*: a register with one process per key. The operations take effect in the order in which they were issued, and
  the n-th write writes n. A read returns the last written value; ``read-init`` returns 0 before any write. An operation
  may have a ``:position`` in the order of the store, and a ``:link`` to the operation before it. The link must be the
  position of the last acknowledged operation. An operation without a link, or with the link ``:init``, is not compared.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import Any

from assay.checkers.times import format_seconds
from assay.checkers.workload_checks.workload_result import (
    MOST_VALUES,
    NO_FIELDS,
    Fields,
    WorkloadResult,
    describe_some,
    group_by_key,
    name_object,
    select_ok,
)
from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed, Outcome

CAUSAL_REVERSE = "causal-reverse"
FAILED_WRITE = "failed-write-read"
UNWRITTEN = "unwritten-read"
NONSEQUENTIAL = "nonsequential-read"
NONCAUSAL = "noncausal-read"
INIT = "init"
"""The link of an operation that follows none."""


def check_causal_reverse(operations: Sequence[Completed]) -> WorkloadResult:
    """Judges each read: with a value, it shows all values that had been acknowledged before that value's write.

    Values of failed writes, and values that no write can have left by then, are findings as well.
    """
    result = WorkloadResult()
    total = 0
    for key, ones in group_by_key(operations).items():
        writes = {
            freeze(one.operation.argument): one
            for one in ones
            if one.operation.f == "write" and one.completion.outcome is not Outcome.FAIL
        }
        acked = sorted(
            ((one.ret, value) for value, one in writes.items() if one.completion.outcome is Outcome.OK and one.ret),
            key=lambda pair: pair[0],
        )
        ended = [ret for ret, _ in acked]
        rank = {value: number for number, (_, value) in enumerate(acked)}
        reads = select_ok(ones, "read")
        total += len(reads)
        _check_origins(result, key, ones, reads)
        for read in reads:
            shown = {freeze(value) for value in read.completion.result}
            known = [writes[value] for value in shown if value in writes]
            if not known:
                continue
            latest = max(known, key=lambda one: one.call)
            number = bisect_left(ended, latest.call)  # of writes that had been acknowledged
            result.count_claims(CAUSAL_REVERSE, [number > 0])
            lacking = number - sum(rank.get(value, number) < number for value in shown)
            if lacking:
                missing = list(islice((value for _, value in acked if value not in shown), min(lacking, MOST_VALUES)))
                earlier = writes[missing[0]]
                result.add_finding(
                    CAUSAL_REVERSE,
                    key,
                    f"{name_object(key)}: the read by operation {read.index}, called at {format_seconds(read.call)}, "
                    f"shows {latest.operation.argument}, whose write was called at {format_seconds(latest.call)}, but "
                    f"lacks {describe_some(missing, lacking)}: the write of {missing[0]} by operation {earlier.index} "
                    f"had been acknowledged at {format_seconds(earlier.ret or 0)}.",
                    [earlier, latest, read],
                )
    if not total:
        result.doubts.append("nothing was ever read")
    result.examined = dict.fromkeys((CAUSAL_REVERSE, FAILED_WRITE, UNWRITTEN), total)
    return result


def _check_origins(
    result: WorkloadResult, key: str | None, ones: Sequence[Completed], reads: Sequence[Completed]
) -> None:
    """Looks for reads of values whose writes all failed, or whose first write was not called before they returned."""
    writes = sorted((one for one in ones if one.operation.f == "write"), key=lambda one: one.call, reverse=True)
    called = {freeze(one.operation.argument): one for one in writes if one.completion.outcome is not Outcome.FAIL}
    failed = {freeze(one.operation.argument): one for one in writes if one.completion.outcome is Outcome.FAIL}
    failed = {value: one for value, one in failed.items() if value not in called}
    last = max((read.ret or read.call for read in reads), default=-1)
    result.count_claims(FAILED_WRITE, (one.call < last for one in failed.values()))
    result.count_claims(UNWRITTEN, [True] * len(reads) if writes else [])
    for read in reads:
        ret = read.call if read.ret is None else read.ret
        wrong = [
            value
            for value in dict.fromkeys(map(freeze, read.completion.result))
            if value not in called or called[value].call > ret
        ]
        shows = f"{name_object(key)}: the read by operation {read.index}, called at {format_seconds(read.call)}, shows "
        aborted = [value for value in wrong if value in failed]
        if aborted:
            writer = failed[aborted[0]]
            result.add_finding(
                FAILED_WRITE,
                key,
                f"{shows}{describe_some(aborted)}, but the write of {aborted[0]} by operation {writer.index} had "
                "failed.",
                [writer, read],
            )
        unwritten = [value for value in wrong if value not in failed]
        if unwritten:
            later = called.get(unwritten[0])
            why = (
                f"{unwritten[0]} was never written"
                if later is None
                else f"the write of {unwritten[0]} by operation {later.index} was not called until "
                f"{format_seconds(later.call)}"
            )
            involved = [read] if later is None else [later, read]
            result.add_finding(UNWRITTEN, key, f"{shows}{describe_some(unwritten)}, but {why}.", involved)


def check_sequential(operations: Sequence[Completed]) -> WorkloadResult:
    """Judges each read of a series, whose parts it looked for from the last to the first."""
    result = WorkloadResult()
    reads = select_ok(operations, "read")
    for read in reads:
        series, parts = split_series(read)
        found = list(dropwhile(lambda part: part is None, parts))
        result.count_claims(NONSEQUENTIAL, [len(found) > 1] if found else [])
        if None in found:
            result.add_finding(
                NONSEQUENTIAL,
                series,
                f"{series}: operation {read.index}, called at {format_seconds(read.call)}, found {found[0]}, and then "
                "lacked a part that is inserted before it.",
                [read],
            )
    if not reads:
        result.doubts.append("nothing was ever read")
    result.examined = {NONSEQUENTIAL: len(reads)}
    return result


def split_series(read: Completed) -> tuple[str, Sequence[Any]]:
    """Returns the name of the series and its parts. If values are ``[key value]``, the series is the key.

    Raises ``HistoryError`` for a result of another form.
    """
    result = read.completion.result
    if read.operation.key is not None and isinstance(result, list):
        return read.operation.key, result
    if not isinstance(result, list) or len(result) != 2 or not isinstance(result[1], list):
        raise HistoryError(f"operation {read.index}: a read returns [series [last ... first]], not {result}")
    return str(result[0]), result[1]


def check_causal(operations: Sequence[Completed], fields: Fields = NO_FIELDS) -> WorkloadResult:
    """Judges each key's operations in the order in which its single process issued them.

    A write of unknown outcome may take effect at any later time, or never.
    """
    result = WorkloadResult()
    total = 0
    for key, ones in group_by_key(operations).items():
        value, pending = 0, set[Any]()
        former: Completed | None = None
        position: Any = None
        for one in sorted(ones, key=lambda one: one.call):
            if one.completion.outcome is Outcome.INFO and one.operation.f == "write":
                pending.add(one.operation.argument)
            if one.completion.outcome is not Outcome.OK:
                continue
            if one.operation.f == "write":
                shown = one.operation.argument
                wrong = shown - 1 != value and shown - 1 not in pending
                done = f"wrote {shown}, and the next value was {value + 1}"
            else:
                total += 1
                shown = one.completion.result
                result.count_claims(NONCAUSAL, [value != 0] if shown is not None else [])
                wrong = shown is not None and shown != value and shown not in pending
                done = f"read {shown}, and the register held {value}"
            more = fields.get(one.index, {})
            link = more.get("link", INIT)
            if not wrong and link != INIT and freeze(link) != freeze(position):
                wrong = True
                done = f"links to position {link}, and the last position was {position}"
            if wrong:
                place = "as the first" if former is None else f"after operation {former.index}"
                result.add_finding(
                    NONCAUSAL,
                    key,
                    f"{name_object(key, 'register')}: operation {one.index}, called at {format_seconds(one.call)} "
                    f"{place}, {done}.",
                    [one] if former is None else [former, one],
                )
                break
            value, former, position = value if shown is None else shown, one, more.get("position")
    if not total:
        result.doubts.append("no register was ever read")
    result.examined = {NONCAUSAL: total}
    return result


def freeze(value: Any) -> Any:
    """Returns a hashable value that is equal for equal JSON values. Python considers 1, 1.0 and true equal."""
    if isinstance(value, list):
        return tuple(map(freeze, value))
    if isinstance(value, dict):
        return frozenset((name, freeze(one)) for name, one in value.items())
    return _NoInteger(value) if isinstance(value, bool | float) else value


@dataclass(frozen=True, eq=False)
class _NoInteger:
    """A value that no integer is equal to."""

    value: bool | float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NoInteger) and repr(other.value) == repr(self.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))

    def __str__(self) -> str:
        return str(self.value)
