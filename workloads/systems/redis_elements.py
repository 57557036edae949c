"""Client of a set in Redis or Valkey. Its contract is ``forbid(*SET_ANOMALIES)``."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from assay import Completion, Endpoint, Operation, Outcome
from assay.workloads.generic import sets
from assay.workloads.systems.resp import converse


class RedisElements(sets.SetClient):
    """Client of the server at its endpoint if that is the primary, else of the primary among all servers."""

    password: ClassVar[str] = ""
    """The password that the servers ask for; empty if they ask for none."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.servers = endpoint.all
        ((kind, *_),) = await self.send(endpoint.address, ("ROLE",))
        self.primary = endpoint.address if kind == "master" else await self.find_primary()

    async def find_primary(self) -> str:
        """Returns the address of the first server that says that it is the primary. Raises ``OSError``."""
        for server in self.servers:
            with suppress(OSError, EOFError, ValueError):
                ((kind, *_),) = await self.send(server, ("ROLE",))
                if kind == "master":
                    return server
        raise OSError("no server is the primary")

    async def send(self, address: str, *commands: Sequence[object]) -> list[Any]:
        """Sends commands on a connection of their own, and returns the replies.

        Raises ``OSError``, ``EOFError``, or ``ValueError`` for an error reply.
        """
        login = [("AUTH", self.password)] if self.password else []
        replies = await converse(address, *login, *commands)
        for reply in replies:
            if isinstance(reply, ValueError):
                raise reply
        return replies[len(login) :]

    async def invoke(self, operation: Operation) -> Completion:
        try:
            if operation.f == sets.ADD:
                (count,) = await self.send(self.primary, ("SADD", sets.KEY, operation.argument))
                return Completion(Outcome.OK, count)
            return Completion(Outcome.OK, sorted(map(int, await self._read())))
        except ValueError as error:  # READONLY, NOREPLICAS, LOADING: not executed
            if str(error).startswith("READONLY"):
                with suppress(OSError):  # the next operation tries again
                    self.primary = await self.find_primary()
            return Completion(Outcome.FAIL, error=str(error).split()[0])
        except (OSError, EOFError) as error:
            return Completion(Outcome.INFO, error=type(error).__name__)

    async def _read(self) -> Sequence[str]:
        """Returns the elements. Checks the server's role as well, because a demoted primary also answers reads."""
        elements, role = await self.send(self.primary, ("SMEMBERS", sets.KEY), ("ROLE",))
        if role[0] != "master":
            raise ValueError(f"READONLY its role is {role[0]}")
        answered: Sequence[str] = elements
        return answered

    async def close(self) -> None:
        """Does nothing: each command has a connection of its own."""
