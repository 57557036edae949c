"""Connection to a broker: :mod:`assay.system_under_test.network.connection`, which brokers use as well."""

from assay.system_under_test.network.connection import CallError, Connection, NotSent, UnknownOutcome

__all__ = ["CallError", "Connection", "NotSent", "UnknownOutcome"]
