"""Transactions under keys: each key of operations stands for a database of its own, as in Jepsen's ``independent``.

So x under key 1 is another object than x under key 2: the objects are renamed to ``1/x`` and ``2/x``. All databases
together satisfy a level without session order iff each of them does. This holds for real time as well, because
linearizability is local (Herlihy and Wing, 1990). Session order does not compose in this way. So for a level with
session order, a process has a number of its own under each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed
from assay.harness.stored.transaction_reads import name_key


def separate_keys(done: Sequence[Completed], *, by_session: bool) -> tuple[Sequence[Completed], str]:
    """Returns copies in which each key of operations has objects of its own, and a note on the numbers of processes.

    With ``by_session``, each process is a session of its own under each key. Raises ``HistoryError`` if a key and the
    name of an object, joined, equal another key and another name.
    """
    keys = list(dict.fromkeys(one.operation.key for one in done))
    if keys in ([], [None]):
        return done, ""
    stride = 10 ** len(str(max(one.process for one in done)))
    number = {key: place * stride for place, key in enumerate(keys)} if by_session else dict.fromkeys(keys, 0)
    separate = [
        msgspec.structs.replace(
            one,
            process=one.process + number[one.operation.key],
            operation=msgspec.structs.replace(
                one.operation, argument=_put_under(one.operation.key, one.operation.argument)
            ),
            completion=msgspec.structs.replace(
                one.completion, result=_put_under(one.operation.key, one.completion.result)
            ),
        )
        for one in done
    ]
    _require_one_object_per_name(done, separate)
    note = "each process is a session of its own under each key"
    if not by_session or len(keys) == 1:
        return separate, ""
    return separate, f"{note}: process {stride} is process 0 under {keys[1]}"


def _put_under(key: str | None, micros: Any) -> Any:
    if not isinstance(micros, list):
        return micros
    return [[f, f"{key}/{name_key(name)}", *rest] for f, name, *rest in micros]


def _require_one_object_per_name(done: Sequence[Completed], separate: Sequence[Completed]) -> None:
    owners: dict[str, str | None] = {}
    for before, after in zip(done, separate, strict=True):
        key = before.operation.key
        for _, name, *_ in after.operation.argument:
            if owners.setdefault(name, key) != key:
                raise HistoryError(
                    f"operation {before.index}: objects under the keys {owners[name]} and {key} would have one name, "
                    f"{name}"
                )
