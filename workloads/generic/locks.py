"""Lock workloads: locks that expire when their holder is silent, and fencing tokens, for any system that has them.

There are two workloads, each with a blocking client. A subclass adds the calls of a system.

- :class:`LockedSet`, with the traffic of ``sets``: a holder of the lock reads a set and writes it with one more
  element. Two concurrent holders would undo each other's changes. The contract is ``forbid(*SET_ANOMALIES)``. If
  ``fenced``, the system writes only if the lock is still held, in one atomic step. Then a paused holder does no harm.
- :class:`Leases`, with :func:`traffic`: each holder gets a token, which rises with each acquisition, and acts with it.
  The contract is :func:`build_contract`. The guarded resource must reject older tokens. If it learns of a newer token
  only when the token is used, the contract needs ``fenced_by_requests``.

The attribute ``errors`` of a subclass has the exceptions that mean "no answer". This module imports only packages that
client nodes have, because tests of locks pause client nodes.
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
"""Minimum number of leases of a run that another lease must have followed."""
ACQUIRE, GUARDED, RELEASE = "acquire", "guarded", "release"
HELD, STALE, NOT_HELD, HAS_TOKEN = "held", "stale-epoch", "not-held", "has-a-token"
"""Errors of a failed operation: another client holds the lock, the resource knows a newer token, the client has no
token, or the client has a token already.

A client that has a token does not check whether the token is still valid, so its acquire fails.
"""


class LockedSet(sets.SetClient):
    """Client that changes a set under a lock. A subclass defines how the lock is acquired and the set is stored."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    fenced: bool = False
    """Whether the system writes only if the lock is still held: ``store`` then gets the lock, else None."""

    def acquire(self) -> Any:
        """Waits for the lock. Returns a value that the other methods get as ``lock``."""
        raise NotImplementedError

    def release(self, lock: Any) -> None:
        raise NotImplementedError

    def load(self) -> list[int]:
        """Returns the set, empty if it was never stored."""
        raise NotImplementedError

    def store(self, elements: list[int], lock: Any) -> bool:
        """Stores the set. Returns False if the ``lock`` was lost. Without a ``lock`` the write is unconditional."""
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
    """Yields acquisitions, actions and releases at random, and after the last heal in this order."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        f = context.choose((ACQUIRE, *[GUARDED] * 6, RELEASE), salt=1)
        return Operation(f, name, number if f == GUARDED else None), number + 1

    return unfold(step, 0) | [Operation(f, name, phase=Phase.DRAIN) for f in (ACQUIRE, GUARDED, RELEASE)] * 5


def build_contract(*, may_stall: Sequence[str] = (), fenced_by_requests: bool = False) -> "Contract":
    """Returns the contract of :class:`Leases`. It forbids actions with an old token, and two holders with one token.

    Two holders at once with different tokens are legal, because the first holder may not know that its lease has
    expired. For a lock that never expires, use ``linearizable("mutex")``.

    A run with fewer than ``FEWEST_LEASES`` leases that another lease followed is unknown, because a lock that is hardly
    ever acquired proves nothing. ``may_stall``, ``fenced_by_requests``: as in ``assay.Contract``.
    """
    from assay import forbid  # nodes have no contracts

    contract = forbid("fencing-violation", "double-ownership", may_stall=may_stall)
    contract = contract.need_exposed("fencing-violation", count=FEWEST_LEASES)
    return msgspec.structs.replace(contract, fenced_by_requests=fenced_by_requests)


class Leases:
    """Client of a lock with tokens. A subclass defines how the lock is acquired, and what a holder does."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    token: int | None = None
    """The token of this client's lock; None: it holds no lock, as far as it knows."""

    def acquire(self, name: str) -> int | None:
        """Returns a token above all earlier tokens, or None if another client holds the lock."""
        raise NotImplementedError

    def act(self, name: str, token: int, argument: Any) -> bool:
        """Acts with the token. Returns False if the action was rejected because of a newer token."""
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
        """Returns the row of an operation, and a row for a lost lock. An operation without a token has no rows."""
        operation, completion = completed.operation, completed.completion
        token = (completion.result or {}).get("token")
        if token is None:
            return ()
        known = {"token": token, "owner": f"process-{completed.process}", "assignment": token}
        done = Effect(operation.f, str(operation.key), **known)
        lost = Effect("lost", str(operation.key), outcome=Outcome.OK, **known)
        return (done, lost) if completion.error == STALE else (done,)
