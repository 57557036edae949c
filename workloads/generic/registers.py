"""Registers that are read, written, and replaced if they hold what is expected: for any system that stores values.

There are two kinds of traffic, each with a client that a module of a system completes:

- :func:`few_values` with :class:`Registers`: a compare-and-set says which value it expects, and values come again and
  again. A model alone judges it: ``linearizable("cas-register")``.
- :func:`unique_values` with :class:`VersionedRegisters`: each value is written once, and a compare-and-set reads first
  and writes if the register has the same version still. The checks in SQL judge it, at any size, and name what is
  wrong: ``forbid(*REGISTER_ANOMALIES)``.

Both clients block. What they raise where no answer came, a subclass names in ``errors``: then a read did nothing, and
of a change it is not known. One of ``refusals`` says that nothing was changed.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from assay import BlockingClient, Completed, Completion, Context, Effect, Generator, Operation, Outcome, Phase, unfold

READ, WRITE, CAS = "read", "write", "cas"
OFTEN: Final = (READ, READ, WRITE, CAS)
VALUES: Final = 5
"""That few values are drawn from."""


def few_values(keys: Sequence[str]) -> Generator:
    """And looks at each register three times when all faults are healed."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        f, key, value = context.choose(OFTEN, salt=1), context.choose(keys, salt=2), context.below(VALUES, salt=3)
        argument = {READ: None, WRITE: value, CAS: [context.below(VALUES, salt=4), value]}[f]
        return Operation(f, key, argument), number + 1

    return unfold(step, 0) | [Operation(READ, key, phase=Phase.DRAIN) for key in keys] * 3


def unique_values(keys: Sequence[str]) -> Generator:
    """And looks at each register when all faults are healed."""

    def step(value: int, context: Context) -> tuple[Operation, int]:
        f = context.choose(OFTEN, salt=1)
        return Operation(f, context.choose(keys, salt=2), None if f == READ else value), value + 1

    return unfold(step, 1) | [Operation(READ, key, phase=Phase.DRAIN) for key in keys]


class Registers(BlockingClient):
    """A subclass says how a register is asked."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    def read(self, key: str) -> int | None:
        """None: nothing was written yet."""
        raise NotImplementedError

    def write(self, key: str, value: int) -> None:
        raise NotImplementedError

    def cas(self, key: str, expected: int, new: int) -> bool:
        """Whether it held what was expected, and holds ``new`` now."""
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
    """A subclass says how a register is asked. Versions rise with each change of a register."""

    blocking = True
    errors: ClassVar[tuple[type[Exception], ...]]
    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    replacing: dict[str, Any] | None = None
    """What a compare-and-set that is under way is to replace."""

    def read(self, key: str) -> dict[str, Any]:
        """``value``, null where none was written yet, and ``version``."""
        raise NotImplementedError

    def write(self, key: str, value: int, version: int | None = None) -> dict[str, Any]:
        """``value`` and its ``version``. If one is given, only where the register still has it: raises a refusal."""
        raise NotImplementedError

    def invoke(self, operation: Operation) -> Completion:
        f, key, self.replacing = operation.f, str(operation.key), None
        try:
            if f == READ:
                return Completion(Outcome.OK, self.read(key))
            if f == WRITE:
                return Completion(Outcome.OK, self.write(key, operation.argument))
            seen = self.read(key)
            self.replacing = {"expected": seen["value"]}  # also where no answer comes
            return Completion(Outcome.OK, self.write(key, operation.argument, seen["version"]) | self.replacing)
        except self.errors as error:  # a write may still arrive
            asked = f == WRITE or self.replacing is not None
            unchanged = not asked or isinstance(error, self.refusals)
            return Completion(Outcome.FAIL if unchanged else Outcome.INFO, self.replacing, error=type(error).__name__)

    @staticmethod
    def effects(completed: Completed) -> list[Effect]:
        operation, completion = completed.operation, completed.completion
        result, f = completion.result or {}, operation.f
        if f == CAS and completion.outcome is Outcome.INFO and "expected" not in result:
            f = WRITE  # given up by the harness: what it has replaced, if anything, is unknown
        return [
            Effect(
                f"register-{f}",
                str(operation.key),
                version=result.get("version"),
                value=result.get("value", operation.argument),
                expected=result.get("expected"),
            )
        ]
