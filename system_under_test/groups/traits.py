"""Traits of a coordinator: the parts that a historic defect replaces (``assay.system_under_test.defects``)."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from assay.system_under_test.clocks import Instant
from assay.system_under_test.groups.group import Group, GroupState
from assay.system_under_test.groups.records import GroupRecord, OffsetRecord
from assay.system_under_test.groups.stored_groups import StoredGroups

LOAD_SECONDS: Final = 1.0
"""Seconds that a defect waits before it loads the groups, as if the offsets topic were large."""


def has_no_members(group: Group) -> bool:
    return group.state is GroupState.EMPTY


@dataclass(frozen=True)
class GroupTraits:
    """Replaceable parts of a coordinator.

    - ``check_commit`` raises ``GroupError`` to reject a commit of a member in a generation.
    - ``may_expire`` returns whether expired offsets of a group may be deleted.
    """

    stored_groups: type[StoredGroups] = StoredGroups
    check_commit: Callable[[Group, str, int], None] = Group.check_commit
    may_expire: Callable[[Group], bool] = has_no_members


CORRECT: Final = GroupTraits()


def select_group_traits(defects: Collection[str]) -> GroupTraits:
    """Returns the traits of the build with these defects."""
    if "zombie-commit" in defects:
        return GroupTraits(check_commit=lambda group, member_id, generation: None)
    if "coordinator-amnesia" in defects:
        return GroupTraits(stored_groups=EarlyGroups)
    if "offsets-expire-active" in defects:
        return GroupTraits(may_expire=lambda group: True)
    return CORRECT


class EarlyGroups(StoredGroups):
    """Groups that are served at once, while the committed records are loaded in the background."""

    async def load(self) -> None:
        self.ready = True
        await asyncio.sleep(LOAD_SECONDS)
        await super().load()

    def _restore(self, record: GroupRecord | OffsetRecord, now: Instant) -> None:
        if isinstance(record, OffsetRecord) or record.group not in self.groups:
            super()._restore(record, now)
