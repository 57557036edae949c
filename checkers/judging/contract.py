"""What a configuration promises: the anomalies that it forbids, those that it tolerates, and how much must happen.

Or what its operations must be: those of an object that a model describes, one after the other in some order.

Detection and policy are separate. Checks report every anomaly they find; the contract says what a finding means. An
anomaly that a contract neither forbids nor tolerates makes a run in which it occurs unknown: the contract cannot judge
it. A contract is plain data and is stored in the run's ``settings.json``, so an old run is judged by its own promises.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

import msgspec

from assay.checkers.times import NANOSECONDS

NO_RECOVERY: Final = "no-recovery"
"""The liveness anomaly behind ``recovery_deadline``; :func:`forbid` always includes it."""

UNEXPECTED_EXIT: Final = "unexpected-exit"
BROKEN_INVARIANT: Final = "broken-invariant"
"""A server's process ended by itself; :func:`forbid` always includes it."""

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
"""Anomalies that no promise excuses: a value was seen that no one wrote, whose write certainly failed, or that was
written later only. An experiment must not tolerate them, so a run without its contract fails by them."""

AT_REST: Final = ("move_deadline", "rejoin_deadline", "obedience_deadline", "deletion_deadline", "retention_deadline")
"""The deadlines of what is looked at when a run is over."""
DEADLINES: Final = ("rebalance_deadline", *AT_REST, "group_deadline")
"""Those that may be left out."""
LONGEST: Final = 10**9
"""Seconds, some thirty years: a deadline that no run reaches, with room in 64 bits for the nanoseconds of a few."""
SPARE: Final = 5 * NANOSECONDS
"""So much longer than the longest of them: a few looks."""


