"""Client of SQL databases for ``bank`` and ``list_append``. A subclass adds the statements of one database.

The client blocks, like all drivers that follow PEP 249. Each operation is a transaction. A transaction that the
database has rolled back certainly had no effect. After any other error its outcome is unknown.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from assay import Completed, Completion, Effect, Endpoint, Operation, Outcome
from assay.harness.core import transactions
from assay.workloads.generic import bank, list_append


class InsufficientFunds(Exception):
    """The balance of the source account is too low. Nothing was moved."""


class MissingAccount(Exception):
    """The database shows no such account, such as after an opening that failed. Nothing was moved."""


def to_unknown(error: Exception) -> Completion:
    return Completion(Outcome.INFO, error=f"{type(error).__name__}: {error}"[:200])


class SqlClient:
    """Client with one session. A subclass defines the attributes and the first three methods."""

    blocking = True
    """The harness runs its methods in a thread."""
    level: ClassVar[str]
    """Isolation level, in SQL."""
    isolate: ClassVar[str]
    """Statement that sets the level of the session, with ``{level}`` as its placeholder."""
    errors: ClassVar[tuple[type[Exception], ...]]
    """Exceptions of the driver. Drivers have no common base class."""
    append: ClassVar[str]
    """Statement that takes a key and an element, and appends the element to the key's list, which may be new."""

    tables: ClassVar[Sequence[str]] = ()
    """Statements that create the tables unless they exist; empty if the deployment creates them."""

    def connect(self, host: str) -> Any:
        """Returns a connection without autocommit."""
        raise NotImplementedError

    def is_rolled_back(self, error: Exception) -> bool:
        """Returns whether the error says that the database has rolled the transaction back."""
        raise NotImplementedError

    def decode_list(self, stored: Any) -> list[int]:
        raise NotImplementedError

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.session = self.connect(endpoint.address.partition(":")[0])
        self.ask(self.isolate.format(level=self.level))
        for statement in self.tables:
            self.ask(statement)
        self.session.commit()
        self._handlers: dict[str, Callable[[Any], Any]] = {
            list_append.TXN: self._txn,
            bank.OPEN: self._open_accounts,
            bank.TRANSFER: self._transfer,
            bank.READ: self._balances,
        }

    def invoke(self, operation: Operation) -> Completion:
        try:
            result = self._handlers[operation.f](operation.argument)
            self.session.commit()
            return Completion(Outcome.OK, result)
        except InsufficientFunds:
            return self._roll_back("insufficient-funds")
        except MissingAccount:
            return self._roll_back("no-account")
        except self.errors as error:
            return self._roll_back("broken-off") if self.is_rolled_back(error) else to_unknown(error)

    def _roll_back(self, why: str) -> Completion:
        """Rolls back. If the connection is lost, the outcome is unknown, so that the harness opens a new session."""
        try:
            self.session.rollback()
        except self.errors as error:
            return to_unknown(error)
        return Completion(Outcome.FAIL, error=why)

    def ask(self, query: str, *parameters: Any) -> Sequence[Any]:
        """Executes a query and returns its rows."""
        with self.session.cursor() as cursor:
            cursor.execute(query, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def _txn(self, micros: Sequence[Any]) -> list[Any]:
        """Executes a transaction of ``list_append``. Each of ``micros`` is ``[f, key, value]``."""
        done = []
        for f, key, value in micros:
            if f == "append":
                self.ask(self.append, key, value)
                done.append([f, key, value])
            else:
                found = self.ask("select elements from lists where id = %s", key)
                done.append([f, key, self.decode_list(found[0][0]) if found else []])
        return done

    def _open_accounts(self, _: None) -> None:
        for account in bank.ACCOUNTS:
            self.ask("insert into accounts values (%s, %s)", account, bank.BALANCE)

    def _transfer(self, argument: Sequence[Any]) -> None:
        """Moves money like an application that reads both balances, and then writes new ones."""
        source, target, amount = argument
        balances = self._balances(None)
        if missing := {source, target} - balances.keys():
            raise MissingAccount(missing)
        if balances[source] < amount:
            raise InsufficientFunds
        for account, change in ((source, -amount), (target, amount)):
            self.ask("update accounts set balance = %s where id = %s", balances[account] + change, account)

    def _balances(self, _: None) -> dict[str, int]:
        return dict(self.ask("select id, balance from accounts"))

    def close(self) -> None:
        self.session.close()

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return (
            bank.effects(completed)
            if completed.operation.f != list_append.TXN
            else transactions.derive_effects(completed)
        )
