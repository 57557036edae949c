"""A client of databases that speak SQL, for ``bank`` and ``list_append``: what a module of one adds is its own.

It blocks, as drivers after PEP 249 do, and each operation is a transaction. A transaction that the database has broken
off certainly did nothing; of any other error it is not known.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from assay import Completed, Completion, Effect, Endpoint, Operation, Outcome
from assay.harness.core import transactions
from assay.workloads.generic import bank, list_append


class InsufficientFunds(Exception):
    """Nothing is moved."""


def unknown(error: Exception) -> Completion:
    return Completion(Outcome.INFO, error=f"{type(error).__name__}: {error}"[:200])


class SqlClient:
    """One session. A subclass says what is different here."""

    blocking = True
    level: ClassVar[str]
    """Of isolation, in SQL."""
    isolate: ClassVar[str]
    """Sets it for the session: ``{level}`` stands in it."""
    errors: ClassVar[tuple[type[Exception], ...]]
    """What the driver raises; drivers have no error in common."""
    append: ClassVar[str]
    """Takes a key and an element, and adds it to the end of the key's list, which may be new."""

    def connect(self, host: str) -> Any:
        """A connection that does not commit by itself."""
        raise NotImplementedError

    def broken_off(self, error: Exception) -> bool:
        """Whether the database has rolled the transaction back."""
        raise NotImplementedError

    def elements(self, stored: Any) -> list[int]:
        """A list as it is stored."""
        raise NotImplementedError

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.session = self.connect(endpoint.address.partition(":")[0])
        self.ask(self.isolate.format(level=self.level))
        self.session.commit()
        self._doing: dict[str, Callable[[Any], Any]] = {
            list_append.TXN: self._txn,
            bank.OPEN: self._open_accounts,
            bank.TRANSFER: self._transfer,
            bank.READ: self._balances,
        }

    def invoke(self, operation: Operation) -> Completion:
        try:
            result = self._doing[operation.f](operation.argument)
            self.session.commit()
            return Completion(Outcome.OK, result)
        except InsufficientFunds:
            return self._undone("insufficient-funds")
        except self.errors as error:
            return self._undone("broken-off") if self.broken_off(error) else unknown(error)

    def _undone(self, why: str) -> Completion:
        """A session that is gone must be followed by another one, so the outcome is then called unknown."""
        try:
            self.session.rollback()
        except self.errors as error:
            return unknown(error)
        return Completion(Outcome.FAIL, error=why)

    def ask(self, query: str, *given: Any) -> Sequence[Any]:
        """The rows of the answer."""
        with self.session.cursor() as cursor:
            cursor.execute(query, given)
            return list(cursor.fetchall()) if cursor.description else []

    def _txn(self, micros: Sequence[Any]) -> list[Any]:
        done = []
        for f, key, value in micros:
            if f == "append":
                self.ask(self.append, key, value)
                done.append([f, key, value])
            else:
                found = self.ask("select elements from lists where id = %s", key)
                done.append([f, key, self.elements(found[0][0]) if found else []])
        return done

    def _open_accounts(self, _: None) -> None:
        for account in bank.ACCOUNTS:
            self.ask("insert into accounts values (%s, %s)", account, bank.BALANCE)

    def _transfer(self, argument: Sequence[Any]) -> None:
        """As an application does it that looks first, and then writes what it has worked out."""
        source, target, amount = argument
        there = self._balances(None)
        if there[source] < amount:
            raise InsufficientFunds
        for account, change in ((source, -amount), (target, amount)):
            self.ask("update accounts set balance = %s where id = %s", there[account] + change, account)

    def _balances(self, _: None) -> dict[str, int]:
        return dict(self.ask("select id, balance from accounts"))

    def close(self) -> None:
        self.session.close()

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return bank.effects(completed) if completed.operation.f != list_append.TXN else transactions.effects(completed)
