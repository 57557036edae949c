"""What clients with members of groups have in common: what their members subscribe to, and how they go on.

After an unknown outcome the members of a client that keeps go on, too. The history counts one that goes on as another
process. It reports what it holds once more, so that the checks know that a hold did not end with the process before.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completion, Operation, Outcome
from assay.workloads.broker.log_client import LogClient

TOPIC: Final = "orders"
TOPICS: Final = "topics"
"""An option of clients: what their members subscribe to besides."""


def topics_of(endpoint: Endpoint) -> list[str]:
    """What a client's members subscribe to."""
    return [TOPIC, *endpoint.options.get(TOPICS, ())]


class GoesOn(Protocol):
    """A member, of either design."""

    def go_on(self) -> None:
        """It is the next process of the history: what it holds and has reported is to be reported again."""


class KeepingMembers:
    """The base of clients that send with ``_log`` and have a member of each group in ``_members``."""

    _log: LogClient
    _members: Mapping[str, GoesOn]

    @property
    def keeps(self) -> bool:
        """As ``assay.harness.core.client`` has it."""
        return self._log.keeps

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """A member takes part from its first poll on."""
        self._endpoint = endpoint
        self._runtime = runtime
        await self._log.open(endpoint, runtime)

    async def invoke(self, operation: Operation) -> Completion:
        known = False
        try:
            completion = await self.carry_out(operation)
            known = completion.outcome is not Outcome.INFO
        finally:
            if not known:
                for member in self._members.values():
                    member.go_on()
        return completion

    async def carry_out(self, operation: Operation) -> Completion:
        """One operation, whatever becomes of it."""
        raise NotImplementedError
