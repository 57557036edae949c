"""Contract: the anomalies that a configuration forbids and tolerates, and how much must happen in a run.

A contract can also name a model. Then the operations of each key must be linearizable by that model.

Detection and policy are separate. Checks report every anomaly that they find; the contract says what a finding means.
A run is unknown if it has an anomaly that the contract neither forbids nor tolerates. A contract is plain data in the
run's ``settings.json``, so an old run is judged by its own contract.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

import msgspec

from assay.checkers.isolation.levels import VALUE_ANOMALIES, Order, find_level
from assay.checkers.times import NANOSECONDS

NO_RECOVERY: Final = "no-recovery"
"""The anomaly that is reported if ``recovery_deadline`` is missed; :func:`forbid` always includes it."""

UNEXPECTED_EXIT: Final = "unexpected-exit"
BROKEN_INVARIANT: Final = "broken-invariant"
"""An invariant of the system was broken; like ``UNEXPECTED_EXIT``, :func:`forbid` always includes it."""

ALWAYS_FORBIDDEN: Final = frozenset({NO_RECOVERY, UNEXPECTED_EXIT, BROKEN_INVARIANT})
"""Anomalies that every contract of :func:`forbid` forbids."""

INTOLERABLE: Final = (
    "phantom",
    "aborted-read",
    "missing-writer",
    "future-read",
    "counter-phantom",
    "max-phantom",
    "set-phantom",
    "queue-phantom",
    "garbage-read",
)
"""Anomalies that no design excuses: a read value was never written, was written only later, or its write certainly
failed. No contract may tolerate them, so they fail a run even if its contract is not available."""

STANDARD_REFUSALS: Final = (
    "changed", "dead", "empty", "exists", "has-a-token", "held", "lock-lost", "mismatch", "no-former-generation",
    "no-member", "not-a-member", "not-found", "not-held", "stale", "stale-epoch",
)  # fmt: skip
"""Errors with which the system refuses an operation, or its client because it knows the answer without asking."""

SNAPSHOT_DEADLINES: Final = (
    "move_deadline", "rejoin_deadline", "obedience_deadline", "deletion_deadline", "retention_deadline",
)  # fmt: skip
"""The deadlines that the snapshots of the system at rest, after a run, must meet."""
DEADLINES: Final = ("rebalance_deadline", *SNAPSHOT_DEADLINES, "group_deadline")
"""The deadlines with a default that depends on ``recovery_deadline``."""
MAX_SECONDS: Final = 10**9
"""About thirty years. The sum of a few such times fits into 64 bits as nanoseconds."""
SNAPSHOT_MARGIN: Final = 5 * NANOSECONDS
"""Time for a few more snapshots after the longest of ``SNAPSHOT_DEADLINES``."""


_TRANSACTION_ORDERS: Final[Mapping[Order, Literal["none", "process", "real-time"]]] = {
    Order.NONE: "none", Order.SESSION: "process", Order.REAL_TIME: "real-time",
}  # fmt: skip


class Toleration(msgspec.Struct, frozen=True):
    """Anomalies that are tolerated in a run with one of these faults, because the system's design allows them."""

    anomalies: tuple[str, ...]
    faults: tuple[str, ...]
    """Names of faults. For a name in ``disturbance.EQUIVALENT``, other faults of equal effect count, too. Without
    names, the contract tolerates the anomalies in every run, and this object only gives the reason."""
    because: str
    """The reason: a clause without a full stop."""


