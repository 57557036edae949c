"""Reads of znodes that may not exist."""

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

from assay.system_under_test.runtime import Watch, ZooKeeper


async def watched(zookeeper: ZooKeeper, path: str, watch: Watch | None) -> tuple[bytes, ZnodeStat] | None:
    """Content and stat, None when there is no such znode; its change, or its creation, is watched."""
    while True:
        try:
            return await zookeeper.get(path, watch)
        except NoNodeError:
            if await zookeeper.exists(path, watch) is None:
                return None
