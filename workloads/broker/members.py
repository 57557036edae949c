"""Common base of clients with group members: their subscriptions, and their members after an unknown outcome.

If a client keeps its connections after an unknown outcome, its members go on, too. The history counts such a client as
a new process. Its members report their holds again, so that the checks know that no hold ended with the previous
process.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completion, Operation, Outcome
from assay.workloads.broker.log_client import LogClient

TOPIC: Final = "orders"
TOPICS: Final = "topics"
"""Client option: topics to which members subscribe in addition."""


def get_topics(endpoint: Endpoint) -> list[str]:
    """Returns the topics to which a client's members subscribe."""
    return [TOPIC, *endpoint.options.get(TOPICS, ())]


class SupportsGoingOn(Protocol):
    """A member, of either design."""

    def go_on(self) -> None:
        """Continues as the next process of the history: reports its present holds again."""


class GroupMembersClient:
    """Base of clients that send with ``_log`` and have a member of each group in ``_members``."""

    _log: LogClient
    _members: Mapping[str, SupportsGoingOn]

    @property
    def keeps(self) -> bool:
        """Whether the client goes on after an unknown outcome; see ``assay.harness.core.client``."""
        return self._log.keeps

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Opens the log client; a member joins with its first poll."""
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
        """Executes one operation."""
        raise NotImplementedError
