"""Locks that expire when their holder is silent, and fencing tokens, for any system that has them.

There are two workloads, each with a blocking client that a system's module completes:

- :class:`LockedSet`, with the traffic of ``sets``: a set is changed by read and write under the lock, so two concurrent
  holders undo each other's changes: ``forbid(*SET_ANOMALIES)``. If ``fenced``, a holder's write is conditional on its
  lock, checked by the system in the same step; then a paused holder does no harm.
- :class:`Leases`, with :func:`traffic`: each holder gets a token, which rises with each acquisition, and acts under it:
  :func:`build_contract`. The guarded resource must reject older tokens. If it learns of a newer token only when that
  is used, the contract needs ``fenced_by_requests``.

A subclass names in ``errors`` the exceptions that mean "no answer". This module imports only packages that client nodes
have, because such a test pauses the holders.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from assay import Completed, Completion, Context, Effect, Generator, Operation, Outcome, Phase, unfold
from assay.workloads.generic import sets

if TYPE_CHECKING:
    from assay import Contract

THINK_SECONDS: Final = 0.05
"""Seconds between a holder's read and its write."""
FEWEST_LEASES: Final = 20
"""Leases of a run that another lease must have followed."""
ACQUIRE, GUARDED, RELEASE = "acquire", "guarded", "release"
HELD, STALE, NOT_HELD, HAS_TOKEN = "held", "stale-epoch", "not-held", "has-a-token"
"""Reasons of a failed operation: another client holds the lock, a newer token is known, the client has no token, or it
has one already.

A client that has a token does not check whether the token is still valid, so its acquire fails.
"""


class LockedSet(sets.SetClient):
    """A subclass defines how the lock is acquired, and where the set is stored."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    fenced: bool = False

    def acquire(self) -> Any:
        """Waits for the lock and returns it for the other methods."""
        raise NotImplementedError

    def release(self, lock: Any) -> None:
        raise NotImplementedError

    def load(self) -> list[int]:
        """Returns the set, empty if it was never stored."""
        raise NotImplementedError

    def store(self, elements: list[int], lock: Any) -> bool:
        """Stores the set and returns whether it was stored. Without a ``lock`` the write is unconditional."""
        raise NotImplementedError

    def invoke(self, operation: Operation) -> Completion:
        lock = None
        try:
            if operation.f == sets.READ:
                return Completion(Outcome.OK, self.load())
            lock = self.acquire()
            elements = [*self.load(), operation.argument]
            time.sleep(THINK_SECONDS)
        except self.errors as error:
            return Completion(Outcome.FAIL, error=type(error).__name__)
        else:
            completion = self._store(elements, lock)
            if completion.outcome is Outcome.INFO:
                lock = None  # the write may still arrive, so the lock is not released and must expire
            return completion
        finally:
            if lock is not None:
                with suppress(*self.errors):
                    self.release(lock)

    def _store(self, elements: list[int], lock: Any) -> Completion:
        try:
            done = self.store(elements, lock if self.fenced else None)
        except self.errors as error:
            return Completion(Outcome.INFO, error=type(error).__name__)
        return Completion(Outcome.OK) if done else Completion(Outcome.FAIL, error="lock-lost")


def traffic(name: str) -> Generator:
    """Each process acquires, uses and releases the lock at random, and in this order after the last heal."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        f = context.choose((ACQUIRE, *[GUARDED] * 6, RELEASE), salt=1)
        return Operation(f, name, number if f == GUARDED else None), number + 1

    return unfold(step, 0) | [Operation(f, name, phase=Phase.DRAIN) for f in (ACQUIRE, GUARDED, RELEASE)] * 5


def build_contract(*, may_stall: Sequence[str] = (), fenced_by_requests: bool = False) -> "Contract":
    """Forbids actions under an old token, and two holders with one token, for :class:`Leases`.

    Two holders at once with different tokens are legal, because the lease of the first may have expired without its
    knowledge. For a lock that never expires, use ``linearizable("mutex")``.

    A run with fewer than ``FEWEST_LEASES`` leases that another lease followed is unknown, because a lock that is hardly
    ever given proves nothing. ``may_stall``, ``fenced_by_requests``: as in ``assay.Contract``.
    """
    from assay import forbid  # nodes have no contracts

    contract = forbid("fencing-violation", "double-ownership", may_stall=may_stall)
    contract = contract.need_exposed("fencing-violation", count=FEWEST_LEASES)
    return msgspec.structs.replace(contract, fenced_by_requests=fenced_by_requests)


class Leases:
    """A subclass defines how the lock is acquired, and what a holder does."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    token: int | None = None

    def acquire(self, name: str) -> int | None:
        """Returns a token above all earlier tokens, or None if another client holds the lock."""
        raise NotImplementedError

    def act(self, name: str, token: int, argument: Any) -> bool:
        """Acts under the token. Returns False if the action was rejected because of a newer token."""
        raise NotImplementedError

    def release(self, name: str, token: int) -> None:
        raise NotImplementedError

    def invoke(self, operation: Operation) -> Completion:
        name, token = str(operation.key), self.token
        try:
            if operation.f == ACQUIRE:
                if token is not None:
                    return Completion(Outcome.FAIL, error=HAS_TOKEN)
                self.token = self.acquire(name)
                held = Completion(Outcome.OK, {"token": self.token})
                return held if self.token is not None else Completion(Outcome.FAIL, error=HELD)
            if token is None:
                return Completion(Outcome.FAIL, error=NOT_HELD)
            if operation.f == RELEASE:
                self.token = None
                self.release(name, token)
            elif not self.act(name, token, operation.argument):
                self.token = None
                return Completion(Outcome.FAIL, {"token": token}, error=STALE)
            return Completion(Outcome.OK, {"token": token})
        except self.errors as error:
            return Completion(Outcome.INFO, None if token is None else {"token": token}, error=type(error).__name__)

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        """Returns the row of an operation, and one for a lost lock. An operation that the harness gave up has none."""
        operation, completion = completed.operation, completed.completion
        token = (completion.result or {}).get("token")
        if token is None:
            return ()
        known = {"token": token, "owner": f"process-{completed.process}", "assignment": token}
        done = Effect(operation.f, str(operation.key), **known)
        lost = Effect("lost", str(operation.key), outcome=Outcome.OK, **known)
        return (done, lost) if completion.error == STALE else (done,)
