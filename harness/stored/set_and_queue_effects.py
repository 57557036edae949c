"""Makes effects of sets and queues from the operations of another tool's workload.

*Final read*: for ``set``, only the last read that ended counts, as in Jepsen's checker.

*Stale reads*: for ``set-full``, an element is known once its add was acknowledged or a read showed it. It is lost if it
is missing from the last read that was called after it was known. If that read shows it, earlier reads may lack it for a
while. Such an element gets the effect of a removal, because the checks do not ask where a removed element is missing.
The first one of each set is added to those reads instead, so that the checks have an element. To add all of them could
take as many effects as elements times reads. The note has the number of such elements. With ``--linearizable`` all
reads count as they are.

*Drain*: a ``:drain`` takes all elements that it returns. For ``total-queue`` the file ends with a complete drain, as in
Jepsen's checker: its own ``:drain`` operations, or dequeues until nothing is left. For ``queue`` elements may stay
inside.

Other elements than whole numbers get numbers (``element_numbers``). Findings show the elements instead of the numbers.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from assay.checkers.judging.verdict import limit_reasons
from assay.checkers.workload_checks.workload_result import list_elements
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.core.printable import count_noun
from assay.harness.stored.effects_of_workload import (
    JudgedElements,
    WorkloadEffects,
    find_key,
    is_ok,
    make_added_operation,
    shift_times,
)
from assay.harness.stored.element_numbers import ElementNumbers


def make_set_effects(done: Sequence[Completed], *, final_only: bool, allows_stale: bool) -> WorkloadEffects:
    """Makes the effects of sets. ``final_only``: only the last read of each set counts. ``allows_stale``: an element
    that a read lacks for a while counts as shown."""
    numbers = ElementNumbers()
    sets: dict[str, list[Completed]] = {}
    for one in done:
        sets.setdefault(find_key(one, "set"), []).append(one)
    shown: dict[int, list[int]] = {}  # the elements of each read that counts, by operation
    stale: dict[int, set[int]] = {}  # the elements that were missing for a while, by the operation that added each
    judged = JudgedElements()
    allowed = 0
    doubts = []
    for key, ones in sets.items():
        reads = [one for one in ones if is_ok(one, "read")]
        if not reads:
            doubts.append(f"{'the set' if key == 'set' else key} was never read")
        if final_only and reads:
            reads = [max(reads, key=lambda one: one.ret or 0)]
        for read in reads:
            shown[read.index] = list(dict.fromkeys(map(numbers.number, read.completion.result)))
        if allows_stale:
            found = _find_stale_elements(ones, reads, shown, numbers, judged)
            allowed += len(found)
            for element, adder in list(found.items())[1:]:
                stale.setdefault(adder, set()).add(element)
    note = f"{count_noun(allowed, 'element')} were missing from a read for a while, which is allowed" if allowed else ""
    rows = [(one, list(_make_effects_of_set(one, shown, stale, numbers))) for one in done]
    return WorkloadEffects(rows, note, numbers.names, limit_reasons(doubts, "sets"), judged=judged)


def _find_stale_elements(
    ones: Sequence[Completed],
    reads: Sequence[Completed],
    shown: Mapping[int, list[int]],
    numbers: ElementNumbers,
    judged: JudgedElements,
) -> dict[int, int]:
    """Returns the elements that some reads lack only for a while, each with the first operation that added it.

    Adds the first one to all reads that were called after it was known. Counts the others in ``judged``, as the checks
    would if these reads showed them.
    """
    acked: dict[int, int] = {}  # the first acknowledgement of each element
    adders: dict[int, list[int]] = {}  # the adds of each element that did not fail
    for one in ones:
        if one.operation.f == "add" and not _failed(one):
            element = numbers.number(one.operation.argument)
            adders.setdefault(element, []).append(one.index)
            if is_ok(one, "add") and one.ret is not None:
                acked[element] = min(acked.get(element, one.ret), one.ret)
    in_order = sorted(reads, key=lambda one: one.call)
    seen: dict[int, int] = {}  # the first return of a read that shows each element
    last: dict[int, int] = {}  # the call of the last read that shows each element
    for read in in_order:
        for element in shown[read.index]:
            if element in adders:
                if read.ret is not None:
                    seen[element] = min(seen.get(element, read.ret), read.ret)
                last[element] = read.call
    known = {element: min(acked.get(element, ret), ret) for element, ret in {**acked, **seen}.items()}
    reads_showing: dict[int, int] = {}  # how many reads show each element and were called after it was known
    for read in in_order:
        for element in shown[read.index]:
            if element in known:
                reads_showing[element] = reads_showing.get(element, 0) + (read.call > known[element])
    calls = [read.call for read in in_order]
    # By read, the first return of it and all later ones.
    returns = list(accumulate((read.call if read.ret is None else read.ret for read in reversed(in_order)), min))[::-1]
    stale: dict[int, int] = {}
    for element, since in known.items():
        if element not in last or last[element] < calls[-1]:
            continue
        first = bisect_right(calls, since)
        if reads_showing[element] < len(calls) - first:
            stale[element] = adders[element][0]
            if len(stale) == 1:
                for read in in_order[first:]:
                    if element not in shown[read.index]:
                        shown[read.index].append(element)
                continue
            judged.number += 1
            judged.count("set-vanished", is_exposed=calls[-1] > min(seen.get(element, returns[first]), returns[first]))
            if element in acked:
                judged.count("set-stale", is_exposed=calls[-1] > acked[element])
                if len(adders[element]) == 1:
                    judged.count("set-lost", is_exposed=calls[-1] > acked[element])
    return stale


def _failed(one: Completed) -> bool:
    return one.completion.outcome is Outcome.FAIL


def _make_effects_of_set(
    one: Completed, shown: Mapping[int, Sequence[int]], stale: Mapping[int, Iterable[int]], numbers: ElementNumbers
) -> Iterable[Effect]:
    key = find_key(one, "set")
    if one.operation.f != "read":
        yield Effect("set-add", key, value=numbers.number(one.operation.argument))
        yield from (Effect("set-remove", key, value=element) for element in stale.get(one.index, ()))
    elif one.index in shown:
        elements = shown[one.index]
        yield from (Effect("set-read", key, value=element) for element in elements)
        if not elements:
            yield Effect("set-read", key)


def make_queue_effects(done: Sequence[Completed], *, drained: bool) -> WorkloadEffects:
    """Makes the effects of queues. ``drained``: the file ends with a complete drain of each queue."""
    numbers = ElementNumbers()
    keys = dict.fromkeys(find_key(one, "queue") for one in done)
    # All times are shifted, so that a drain can be added before the first operation.
    rows = [(shift_times(one), list(_make_effects_of_queue(one, numbers))) for one in done]
    last = max((one.call if one.ret is None else one.ret for one, _ in rows), default=0)
    # A drain that ends before the first operation demands nothing of the elements that stay inside.
    end = make_added_operation(done, "end", "drain", last + 1 if drained else 0)
    drains = [Effect("queue-drained", key) for key in keys]
    both = [*rows, (end, drains)] if drained else [(end, drains), *rows]
    return WorkloadEffects(both, names=numbers.names, added=(end, drains))


def _make_effects_of_queue(one: Completed, numbers: ElementNumbers) -> Iterable[Effect]:
    key, outcome = find_key(one, "queue"), one.completion.outcome
    if one.operation.f == "enqueue":
        yield Effect("queue-enqueue", key, value=numbers.number(one.operation.argument))
    elif one.operation.f == "drain":
        if outcome is Outcome.OK:
            for element in list_elements(one.completion.result or []):
                yield Effect("queue-dequeue", key, value=numbers.number(element))
        elif outcome is Outcome.INFO:
            yield Effect("queue-drained", key)
    elif outcome is not Outcome.FAIL:
        empty = outcome is Outcome.INFO or one.completion.result is None
        yield Effect("queue-dequeue", key, value=None if empty else numbers.number(one.completion.result))
