"""Other people's clients that the broker is tried with, and those that do by day what takes long."""

from __future__ import annotations

from typing import Final

import pytest

from helpers.nightly import some_by_day

CLIENTS: Final = {
    "kcat": ("kcat", None),
    "confluent-kafka": ("confluent", None),
    "kafka-python-2": ("kafka_python", "kafka-python-2.3.3"),
    "kafka-python-3": ("kafka_python", "kafka-python-3.0.12"),
}
"""Name -> adapter, and the folder of a package that lies outside site-packages."""

some_clients: Final = pytest.mark.parametrize(
    "kind", some_by_day(CLIENTS, ("confluent-kafka", "kafka-python-3")), indirect=True
)
"""For tests that kill brokers: kcat and confluent-kafka are one library, kafka-python has two versions."""
