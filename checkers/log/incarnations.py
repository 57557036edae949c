"""SQL for the parts of a log's key: ``orders#2-0`` is partition 0 of the second topic that was called ``orders``."""


def extract_topic(key: str) -> str:
    """Returns SQL that maps the column ``key`` with ``orders#2-0`` to ``orders#2``."""
    return f"regexp_replace({key}, '-[0-9]+$', '')"


def strip_incarnation(key: str) -> str:
    """Returns SQL that maps ``orders#2`` to ``orders`` and ``orders#2-0`` to ``orders-0``: the name used in the
    cluster."""
    return f"regexp_replace({key}, '#[0-9]+', '')"


def strip_partition_incarnation(key: str) -> str:
    """Returns SQL that maps ``orders#2-0`` to ``orders-0``, which is equal for all incarnations of a topic."""
    return f"regexp_replace({key}, '#[0-9]+-', '-')"


def strip_topic_incarnation(topic: str) -> str:
    """Returns SQL that maps ``orders#2`` to ``orders``."""
    return f"regexp_replace({topic}, '#[0-9]+$', '')"


def extract_incarnation(topic: str) -> str:
    """Returns SQL for the incarnation's number: 2 of ``orders#2``, 1 of ``orders``."""
    return f"cast(coalesce(nullif(regexp_extract({topic}, '#([0-9]+)$', 1), ''), '1') as bigint)"
