"""What a client is asked to do, and what became of it.

An operation completes ``ok`` (it happened, with this result), ``fail`` (it certainly did not happen, in any of the
client's own retries either) or ``info`` (indeterminate: it timed out, the connection broke after sending, ...). When in
doubt a client says ``info``; a false ``fail`` makes false alarms.
"""

import enum
from typing import Any

import msgspec


class Outcome(enum.StrEnum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Phase(enum.StrEnum):
    """``main`` runs under faults; ``sentinel`` and ``drain`` run after the last heal."""

    MAIN = "main"
    SENTINEL = "sentinel"
    DRAIN = "drain"


class Operation(msgspec.Struct, frozen=True, gc=False):
    """As a generator makes it: ``f`` is the verb, ``key`` the object it is about, ``argument`` plain data."""

    f: str
    key: str | None = None
    argument: Any = None
    phase: Phase = Phase.MAIN


class Completion(msgspec.Struct, frozen=True, gc=False):
    """What a client answers; ``error`` is a short stable name (``timeout``), any detail after a colon."""

    outcome: Outcome
    result: Any = None
    error: str | None = None


class Completed(msgspec.Struct, frozen=True, gc=False):
    """An operation with all that the history has of it. Times: nanoseconds since the run began, strictly increasing.

    ``ret`` is None for ``info``: any time from ``call`` on, or never.
    """

    index: int
    process: int
    worker: str
    operation: Operation
    completion: Completion
    call: int
    ret: int | None
    scheduled: int | None = None
    """When an open loop meant it to be called; None in a closed loop."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """One elementary effect of an operation, as the client's pure ``effects`` function derives it.

    Columns as in ``assay.harness.core.history.EFFECTS``; what is not given is taken from the operation (process, call,
    ret, phase, and outcome and error unless set here).
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
