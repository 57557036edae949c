"""A consumer with a historic defect built in; see ``assay.system_under_test.defects``."""

from __future__ import annotations

from collections.abc import Collection

from kazoo.protocol.states import KazooState

from assay.system_under_test.client.zookeeper_groups.session import Session


class Oblivious(Session):
    """Takes its session for granted: it goes on with what it owned, whatever became of it."""

    @property
    def alive(self) -> bool:
        return True

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._registration.session = 0
            self._forgotten()


def session_class(defects: Collection[str]) -> type[Session]:
    """What a connector is to build."""
    return Oblivious if "zk-owner-overlap" in defects else Session
