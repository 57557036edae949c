"""Consumer of a draft group: like :class:`GroupConsumer`, but the coordinator assigns the partitions.

When its generation is over, the consumer stops, commits the positions of returned records, and joins again. While it
looks for a new coordinator, it keeps consuming.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from assay.system_under_test.client.config import ConsumerConfig, DraftConfig
from assay.system_under_test.client.coordinated import CommitFailed, Generation
from assay.system_under_test.client.draft_membership import DraftMembership, DraftMemberState
from assay.system_under_test.client.group_consumer import NO_LISTENER, GroupConsumer, GroupListener
from assay.system_under_test.runtime import Runtime


class DraftConsumer(GroupConsumer):
    """Consumer of a draft group.

    ``on_revoked`` is called with the owned partitions after an attempt to commit, and before the consumer joins again.
    It is not called if the next coordinator accepts the old generation, because the consumer then keeps its partitions.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group: str,
        topics: Sequence[str],
        config: DraftConfig | None = None,
        *,
        runtime: Runtime,
        listener: GroupListener = NO_LISTENER,
        on_state: Callable[[DraftMemberState], None] = lambda state: None,
    ) -> None:
        config = config or DraftConfig()
        self._draft = DraftMembership(bootstrap, group, topics, config, runtime=runtime, on_state=on_state)
        super().__init__(
            bootstrap,
            group,
            topics,
            ConsumerConfig(reset=config.reset, timeout=config.timeout, fetch_bytes=config.fetch_bytes),
            runtime=runtime,
            listener=listener,
            membership=self._draft,
        )

    @property
    def state(self) -> DraftMemberState:
        return self._draft.state

    async def _enter(self) -> Generation:
        with contextlib.suppress(CommitFailed):  # the next owner rereads uncommitted records
            await self.commit()
        return await self._draft.enter(before_join=partial(self._revoke, self._listener.on_revoked))
