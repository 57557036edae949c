"""Forgets offsets whose time is over, and groups of which nothing is left."""

import asyncio
from collections.abc import Callable

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.coordinator import DraftCoordinator
from assay.system_under_test.groups.group import Group, GroupError
from assay.system_under_test.groups.records import OffsetRecord
from assay.system_under_test.groups.stored import StoredGroups
from assay.system_under_test.groups.terms import GroupTerms
from assay.system_under_test.groups.traits import GroupTraits


class Expiry:
    """``wall_clock`` in seconds since the epoch."""

    def __init__(
        self,
        config: BrokerConfig,
        wall_clock: Callable[[], float],
        events: EventLog,
        terms: GroupTerms,
        draft: DraftCoordinator,
        traits: GroupTraits,
    ) -> None:
        self._config = config
        self._wall_clock = wall_clock
        self._events = events
        self._terms = terms
        self._draft = draft
        self._traits = traits

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for stored in self._terms:
                if stored.ready:
                    for group in list(stored.groups.values()):
                        await self._tidy(stored, group)
                if stored.ready:  # still: the term may be over by now
                    await self._draft.tidy(stored)

    async def _tidy(self, stored: StoredGroups, group: Group) -> None:
        """Offsets go when their time is over, but never while the group has members; then the group, too."""
        try:
            has_members = self._draft.known(stored.index, group.group_id) is not None
        except GroupError:
            return  # it is not known yet
        if has_members or not self._traits.may_expire(group):
            return
        now = int(self._wall_clock() * 1000)
        old = [OffsetRecord(group.group_id, *key, None) for key in group.offsets.expired(now)]
        if old:
            code = await stored.commit(group, old)
            self._events.emit("offsets-expired", key=group.group_id, value=len(old), code=code)
        if group.deletable and stored.groups.get(group.group_id) is group:
            await stored.forget(group)
