"""The paths of the brokers' znodes, which are those of Kafka 0.8 to 0.10."""

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
"""Each write to this znode creates a version, from which a broker id is generated."""
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
ISR_CHANGES = "/isr_change_notification"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGNMENTS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
CLUSTER_ID = "/cluster/id"
CONSUMERS = "/consumers"
DRAFT_GROUPS = "/draft_groups"
"""The groups of the draft group protocol, one znode each. Kafka does not have this path."""

CREATED_AT_START = (
    BROKER_IDS,
    TOPICS,
    ISR_CHANGES,
    DELETE_TOPICS,
    TOPIC_CONFIGS,
    CONFIG_CHANGES,
    "/cluster",
    CONSUMERS,
    DRAFT_GROUPS,
)
"""Znodes that every broker creates at its start if they are missing."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(broker_id: int) -> str:
    return f"{BROKER_CONFIGS}/{broker_id}"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def consumer_offset(group: str, name: str, index: int) -> str:
    return f"{CONSUMERS}/{group}/offsets/{name}/{index}"


def consumer_ids(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def consumer(group: str, consumer_id: str) -> str:
    return f"{CONSUMERS}/{group}/ids/{consumer_id}"


def consumer_owner(group: str, name: str, index: int) -> str:
    return f"{CONSUMERS}/{group}/owners/{name}/{index}"


def draft_group(group: str) -> str:
    return f"{DRAFT_GROUPS}/{group}"


def config_change() -> str:
    """Returns the path prefix of a sequence node that announces a change of settings."""
    return f"{CONFIG_CHANGES}/config_change_"
