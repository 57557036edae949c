"""Other people's clients that the broker is tried with."""

from __future__ import annotations

from typing import Final

CLIENTS: Final = {
    "kcat": ("kcat", None),
    "confluent-kafka": ("confluent", None),
    "kafka-python-2": ("kafka_python", "kafka-python-2.3.3"),
    "kafka-python-3": ("kafka_python", "kafka-python-3.0.12"),
}
"""Name -> adapter, and the folder of a package that lies outside site-packages."""
