"""SQL for the parts of a log's key: ``orders#2-0`` is partition 0 of the second topic that was called ``orders``."""


def topic_of(key: str) -> str:
    """Returns SQL that maps the column ``key`` with ``orders#2-0`` to ``orders#2``."""
    return f"regexp_replace({key}, '-[0-9]+$', '')"


def first_name(key: str) -> str:
    """Returns SQL that maps ``orders#2`` to ``orders`` and ``orders#2-0`` to ``orders-0``: the name used in the
    cluster."""
    return f"regexp_replace({key}, '#[0-9]+', '')"


def place_of(key: str) -> str:
    """Returns SQL that maps ``orders#2-0`` to ``orders-0``, which is equal for all incarnations of a topic."""
    return f"regexp_replace({key}, '#[0-9]+-', '-')"


def name_of(topic: str) -> str:
    """Returns SQL that maps ``orders#2`` to ``orders``."""
    return f"regexp_replace({topic}, '#[0-9]+$', '')"


def life_of(topic: str) -> str:
    """Returns SQL for the incarnation's number: 2 of ``orders#2``, 1 of ``orders``."""
    return f"cast(coalesce(nullif(regexp_extract({topic}, '#([0-9]+)$', 1), ''), '1') as bigint)"
