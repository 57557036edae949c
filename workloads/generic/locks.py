"""Locks that end by themselves when their holder is silent, and fencing tokens: for any system that has them.

There are two workloads, each with a client that a module of a system completes. Both clients block.

- :class:`LockedSet`, with the traffic of ``sets``: a set is changed by reading and writing it under the lock, so two
  holders at once undo what one of them did: ``forbid(*SET_ANOMALIES)``. ``fenced``: a holder writes only if it has the
  lock still, which the system looks at in the same step; then it may sleep as long as it likes.
- :class:`Leases`, with :func:`traffic`: who acquired the lock gets a token, which rises with each holder, and does
  things under it: ``forbid("fencing-violation", "double-ownership")``. What is guarded must reject older tokens, and
  need not know of a newer one before it was used: then the contract says ``fenced_by_requests``.

What they raise where no answer came, a subclass names in ``errors``. This module imports what is on a client node only
(docs/guide/real_nodes.md): a holder that sleeps is what such a test is about.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from assay import Completed, Completion, Context, Effect, Generator, Operation, Outcome, Phase, unfold
from assay.workloads.generic import sets

THINKS: Final = 0.05
"""Seconds between a holder's read and its write."""
ACQUIRE, GUARDED, RELEASE = "acquire", "guarded", "release"
HELD, STALE, NOT_HELD, HAS = "held", "stale-epoch", "not-held", "has-a-token"
"""Why an operation failed: another has the lock, a newer token is known, the client has no token, or has one already.

Of a client that has a token it is not asked whether that is still good, so it has not acquired anything then.
"""


class LockedSet(sets.SetClient):
    """A subclass says how the lock is had, and where the set lies."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    fenced: bool = False

    def acquire(self) -> Any:
        """Waits for the lock; what the next methods are given."""
        raise NotImplementedError

    def release(self, lock: Any) -> None:
        raise NotImplementedError

    def load(self) -> list[int]:
        """The set; empty where it was never stored."""
        raise NotImplementedError

    def store(self, elements: list[int], lock: Any) -> bool:
        """Whether it was stored. Without a ``lock`` it is stored in any case."""
        raise NotImplementedError

    def invoke(self, operation: Operation) -> Completion:
        lock = None
        try:
            if operation.f == sets.READ:
                return Completion(Outcome.OK, self.load())
            lock = self.acquire()
            elements = [*self.load(), operation.argument]
            time.sleep(THINKS)
        except self.errors as error:
            return Completion(Outcome.FAIL, error=type(error).__name__)
        else:
            completion = self._store(elements, lock)
            if completion.outcome is Outcome.INFO:
                lock = None  # its write may arrive yet, so it does not give up the lock, which ends by itself
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
    """Each process acquires the lock, does things under it and gives it up, at random; and so when all is healed."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        f = context.choose((ACQUIRE, *[GUARDED] * 6, RELEASE), salt=1)
        return Operation(f, name, number if f == GUARDED else None), number + 1

    return unfold(step, 0) | [Operation(f, name, phase=Phase.DRAIN) for f in (ACQUIRE, GUARDED, RELEASE)] * 5


class Leases:
    """A subclass says how the lock is asked for, and what is done under it."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    token: int | None = None

    def acquire(self, name: str) -> int | None:
        """The token, which is above all that others had before; None: another has the lock."""
        raise NotImplementedError

    def guarded(self, name: str, token: int, argument: Any) -> bool:
        """Does something under the token. False: it was rejected, since there is a newer one."""
        raise NotImplementedError

    def release(self, name: str, token: int) -> None:
        raise NotImplementedError

    def invoke(self, operation: Operation) -> Completion:
        name, token = str(operation.key), self.token
        try:
            if operation.f == ACQUIRE:
                if token is not None:
                    return Completion(Outcome.FAIL, error=HAS)
                self.token = self.acquire(name)
                held = Completion(Outcome.OK, {"token": self.token})
                return held if self.token is not None else Completion(Outcome.FAIL, error=HELD)
            if token is None:
                return Completion(Outcome.FAIL, error=NOT_HELD)
            if operation.f == RELEASE:
                self.token = None
                self.release(name, token)
            elif not self.guarded(name, token, operation.argument):
                self.token = None
                return Completion(Outcome.FAIL, {"token": token}, error=STALE)
            return Completion(Outcome.OK, {"token": token})
        except self.errors as error:
            return Completion(Outcome.INFO, None if token is None else {"token": token}, error=type(error).__name__)

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        """One that the harness gave up has no token, and is of no use to the checks."""
        operation, completion = completed.operation, completed.completion
        token = (completion.result or {}).get("token")
        if token is None:
            return ()
        known = {"token": token, "owner": f"process-{completed.process}", "assignment": token}
        done = Effect(operation.f, str(operation.key), **known)
        lost = Effect("lost", str(operation.key), outcome=Outcome.OK, **known)
        return (done, lost) if completion.error == STALE else (done,)
