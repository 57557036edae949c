"""Settings of a consumer of the old design, in which a group coordinates through ZooKeeper alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES
from assay.system_under_test.client.zookeeper_groups.streams import RESETS

DEFAULT_GROUP = "default"


@dataclass(frozen=True, kw_only=True)
class ConnectorConfig:
    """Settings of a connector. Kafka's settings have Kafka's names. Times are in seconds."""

    zookeeper: str
    """``host:port,host:port``."""
    bootstrap: Sequence[str] = ()
    """Empty: use the brokers that are registered in ZooKeeper."""
    group: str = DEFAULT_GROUP
    consumer_id: str | None = None
    """None: generated from ``host``, the time and a random number."""
    host: str | None = None
    """None: the name of the host that the consumer runs on."""
    session_timeout: float = 6.0
    connection_timeout: float = 6.0
    back_off: float = 0.1
    """Back-off before the second try to claim partitions; doubled for each further try, up to a second."""
    offsets_storage: str = "zookeeper"
    """``zookeeper``, or ``kafka`` for the offsets topic."""
    dual_commit: bool = False
    """Whether to commit to the other storage, too; see :mod:`.offsets` in this package."""
    auto_commit: bool = True
    auto_commit_interval: float = 60.0
    reset: str = "largest"
    classic: bool = False
    """Whether to rebalance as 0.8 to 0.10.2 do.

    At each change the member releases all its partitions, even if its share is unchanged. Then it claims the share that
    it computed, even if the group has changed since. So members may claim by different assignments (split brain).
    """
    by_broker: bool = False
    """Whether to order partitions by their preferred leaders, rather than by number as in 0.8 to 0.10.2.

    Partitions of one broker are then adjacent, so a thread fetches from few brokers, as in 0.7, where partitions were
    numbered by broker. All members of a group must have the same setting.
    """
    timeout: float = 5.0
    """Time limit of one read, or of one commit with all its tries."""
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """Bytes that one fetch requests of its partition."""

    def __post_init__(self) -> None:
        if self.offsets_storage not in ("zookeeper", "kafka"):
            raise ValueError(f"offsets.storage is zookeeper or kafka, not {self.offsets_storage!r}")
        if self.reset not in RESETS:
            raise ValueError(f"auto.offset.reset is {' or '.join(RESETS)}, not {self.reset!r}")
        for name in (self.consumer_id, self.host):
            if name is not None and (not name or "/" in name):
                raise ValueError(f"{name!r} cannot be part of the name of a znode")
        if not self.group or "/" in self.group or self.group in (".", ".."):
            raise ValueError(f"group {self.group!r} cannot be the name of a znode")
