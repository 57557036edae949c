"""Register workloads: read, write and compare-and-set, for any system that stores values.

There are two kinds of traffic, each with a client. A subclass adds the calls of a system.

- :func:`few_values` with :class:`Registers`: a compare-and-set names the value that it expects, and values recur. The
  contract is ``linearizable("cas-register")``, which needs no ``effects``.
- :func:`unique_values` with :class:`VersionedRegisters`: each value is written once. A compare-and-set reads first, and
  writes if the register still has the same version. The contract is ``forbid(*REGISTER_ANOMALIES)``. Its checks are
  SQL: they judge histories of any size, and name the anomaly.

Both clients make blocking calls, so each runs in a thread. The attribute ``errors`` of a subclass has the exceptions
that mean "no answer": a read then had no effect, and the outcome of a change is unknown. Exceptions in ``refusals``
mean that nothing was changed.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from assay import (
    BlockingClient,
    Completed,
    Completion,
    Context,
    Effect,
    Generator,
    Operation,
    Outcome,
    Phase,
    sequence,
    unfold,
    until_ok,
)  # fmt: skip

READ, WRITE, CAS = "read", "write", "cas"
WEIGHTS: Final = (READ, READ, WRITE, CAS)
VALUES: Final = 5
"""Number of distinct values."""


def few_values(keys: Sequence[str], weights: Sequence[str] = WEIGHTS) -> Generator:
    """Yields random operations. After the last heal it reads each register until a read is answered, and twice more.

    ``weights``: names of operations; an operation that occurs twice is chosen twice as often
    """

    def step(number: int, context: Context) -> tuple[Operation, int]:
        f, value = context.choose(weights, salt=1), context.random_below(VALUES, salt=3)
        argument = {READ: None, WRITE: value, CAS: [context.random_below(VALUES, salt=4), value]}[f]
        return Operation(f, context.choose(keys, salt=2), argument), number + 1

    reads = [Operation(READ, key, phase=Phase.DRAIN) for key in keys]
    return unfold(step, 0) | sequence(*map(until_ok, reads), reads * 2)


def unique_values(keys: Sequence[str]) -> Generator:
    """Yields random operations. After the last heal it reads each register until one read is answered."""

    def step(value: int, context: Context) -> tuple[Operation, int]:
        f = context.choose(WEIGHTS, salt=1)
        return Operation(f, context.choose(keys, salt=2), None if f == READ else value), value + 1

    return unfold(step, 1) | sequence(*(until_ok(Operation(READ, key, phase=Phase.DRAIN)) for key in keys))


class Registers(BlockingClient):
    """Client of registers whose values recur. A subclass defines how a register is accessed."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    def read(self, key: str) -> int | None:
        """Returns the value, or None if none was written yet."""
        raise NotImplementedError

    def write(self, key: str, value: int) -> None:
        raise NotImplementedError

    def cas(self, key: str, expected: int, new: int) -> bool:
        """Writes ``new`` if the register holds ``expected``, and returns whether it did."""
        raise NotImplementedError

    def invoke(self, operation: Operation) -> Completion:
        key, argument = str(operation.key), operation.argument
        try:
            if operation.f == READ:
                return Completion(Outcome.OK, self.read(key))
            if operation.f == CAS:
                return Completion(Outcome.OK, self.cas(key, *argument))
            self.write(key, argument)
            return Completion(Outcome.OK)
        except self.errors as error:
            unchanged = operation.f == READ or isinstance(error, self.refusals)
            return Completion(Outcome.FAIL if unchanged else Outcome.INFO, error=type(error).__name__)


class VersionedRegisters:
    """Client of registers with versions. A subclass defines how a register is accessed.

    The version must rise with each change of a register.
    """

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    replacing: dict[str, Any] | None = None
    """The expected value of a compare-and-set in progress."""

    def read(self, key: str) -> dict[str, Any]:
        """Returns ``value``, null if none was written yet, and ``version``."""
        raise NotImplementedError

    def write(self, key: str, value: int, version: int | None = None) -> dict[str, Any]:
        """Writes the value. Returns ``value`` and its ``version``.

        If ``version`` is given and the register has another, raises an error of ``refusals``.
        """
        raise NotImplementedError

    def invoke(self, operation: Operation) -> Completion:
        f, key, self.replacing = operation.f, str(operation.key), None
        try:
            if f == READ:
                return Completion(Outcome.OK, self.read(key))
            if f == WRITE:
                return Completion(Outcome.OK, self.write(key, operation.argument))
            seen = self.read(key)
            self.replacing = {"expected": seen["value"]}  # known even if no answer arrives
            return Completion(Outcome.OK, self.write(key, operation.argument, seen["version"]) | self.replacing)
        except self.errors as error:  # a write may still arrive
            may_have_written = f == WRITE or self.replacing is not None
            unchanged = not may_have_written or isinstance(error, self.refusals)
            return Completion(Outcome.FAIL if unchanged else Outcome.INFO, self.replacing, error=type(error).__name__)

    @staticmethod
    def effects(completed: Completed) -> list[Effect]:
        operation, completion = completed.operation, completed.completion
        result, f = completion.result or {}, operation.f
        if f == CAS and completion.outcome is Outcome.INFO and "expected" not in result:
            f = WRITE  # timed out: the expected value is unknown
        return [
            Effect(
                f"register-{f}",
                str(operation.key),
                version=result.get("version"),
                value=result.get("value", operation.argument),
                expected=result.get("expected"),
            )
        ]
