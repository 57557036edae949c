"""Operations and their outcomes.

An operation completes as one of

- ``ok``: it happened, with this result.
- ``fail``: it certainly did not happen, not even in one of the client's own retries.
- ``info``: indeterminate, for example after a timeout, or if the connection broke after sending.

In doubt a client must return ``info``, because a false ``fail`` causes false alarms.
"""

import enum
from typing import Any

import msgspec


class Outcome(enum.StrEnum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Phase(enum.StrEnum):
    """``main`` runs under faults. ``sentinel`` (last writes) and ``drain`` (reads up to them) follow the last heal."""

    MAIN = "main"
    SENTINEL = "sentinel"
    DRAIN = "drain"


class Operation(msgspec.Struct, frozen=True, gc=False):
    """An operation as a generator makes it: ``f`` is the verb, ``key`` the object, ``argument`` plain data."""

    f: str
    key: str | None = None
    argument: Any = None
    phase: Phase = Phase.MAIN


class Completion(msgspec.Struct, frozen=True, gc=False):
    """A client's answer. ``error`` is a short stable name (``timeout``), with details after a colon."""

    outcome: Outcome
    result: Any = None
    error: str | None = None


class Completed(msgspec.Struct, frozen=True, gc=False):
    """An operation as the history records it. Times are nanoseconds since the run began, strictly increasing.

    ``ret`` is None for ``info``: it may take effect any time from ``call`` on, or never.
    """

    index: int
    process: int
    worker: str
    operation: Operation
    completion: Completion
    call: int
    ret: int | None
    scheduled: int | None = None
    """When an open loop scheduled the call; None in a closed loop."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """An elementary effect of an operation, derived by the client's pure ``effects`` function.

    ``assay.harness.core.history.EFFECTS`` describes the columns. ``process``, ``call``, ``ret`` and ``phase`` come from
    the operation; so do ``outcome`` and ``error`` unless they are set here.
    """

    kind: str
    key: str
    position: int | None = None
    value: int | None = None
    expected: int | None = None
    leader_epoch: int | None = None
    generation: int | None = None
    token: int | None = None
    request: int | None = None
    owner: str | None = None
    group: str | None = None
    assignment: int | None = None
    node: str | None = None
    version: int | None = None
    list_index: int | None = None
    message_key: str | None = None
    tombstone: bool | None = None
    timestamp: int | None = None
    size: int | None = None
    name: str | None = None
    replicas: str | None = None
    incarnation: int | None = None
    source: str | None = None
    client: str | None = None
    retention_ms: int | None = None
    max_wait_ms: int | None = None
    waited_ms: int | None = None
    empty: bool | None = None
    outcome: Outcome | None = None
    error: str | None = None
