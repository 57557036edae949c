"""Coordinators with a historic defect built in; see ``assay.system_under_test.defects``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from assay.system_under_test.groups.coordinator import Coordinator
from assay.system_under_test.groups.group import Group
from assay.system_under_test.groups.records import GroupRecord, OffsetRecord
from assay.system_under_test.groups.stored import StoredGroups

LOAD_SECONDS: Final = 1.0
"""What it takes to read an offsets topic that has grown for a while."""


class UnfencedGroup(Group):
    """Takes a commit from whoever says to be, or to have been, a member."""

    def may_commit(self, member_id: str, generation: int) -> None:
        """Anybody may."""


class UnfencedGroups(StoredGroups):
    group_class = UnfencedGroup


class ZombieCommit(Coordinator):
    stored_class = UnfencedGroups


class EarlyGroups(StoredGroups):
    """Serves at once, and reads what was committed in the background."""

    async def load(self) -> None:
        self.ready = True
        await asyncio.sleep(LOAD_SECONDS)
        await super().load()

    def _restore(self, record: GroupRecord | OffsetRecord) -> None:
        if isinstance(record, OffsetRecord) or record.group not in self.groups:
            super()._restore(record)


class Amnesia(Coordinator):
    stored_class = EarlyGroups


class ExpireActive(Coordinator):
    """Looks at the age of an offset alone."""

    def may_expire(self, group: Group) -> bool:
        return True


_CLASSES: Mapping[str, type[Coordinator]] = MappingProxyType(
    {"zombie-commit": ZombieCommit, "coordinator-amnesia": Amnesia, "offsets-expire-active": ExpireActive}
)


def coordinator_class(defects: Collection[str]) -> type[Coordinator]:
    """What the broker is to build."""
    for name, defective in _CLASSES.items():
        if name in defects:
            return defective
    return Coordinator
