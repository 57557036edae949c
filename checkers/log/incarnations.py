"""The parts of a log's key: ``orders#2-0`` is partition 0 of the second topic that was called ``orders``."""


def topic_of(key: str) -> str:
    """SQL: ``orders#2`` of the column ``key`` with ``orders#2-0``."""
    return f"regexp_replace({key}, '-[0-9]+$', '')"


def first_name(key: str) -> str:
    """SQL: ``orders`` of ``orders#2``, and ``orders-0`` of ``orders#2-0``: the name that it has in the cluster."""
    return f"regexp_replace({key}, '#[0-9]+', '')"


def place_of(key: str) -> str:
    """SQL: ``orders-0`` of ``orders#2-0``, the same for each life of a topic."""
    return f"regexp_replace({key}, '#[0-9]+-', '-')"


def name_of(topic: str) -> str:
    """SQL: ``orders`` of ``orders#2``."""
    return f"regexp_replace({topic}, '#[0-9]+$', '')"


def life_of(topic: str) -> str:
    """SQL: 2 of ``orders#2``, 1 of ``orders``."""
    return f"cast(coalesce(nullif(regexp_extract({topic}, '#([0-9]+)$', 1), ''), '1') as bigint)"