class ExposureMinimum(msgspec.Struct, frozen=True):
    """Minimum number of claims of an anomaly's check that a run must expose (:mod:`assay.checkers.exposure`)."""

    anomaly: str
    count: int = 1
    share: float = 0.0
    """Minimum share of all claims, from 0 to 1."""


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Promises of one configuration. The default forbids every anomaly that applies to the history."""

    forbidden: tuple[str, ...] | None = None
    """None: every anomaly of every family of checks that has rows in the history."""
    needed: tuple[str, ...] | None = None
    """Forbidden anomalies for which a run must have data; otherwise it is unknown. None: all forbidden anomalies."""
    tolerated: tuple[str, ...] = ()
    """Anomalies that are reported and counted, but do not fail the run."""
    conditional: tuple[Toleration, ...] = ()
    """Set by :meth:`tolerate_under`. These anomalies are forbidden unless :meth:`under` applies."""
    recovery_deadline: float = 30.0
    """Seconds from the heal of a fault to the first acknowledged send, and to the first poll that reaches the end."""
    rebalance_deadline: float | None = None
    """Seconds that a partition of a living group may be without an owner; None: ``recovery_deadline``."""
    move_deadline: float | None = None
    """Seconds in which an accepted move of a replica must end if nothing hinders it; None: ``recovery_deadline``. This
    and the next deadlines count while the cluster is at rest: every fault is healed and no client works.
    """
    rejoin_deadline: float | None = None
    """Seconds in which a live replica must return to the in-sync set; None: ``recovery_deadline``."""
    obedience_deadline: float | None = None
    """Seconds in which replicas must take the roles of the stored partition state; None: ``recovery_deadline``."""
    deletion_deadline: float | None = None
    """Seconds in which a deleted topic must be gone everywhere; None: ``recovery_deadline``."""
    retention_deadline: float | None = None
    """Seconds for which an expired segment or offset may stay after the next interval of its clean-up; None:
    ``recovery_deadline``."""
    group_deadline: float | None = None
    """Seconds in which a group with polling members must read every partition to its end; None: half of
    ``recovery_deadline``, because the drain does not wait longer."""
    fenced_by_requests: bool = False
    """Whether a leased resource learns a newer fencing token only from a request that carries it."""
    minimum_operations: int = 10
    """Minimum number of successful operations in the whole run. Here and below, only operations that wrote or read a
    value count."""
    minimum_during_fault: int = 1
    """Minimum number of successful operations called and returned during each disturbance: a fault, or faults that
    overlap or follow each other at once (:mod:`assay.checkers.judging.disturbance`). 0 if a fault stops everything."""
    failover: float | None = None
    """Seconds until other servers take over from a dead one, by the system's design. A shorter disturbance need not
    contain a success. None: the value of the system (``SupportsFailover``), or 0 if it has none.
    """
    patience: float = 0.0
    """Seconds for which clients wait for a silent server before they turn to another. It may outlast a failover."""
    may_stall: tuple[str, ...] = ()
    """Names of faults during which the system, by its design, may serve no client until the heal."""
    refusals: tuple[str, ...] = STANDARD_REFUSALS
    """Errors with which a failed operation counts as answered: the system refused it. A kind of operation without any
    answer makes the run unknown (:mod:`assay.checkers.judging.health`)."""
    minimum_exposed: tuple[ExposureMinimum, ...] = ()
    """Set by :meth:`need_exposed`. A run below these minimums is unknown."""
    minimum_after_heal: int = 1
    """Minimum number of successful operations called after the last heal."""
    repeated_values: bool = False
    """Whether the workload adds equal values to a log, a queue or a set on purpose. Otherwise a run in which a value
    was added twice gets a warning (:mod:`assay.checkers.judging.weaknesses`)."""
    linearizable_ends: bool = False
    """Whether the log end offsets that the system reports are linearizable (KIP-207). Then ``unseen`` uses them."""
    linearizable_queues: bool = False
    """Whether queues promise that a call finds a queue empty only if it was empty at some moment of the call. Then
    ``queue-false-empty`` is checked."""
    linearizable_sets: bool = False
    """Whether sets promise that a read shows the set's state at some moment of the call. Then ``set-fork`` is checked.
    """
    transaction_order: Literal["none", "process", "real-time"] = "none"
    """The order that transactions must respect in addition to their dependencies.

    - ``process``: the order in which each process made its transactions
    - ``real-time``: a transaction that returned before another was called precedes it (strict serializability)

    A cycle with such an edge is an anomaly of its own, for example ``G-single-real-time``. With ``real-time``, reads of
    values that only grow must respect the order as well.
    """
    transaction_level: str | None = None
    """The isolation level that transactions must satisfy (``assay.checkers.isolation.levels``). Set by
    :meth:`isolate`. None: the anomalies that the contract forbids define the level."""
    transaction_seconds: float = 300.0
    """Seconds in which the level is decided; after them it is unknown."""
    transaction_all_reads: bool = False
    """Whether the level also judges the reads of failed and unknown transactions, if they are recorded."""
    unflushed: int = 0
    """Number of last records of a partition that may be lost if *all* servers lose power together.

    It is M - 1 for a log that is fsynced every M messages. Such losses are reported as ``unflushed-loss``, all others
    as usual. Set by :meth:`tolerate_unflushed`.
    """
    dense_offsets: bool = False
    """Whether each offset of an uncompacted log holds a record, as in Kafka before transactions."""
    retention_ms: int | None = None
    """The topics' ``retention.ms`` until an effect ``setting`` changes it. -1 means unlimited, and None unknown."""
    retention_bytes: int | None = None
    """The topics' ``retention.bytes``. -1 means unlimited, and None unknown."""
    clock_difference: float = 1.0
    """Seconds by which wall clocks of servers and clients may differ if no fault sets a clock wrong. A run adds the
    difference that it measures, if that is larger."""
    reading_deadline: float = 10.0
    """Seconds in which a reader must advance to an existing record if no fault is active."""
    progress_deadline: float = 4.0
    """Seconds in which a long-lived client must get what other clients get, while no fault except dead servers is
    active."""
    compacted: tuple[str, ...] = ()
    """Keys (``topic-partition``) of compacted topics: only the last value of each message key must stay."""
    model: str | None = None
    """The model by which the operations of each key must be linearizable: its name, or ``package.module:Class``."""
    lasting_tombstones: bool = False
    """Whether compacted topics keep null values for the whole run (``delete.retention.ms``)."""

    def __post_init__(self) -> None:
        both = sorted(set(self.forbidden or ()) & set(self.tolerated))
        if both:
            raise ValueError(f"a contract cannot both forbid and tolerate {', '.join(both)}; choose one")
        if self.unflushed < 0:
            raise ValueError(f"unflushed is {self.unflushed}; it is a number of records")
        for name in ("failover", "patience"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds < MAX_SECONDS:
                raise ValueError(f"{name} is {seconds} s; it cannot be negative, and is shorter than {MAX_SECONDS} s")
        if self.transaction_level is not None:
            find_level(self.transaction_level)  # a stored contract may have any text here
        for name in (
            "recovery_deadline", "reading_deadline", "progress_deadline", "transaction_seconds", "clock_difference",
            *DEADLINES,
        ):  # fmt: skip
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < MAX_SECONDS:
                raise ValueError(f"{name} is {seconds} s; it must be positive, and shorter than {MAX_SECONDS} s")

    def forbid_also(self, *anomalies: str) -> Contract:
        """Returns a copy that also forbids these anomalies unless it tolerates them. A run needs no data for them."""
        if self.forbidden is None:
            return self
        needed = self.forbidden if self.needed is None else self.needed
        more = (name for name in anomalies if name not in self.tolerated)
        forbidden = tuple(dict.fromkeys((*self.forbidden, *more)))
        return msgspec.structs.replace(self, forbidden=forbidden, needed=needed)

    def need(self, *anomalies: str) -> Contract:
        """Returns a copy that also forbids these anomalies. A run without data for them is unknown."""
        more = self.forbid_also(*anomalies)
        needed = None if more.needed is None else tuple(dict.fromkeys((*more.needed, *anomalies)))
        return msgspec.structs.replace(more, needed=needed)

    def need_exposed(self, anomaly: str, *, count: int = 1, share: float = 0.0) -> Contract:
        """Returns a copy by which a run is unknown unless it exposes enough claims of the anomaly's check.

        ``count`` and ``share`` are minimums; a share of 1 means all claims. For example, with
        ``need_exposed("fencing-violation", count=20)`` at least 20 leases must be followed by another lease. Raises
        ``ValueError`` for a count below 0 and a share outside of 0 to 1.
        """
        if count < 0 or not 0 <= share <= 1:
            raise ValueError(f"need_exposed({anomaly!r}): a count of {count} and a share of {share} are not possible")
        others = tuple(one for one in self.minimum_exposed if one.anomaly != anomaly)
        return msgspec.structs.replace(self, minimum_exposed=(*others, ExposureMinimum(anomaly, count, share)))

    def tolerate(self, *anomalies: str, because: str | None = None) -> Contract:
        """Returns a copy that reports and counts these anomalies without failing the run.

        ``because`` is a clause. It is shown in the verdict and the report of a run with these anomalies.
        """
        forbidden = None if self.forbidden is None else tuple(name for name in self.forbidden if name not in anomalies)
        tolerated = tuple(dict.fromkeys((*self.tolerated, *anomalies)))
        why = () if because is None else (Toleration(anomalies, (), because),)
        conditional = (*self.conditional, *why)
        return msgspec.structs.replace(self, forbidden=forbidden, tolerated=tolerated, conditional=conditional)

    def isolate(self, level: str, *, seconds: float = 300.0, all_reads: bool = False) -> Contract:
        """Returns a copy by which the transactions must satisfy an isolation level, such as ``snapshot-isolation``.

        It forbids all anomalies that refute the level, except those that the contract tolerates by name. It tolerates
        the aborted, intermediate and internal reads that the level allows. ``seconds``: the time limit; beyond it the
        level is unknown. ``all_reads``: whether the recorded reads of failed and unknown transactions are judged as
        well. Raises ``ValueError`` for an unknown level.
        """
        found = find_level(level)
        allowed = tuple(name for name in VALUE_ANOMALIES if name not in found.forbidden_values)
        contract = self.tolerate(*allowed, because=f"{found.name} allows it") if allowed else self
        return msgspec.structs.replace(
            contract, transaction_level=found.name, transaction_seconds=seconds, transaction_all_reads=all_reads,
            transaction_order=_TRANSACTION_ORDERS[found.order],
        )  # fmt: skip

    def tolerate_no_more(self, *anomalies: str) -> Contract:
        """Returns a copy that forbids these anomalies again if it tolerated them in every run."""
        again = tuple(name for name in self.tolerated if name in anomalies)
        reasons = [
            one
            if one.faults
            else Toleration(tuple(name for name in one.anomalies if name not in again), (), one.because)
            for one in self.conditional
        ]
        return msgspec.structs.replace(
            self,
            forbidden=None if self.forbidden is None else (*self.forbidden, *again),
            tolerated=tuple(name for name in self.tolerated if name not in again),
            conditional=tuple(one for one in reasons if one.anomalies),
        )

    def tolerate_under(self, *anomalies: str, faults: Sequence[str], because: str) -> Contract:
        """Returns a copy that tolerates these anomalies in runs with one of these faults, even if partly injected.

        ``because`` is shown in the verdict and the report of such a run. Other runs are judged as before.
        """
        if not anomalies or not faults or not because.strip():
            raise ValueError("tolerate_under needs anomalies, faults and a reason (because); none of them may be empty")
        more = Toleration(anomalies, tuple(faults), because)
        return msgspec.structs.replace(self, conditional=(*self.conditional, more))

    def under(self, injected: Collection[str]) -> Contract:
        """Returns the contract for a run in which these faults were injected."""
        active = [one for one in self.conditional if set(one.faults) & set(injected)]
        return self.tolerate(*(name for one in active for name in one.anomalies)) if active else self

    def reasons(self, injected: Mapping[str, str] | Collection[str]) -> dict[str, str]:
        """Returns the reason for each tolerated anomaly, if one was given.

        ``injected``: names of the injected faults, or a mapping from each name to the name to show.
        """
        shown = injected if isinstance(injected, Mapping) else {}
        reasons: dict[str, str] = {}
        for one in self.conditional:
            present = [fault for fault in one.faults if fault in injected]
            where = f" in a run with {', '.join(shown.get(fault, fault) for fault in present)}," if one.faults else ""
            for anomaly in one.anomalies if present or not one.faults else ():
                reasons[anomaly] = f"tolerated{where} because {one.because}"
        return reasons

    def tolerate_unflushed(self, flush_messages: int) -> Contract:
        """Returns a copy for logs that are fsynced every ``flush_messages`` messages."""
        more = () if flush_messages == 1 else ("unflushed-loss",)
        return msgspec.structs.replace(self.tolerate(*more), unflushed=flush_messages - 1)

    def forbids(self, anomaly: str) -> bool:
        """Returns whether one instance of this anomaly fails the run."""
        if self.forbidden is None:
            return anomaly not in self.tolerated
        return anomaly in self.forbidden or (self._is_refutation(anomaly) and anomaly not in self.tolerated)

    def _is_refutation(self, anomaly: str) -> bool:
        """Returns whether the anomaly refutes the contract's isolation level."""
        return self.transaction_level is not None and anomaly in find_level(self.transaction_level).anomalies

    def needs(self, anomaly: str) -> bool:
        """Returns whether a run without data for this anomaly's check is unknown."""
        named = self.forbids(anomaly) and (self.forbidden is None or anomaly in self.forbidden)
        return named and (self.needed is None or anomaly in self.needed)

    def tolerates(self, anomaly: str) -> bool:
        return anomaly in self.tolerated

    @property
    def deadline(self) -> int:
        """``recovery_deadline`` in nanoseconds."""
        return int(self.recovery_deadline * NANOSECONDS)

    @property
    def longest_deadline(self) -> float:
        """The longest of all deadlines, in seconds."""
        deadlines = (getattr(self, name) for name in ("recovery_deadline", "reading_deadline", *DEADLINES))
        return max(self.progress_deadline, *(float(seconds) for seconds in deadlines if seconds is not None))

    @property
    def failover_nanoseconds(self) -> int:
        """The duration of a failover as clients see it, in nanoseconds: ``failover`` plus ``patience``.

        It is 0 if ``failover`` is unknown.
        """
        return 0 if not self.failover else int((self.failover + self.patience) * NANOSECONDS)

    def within(self, deadline: str) -> int:
        """Returns one of ``DEADLINES``, by its field's name, in nanoseconds."""
        seconds = getattr(self, deadline)
        if seconds is not None:
            return int(seconds * NANOSECONDS)
        return self.deadline // 2 if deadline == "group_deadline" else self.deadline

    @property
    def rest(self) -> int:
        """Nanoseconds for which snapshots of the system are taken after a run."""
        return max(self.within(name) for name in SNAPSHOT_DEADLINES) + SNAPSHOT_MARGIN

    def to_json(self) -> bytes:
        """Returns the contract as ``settings.json`` holds it."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Contract:
        """Reads a contract. Raises ``msgspec.ValidationError``, which names the field, if the data is no contract."""
        return msgspec.json.decode(data, type=cls)


def forbid(
    *anomalies: str,
    recovery_deadline: float = 30.0,
    rebalance_deadline: float | None = None,
    may_stall: Sequence[str] = (),
    patience: float = 0.0,
    refusals: Sequence[str] = (),
    repeated_values: bool = False,
) -> Contract:
    """Returns a contract that forbids these anomalies.

    It always forbids ``no-recovery``, unexpected exits of servers and broken invariants, too. ``no-recovery`` means no
    success within ``recovery_deadline`` seconds of a heal.

    - ``refusals``: errors of the client that are answers of the system, in addition to ``STANDARD_REFUSALS``
    - ``repeated_values``: the workload adds equal values on purpose

    For example, ``forbid(*LOG_ANOMALIES).tolerate("duplicate")`` is the contract of a producer that retries.
    """
    forbidden = tuple(dict.fromkeys((*anomalies, NO_RECOVERY, UNEXPECTED_EXIT, BROKEN_INVARIANT)))
    return Contract(
        forbidden=forbidden,
        recovery_deadline=recovery_deadline,
        rebalance_deadline=rebalance_deadline,
        may_stall=tuple(may_stall),
        patience=patience,
        refusals=(*STANDARD_REFUSALS, *refusals),
        repeated_values=repeated_values,
    )


def linearizable(
    model: str | type,
    *,
    recovery_deadline: float = 30.0,
    may_stall: Sequence[str] = (),
    patience: float = 0.0,
    refusals: Sequence[str] = (),
) -> Contract:
    """Returns a contract by which the operations of each key must be linearizable.

    It also forbids all that :func:`forbid` always forbids. ``model`` is the name of a built-in model, the name of a
    model that a hook adds, or your own class at the top level of its module. Clients need no ``effects``, because the
    operations themselves are judged. Raises ``ValueError`` for a class that cannot be found by name.

    Examples: ``linearizable("cas-register")``, ``linearizable(Account).forbid_also(*SET_ANOMALIES)``.
    """
    if not isinstance(model, str) and "<locals>" in model.__qualname__:
        raise ValueError(f"the model {model.__name__} is defined inside a function; put it at the top of its module")
    name = model if isinstance(model, str) else f"{model.__module__}:{model.__qualname__}"
    promised = forbid(recovery_deadline=recovery_deadline, may_stall=may_stall, patience=patience, refusals=refusals)
    return msgspec.structs.replace(promised, model=name)
