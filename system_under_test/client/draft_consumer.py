"""A consumer of the draft: as :class:`GroupConsumer`, but what it owns its coordinator says.

Told that its generation is over, it stops, commits what it has returned, and joins again; while it looks for a new
coordinator it keeps consuming.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from assay.system_under_test.client.coordinated import CommitFailed, Generation
from assay.system_under_test.client.draft_membership import FREQUENCY, DraftMembership
from assay.system_under_test.client.draft_states import State
from assay.system_under_test.client.group_consumer import GroupConsumer, Told
from assay.system_under_test.runtime import Runtime


class DraftConsumer(GroupConsumer):
    """Settings as those of :class:`GroupConsumer` and :class:`DraftMembership`, times in seconds.

    ``on_revoked`` hears of what was owned once it is committed, as far as that could be, and before the group is
    joined again. A consumer that was told to stop, and goes on under the next coordinator, hears of nothing.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group: str,
        topics: Sequence[str],
        *,
        runtime: Runtime,
        reset: str = "earliest",
        strategy: str = "range",
        session_timeout: float = 6.0,
        frequency: int = FREQUENCY,
        join_timeout: float = 20.0,
        timeout: float = 5.0,
        on_assigned: Told = lambda partitions: None,
        on_revoked: Told = lambda partitions: None,
        on_state: Callable[[State], None] = lambda state: None,
    ) -> None:
        self._draft = DraftMembership(
            bootstrap,
            group,
            topics,
            runtime=runtime,
            strategy=strategy,
            session_timeout=session_timeout,
            frequency=frequency,
            join_timeout=join_timeout,
            timeout=timeout,
            on_state=on_state,
        )
        super().__init__(
            bootstrap,
            group,
            topics,
            runtime=runtime,
            reset=reset,
            timeout=timeout,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            membership=self._draft,
        )

    @property
    def state(self) -> State:
        return self._draft.state

    async def _enter(self) -> Generation:
        with contextlib.suppress(CommitFailed):  # whoever owns next reads again what could not be committed
            await self.commit()
        return await self._draft.enter(before_join=partial(self._revoke, self._on_revoked))