class Toleration(msgspec.Struct, frozen=True):
    """Anomalies that are forbidden, but not in a run with one of these faults, which the design cannot survive."""

    anomalies: tuple[str, ...]
    faults: tuple[str, ...]
    """By name; of some (``disturbance.ALIKE``) those that declare the same count, too. None: in no run are they
    forbidden, and this is the reason alone."""
    because: str
    """Why the design allows it: a clause without a full stop."""


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Promises of one configuration. The default forbids every anomaly that applies to the history."""

    forbidden: tuple[str, ...] | None = None
    """None: every anomaly of every family of checks that has rows in the history."""
    needed: tuple[str, ...] | None = None
    """Of what is forbidden, what a run must have data for, or it is unknown. None: all of it."""
    tolerated: tuple[str, ...] = ()
    """They are reported and counted, and do not fail the run."""
    conditional: tuple[Toleration, ...] = ()
    """Set by :meth:`tolerate_under`; these anomalies are forbidden until :meth:`under` says otherwise."""
    recovery_deadline: float = 30.0
    """Seconds from the heal of a fault to the first acknowledged send, and to the first poll that reaches the end."""
    rebalance_deadline: float | None = None
    """Seconds that a partition of a living group may be without an owner; None: ``recovery_deadline``."""
    move_deadline: float | None = None
    """Seconds in which a move that was accepted ends, once nothing hinders it; None: ``recovery_deadline``. This and
    the next ones count while the cluster is at rest: every fault healed, no client at work (docs/anomalies.md).
    """
    rejoin_deadline: float | None = None
    """Seconds in which a replica that can is in the in-sync set again; None: ``recovery_deadline``."""
    obedience_deadline: float | None = None
    """Seconds in which replicas obey a state that was written; None: ``recovery_deadline``."""
    deletion_deadline: float | None = None
    """Seconds in which a topic that is deleted is gone everywhere; None: ``recovery_deadline``."""
    retention_deadline: float | None = None
    """Seconds that a segment which is due may stay, after the interval at which it is looked for, or an offset that may
    be forgotten; None: ``recovery_deadline``."""
    group_deadline: float | None = None
    """Seconds in which a group whose members poll has read every partition to its end; None: half of
    ``recovery_deadline``, since the drain does not wait for longer than that."""
    fenced_by_requests: bool = False
    """Whether the guard of what a lease protects learns newer tokens only from requests made to it under them."""
    minimum_operations: int = 10
    """Successful operations in the whole run; here and below those that wrote or read a value, not empty polls."""
    minimum_during_fault: int = 1
    """Successful operations called and returned during each disturbance: a fault, or faults that overlap or follow each
    other at once (:mod:`assay.checkers.judging.disturbance`); 0 where a fault stops everything."""
    failover: float | None = None
    """Seconds until others have taken over from a server that is gone, by the system's design: what disturbs it for
    less need not leave time for a success. None: what the system says of itself (``FailingOver``), else 0.
    """
    patience: float = 0.0
    """Seconds for which the clients wait for a server that is silent until they turn to another: a request that was
    sent before others took over is waited for after that, too."""
    may_stall: tuple[str, ...] = ()
    """Names of faults under which the system, by its design, may serve no one until the heal; say why next to it."""
    minimum_after_heal: int = 1
    """Successful operations called after the last heal."""
    linearizable_ends: bool = False
    """Whether the log end offsets that the system reports are linearizable (KIP-207); then they enter rule U."""
    linearizable_queues: bool = False
    """Whether a queue that says that it is empty was so at some moment of the call; then ``queue-false-empty`` is
    judged."""
    linearizable_sets: bool = False
    """Whether a read of a set shows it as it was at some moment of the call; then ``set-fork`` is judged."""
    transaction_order: Literal["none", "process", "real-time"] = "none"
    """What transactions must respect in addition to their dependencies: the order in which each process made them, or
    that one had returned before another was called (strict serializability); a cycle with it is, say,
    ``G-single-real-time``. Reads of values that only grow must respect the latter, too, where it is said.
    """
    unflushed: int = 0
    """How many of the last records of a partition, acknowledged or not, may go when *all* servers lose power together.

    M - 1 of a log that is fsynced every M messages. Those that go are reported as ``unflushed-loss``; any other loss is
    reported as usual. Set by :meth:`tolerate_unflushed`.
    """
    dense_offsets: bool = False
    """Whether each offset of an uncompacted log holds a record, as in Kafka before transactions."""
    retention_ms: int | None = None
    """The topics' ``retention.ms`` until an effect ``setting`` says otherwise; -1: kept for ever, None: not known."""
    retention_bytes: int | None = None
    """The same of ``retention.bytes``."""
    reading_deadline: float = 10.0
    """Seconds within which a reader gets on to a record that is there, with no fault in the way."""
    progress_deadline: float = 4.0
    """Seconds within which a client that lives on gets what others get, with no fault in the way but that servers are
    gone."""
    compacted: tuple[str, ...] = ()
    """Keys (``topic-partition``) of compacted topics: only the last value per message key is expected to stay."""
    model: str | None = None
    """By which the operations of each key must be linearizable, too: a model's name, or ``package.module:Class``."""
    lasting_tombstones: bool = False
    """Whether null values stay there, too, as long as a run may last (``delete.retention.ms``)."""

    def __post_init__(self) -> None:
        both = sorted(set(self.forbidden or ()) & set(self.tolerated))
        if both:
            raise ValueError(f"a contract cannot both forbid and tolerate {', '.join(both)}; choose one")
        if self.unflushed < 0:
            raise ValueError(f"unflushed is {self.unflushed}; it is a number of records")
        for name in ("failover", "patience"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds < LONGEST:
                raise ValueError(f"{name} is {seconds} s; it cannot be negative, and is shorter than {LONGEST} s")
        for name in ("recovery_deadline", "reading_deadline", "progress_deadline", *DEADLINES):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < LONGEST:
                raise ValueError(f"{name} is {seconds} s; it must be positive, and shorter than {LONGEST} s")

    def forbid_also(self, *anomalies: str) -> Contract:
        """The same contract that forbids these, too, unless it tolerates them; a run need have no data for them."""
        if self.forbidden is None:
            return self
        needed = self.forbidden if self.needed is None else self.needed
        more = (name for name in anomalies if name not in self.tolerated)
        forbidden = tuple(dict.fromkeys((*self.forbidden, *more)))
        return msgspec.structs.replace(self, forbidden=forbidden, needed=needed)

    def need(self, *anomalies: str) -> Contract:
        """The same contract that forbids these, too, and of which a run must have data for them."""
        more = self.forbid_also(*anomalies)
        needed = None if more.needed is None else tuple(dict.fromkeys((*more.needed, *anomalies)))
        return msgspec.structs.replace(more, needed=needed)

    def tolerate(self, *anomalies: str, because: str | None = None) -> Contract:
        """The same contract with these anomalies counted and reported, but not failing the run.

        ``because``, a clause, stands in the verdict and in the report of a run in which they were found.
        """
        forbidden = None if self.forbidden is None else tuple(name for name in self.forbidden if name not in anomalies)
        tolerated = tuple(dict.fromkeys((*self.tolerated, *anomalies)))
        why = () if because is None else (Toleration(anomalies, (), because),)
        conditional = (*self.conditional, *why)
        return msgspec.structs.replace(self, forbidden=forbidden, tolerated=tolerated, conditional=conditional)

    def tolerate_no_more(self, *anomalies: str) -> Contract:
        """The same contract that forbids these of what it tolerated in every run."""
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
        """The same contract, that tolerates these anomalies in runs in which one of these faults was injected, if only
        half of it.

        ``because`` stands in the verdict and in the report of such a run. Everywhere else they stay what they were.
        """
        if not anomalies or not faults or not because.strip():
            raise ValueError("what is tolerated, under which faults, and why: none of them may be left out")
        more = Toleration(anomalies, tuple(faults), because)
        return msgspec.structs.replace(self, conditional=(*self.conditional, more))

    def under(self, injected: Collection[str]) -> Contract:
        """What this contract says of a run in which these faults were injected."""
        active = [one for one in self.conditional if set(one.faults) & set(injected)]
        return self.tolerate(*(name for one in active for name in one.anomalies)) if active else self

    def reasons(self, injected: Mapping[str, str] | Collection[str]) -> dict[str, str]:
        """Anomaly to the words for why it is tolerated in such a run, where that was given. A mapping says what to call
        each of them.
        """
        called = injected if isinstance(injected, Mapping) else {}
        words: dict[str, str] = {}
        for one in self.conditional:
            present = [fault for fault in one.faults if fault in injected]
            where = f" in a run with {', '.join(called.get(fault, fault) for fault in present)}," if one.faults else ""
            for anomaly in one.anomalies if present or not one.faults else ():
                words[anomaly] = f"tolerated{where} because {one.because}"
        return words

    def tolerate_unflushed(self, flush_messages: int) -> Contract:
        """The same contract for logs that are fsynced every so many messages."""
        more = () if flush_messages == 1 else ("unflushed-loss",)
        return msgspec.structs.replace(self.tolerate(*more), unflushed=flush_messages - 1)

    def forbids(self, anomaly: str) -> bool:
        """Whether one instance of this anomaly fails the run."""
        if self.forbidden is None:
            return anomaly not in self.tolerated
        return anomaly in self.forbidden

    def needs(self, anomaly: str) -> bool:
        """Whether a run without data for this anomaly's check is unknown."""
        return self.forbids(anomaly) and (self.needed is None or anomaly in self.needed)

    def tolerates(self, anomaly: str) -> bool:
        return anomaly in self.tolerated

    @property
    def deadline(self) -> int:
        """``recovery_deadline`` in nanoseconds."""
        return int(self.recovery_deadline * NANOSECONDS)

    @property
    def longest_deadline(self) -> float:
        """The longest of all deadlines, in seconds."""
        named = (getattr(self, name) for name in ("recovery_deadline", "reading_deadline", *DEADLINES))
        return max(self.progress_deadline, *(float(seconds) for seconds in named if seconds is not None))

    @property
    def failing_over(self) -> int:
        """What a failover takes as clients see it, ``failover`` and then ``patience``, in nanoseconds.

        0 where it is not known how soon others take over.
        """
        return 0 if not self.failover else int((self.failover + self.patience) * NANOSECONDS)

    @property
    def rebalance(self) -> int:
        """``rebalance_deadline`` in nanoseconds."""
        return self.deadline if self.rebalance_deadline is None else int(self.rebalance_deadline * NANOSECONDS)

    def within(self, deadline: str) -> int:
        """A deadline that may be left out, by its field's name, in nanoseconds."""
        seconds = getattr(self, deadline)
        if seconds is not None:
            return int(seconds * NANOSECONDS)
        return self.deadline // 2 if deadline == "group_deadline" else self.deadline

    @property
    def rest(self) -> int:
        """How long a system is looked at, in nanoseconds, until everything must have come to its end."""
        return max(self.within(name) for name in AT_REST) + SPARE

    def to_json(self) -> bytes:
        """As ``settings.json`` holds it."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Contract:
        """Raises ``msgspec.ValidationError`` naming the field when the data is no contract."""
        return msgspec.json.decode(data, type=cls)


def forbid(
    *anomalies: str,
    recovery_deadline: float = 30.0,
    rebalance_deadline: float | None = None,
    may_stall: Sequence[str] = (),
    patience: float = 0.0,
) -> Contract:
    """A contract that forbids these anomalies, that a server ends by itself, that an invariant of the system's own is
    broken, and ``no-recovery`` within ``recovery_deadline`` seconds of each heal.

    ``forbid(*LOG_ANOMALIES).tolerate("duplicate")`` is the promise of a producer that retries.
    """
    forbidden = tuple(dict.fromkeys((*anomalies, NO_RECOVERY, UNEXPECTED_EXIT, BROKEN_INVARIANT)))
    return Contract(
        forbidden=forbidden,
        recovery_deadline=recovery_deadline,
        rebalance_deadline=rebalance_deadline,
        may_stall=tuple(may_stall),
        patience=patience,
    )


def linearizable(
    model: str | type, *, recovery_deadline: float = 30.0, may_stall: Sequence[str] = (), patience: float = 0.0
) -> Contract:
    """A contract by which the operations of each key are linearizable by a model, and no server ends by itself.

    ``model``: the name of one that comes along or that a hook adds, or a class of one's own, which must stand at the
    top of its module. Clients need no ``effects`` then: operations are judged as they were called, and as they ended.
    Raises ``ValueError`` for a class that is found by no name.

    ``linearizable("cas-register")``, ``linearizable(Account).forbid_also(*SET_ANOMALIES)``.
    """
    if not isinstance(model, str) and "<locals>" in model.__qualname__:
        raise ValueError(f"the model {model.__name__} is defined inside a function; put it at the top of its module")
    name = model if isinstance(model, str) else f"{model.__module__}:{model.__qualname__}"
    promised = forbid(recovery_deadline=recovery_deadline, may_stall=may_stall, patience=patience)
    return msgspec.structs.replace(promised, model=name)
