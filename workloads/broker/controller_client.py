"""Client of topics that come and go, and of a log next to them; each client is a process of the history.

In addition to the operations on a log that stays, and an administrator's (``assay.workloads.broker.topic_admin``),
there is

=========  ==========================  ==================================================
f          argument                    result
=========  ==========================  ==================================================
``touch``  ``{"partition", "value"}``  ``{"offset", "node"}``
=========  ==========================  ==================================================

``touch`` appends a record to a topic that may be deleted at any time, so that its leaders act in their epochs. The
ownership checks see this in the event log. The log checks must not, so a touch has no effects.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.errors import SendFailed, SendUnknown
from assay.system_under_test.client.producer import Producer
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_names import describe_error, format_node

TOUCH: Final = "touch"
TOUCH_SECONDS: Final = 2.0
"""Short, because most topics that reject writes are gone, and the library would retry for ever."""


class ControllerClient(LogClient):
    """Client of a log as above, with ``touch``."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        await super().open(endpoint, runtime)
        self._toucher = Producer(list(endpoint.all), ProducerConfig(timeout=TOUCH_SECONDS), runtime=runtime)

    async def close(self) -> None:
        await super().close()
        await self._toucher.close()

    async def invoke(self, operation: Operation) -> Completion:
        if operation.f != TOUCH:
            return await super().invoke(operation)
        assert operation.key is not None, f"{operation.f} without a topic"
        argument: dict[str, int] = operation.argument
        message = [(None, str(argument["value"]).encode())]
        try:
            result = await self._toucher.send_set(operation.key, argument["partition"], message)
        except SendFailed as error:
            return Completion(Outcome.FAIL, error=describe_error(error))
        except SendUnknown as error:
            return Completion(Outcome.INFO, error=describe_error(error))
        return Completion(Outcome.OK, {"offset": result.base_offset, "node": format_node(result.node)})

    @classmethod
    def effects(cls, completed: Completed) -> Sequence[Effect]:
        return () if completed.operation.f == TOUCH else super().effects(completed)
