"""Producer profiles: settings that differ from the default. The argument ``habit`` of a burst names a profile.

If a producer retries after an unknown outcome, each try may append the message. If a producer does not wait for the
replicas (``acks`` 1) or for an answer (``acks`` 0), it cannot know whether a message stays in the log.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from assay.system_under_test.client.config import AsyncProducerConfig

SEND_SECONDS: Final = 4.0
"""Time limit of a send, below the usual operation timeout (5 s)."""
SHORT_SECONDS: Final = 1.6
"""Time limit below the operation timeout under ``--nemesis=mix`` (2 s), so that a final failure is known."""
SINGLE: Final = "single"
"""Each message is a set of its own, sent without delay."""

PROFILES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        SINGLE: {"linger": 0.0, "batch_size": 1, "timeout": SEND_SECONDS},
        "together": {"linger": 0.03, "batch_count": 3, "batch_size": 1 << 20},
        "large-sets": {"linger": 0.06, "batch_size": 1 << 20, "codec": 1},
        "small-sets": {"linger": 0.02, "batch_size": 200, "codec": 3},
        "old": {"linger": 0.03, "message_format": 0, "codec": 2},
        "narrow": {"linger": 0.0, "batch_count": 1, "queue_size": 2, "enqueue_timeout": 0.0},
        "patient": {"linger": 0.01, "queue_size": 4, "enqueue_timeout": 0.1, "timeout": 0.8},
        "insistent": {"linger": 0.0, "repeat_unknown": True, "request_timeout": 0.4, "retries": 4},
        "insistent-sets": {
            "linger": 0.03,
            "codec": 1,
            "repeat_unknown": True,
            "request_timeout": 0.3,
            "retries": 6,
            "timeout": 1.2,
        },
        "one-try": {"linger": 0.0, "retries": 0},
        "leader-only": {"linger": 0.01, "acks": 1},
        "unheard": {"linger": 0.01, "acks": 0},
    }
)
"""Maps each profile's name to settings that differ from ``AsyncProducerConfig``.

A profile without a ``timeout`` has ``SHORT_SECONDS``.
"""


def build_config(profile: str) -> AsyncProducerConfig:
    return AsyncProducerConfig(**({"timeout": SHORT_SECONDS} | dict(PROFILES[profile])))


def count_tries(profile: str) -> int:
    """Returns the maximum number of times that a message may be appended."""
    settings = build_config(profile)
    return 1 + settings.retries if settings.repeat_unknown else 1


def waits_for_all(profile: str) -> bool:
    """Returns whether an acknowledged message must stay in the log."""
    return build_config(profile).acks == -1
