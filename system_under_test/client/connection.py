"""One connection to a broker: that of :mod:`assay.system_under_test.network.connection`, which brokers use as well."""

from __future__ import annotations

from assay.system_under_test.network.connection import CallError, Connection, NotSent, Unknown

__all__ = ["CallError", "Connection", "NotSent", "Unknown"]
