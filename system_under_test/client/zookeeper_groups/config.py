"""The settings of a consumer of the old design."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES
from assay.system_under_test.client.zookeeper_groups.streams import RESETS

DEFAULT_GROUP = "default"


@dataclass(frozen=True, kw_only=True)
class ConnectorConfig:
    """Kafka's names, where they are Kafka's settings; times in seconds."""

    zookeeper: str
    """``host:port,host:port``."""
    bootstrap: Sequence[str] = ()
    """None: the brokers that are registered in ZooKeeper."""
    group: str = DEFAULT_GROUP
    consumer_id: str | None = None
    """None: made of ``host``, the time and chance."""
    host: str | None = None
    """None: the name of the host that the consumer runs on."""
    session_timeout: float = 6.0
    connection_timeout: float = 6.0
    back_off: float = 0.1
    """Before the second try to claim; doubled for each further one, up to a second."""
    offsets_storage: str = "zookeeper"
    """Or ``kafka``: the offsets topic."""
    dual_commit: bool = False
    """To commit to the other one, too: see :mod:`~assay.system_under_test.client.zookeeper_groups.offsets`."""
    auto_commit: bool = True
    auto_commit_interval: float = 60.0
    reset: str = "largest"
    classic: bool = False
    """To share out again as 0.8 to 0.10.2 do. At each change the member lets go of all that it owns, also where its
    share is the same as before, and claims by what it has read, also if that has changed since: then members that see
    different views of the group claim by them (split brain)."""
    by_broker: bool = False
    """To share partitions out in the order of the brokers that should lead them, so that those of one broker are next
    to each other and a thread has few brokers to ask, as with the partitions of 0.7, which were numbered by broker; and
    not by their numbers alone, as 0.8 to 0.10.2. All members of a group have to agree."""
    timeout: float = 5.0
    """Seconds for one read, or for one commit with all its tries."""
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """What one fetch asks for of its partition."""

    def __post_init__(self) -> None:
        if self.offsets_storage not in ("zookeeper", "kafka"):
            raise ValueError(f"offsets.storage is zookeeper or kafka, not {self.offsets_storage!r}")
        if self.reset not in RESETS:
            raise ValueError(f"auto.offset.reset is {' or '.join(RESETS)}, not {self.reset!r}")
        for name in (self.consumer_id, self.host):
            if name is not None and (not name or "/" in name):
                raise ValueError(f"{name!r} is to be part of the name of a znode")
        if not self.group or "/" in self.group or self.group in (".", ".."):
            raise ValueError(f"group {self.group!r} is to be the name of a znode")
