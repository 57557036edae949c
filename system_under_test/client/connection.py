"""Connections for clients: the same classes as :mod:`assay.system_under_test.network.connection`, which brokers use."""

from assay.system_under_test.network.connection import CallError, Connection, NotSent, UnknownOutcome

__all__ = ["CallError", "Connection", "NotSent", "UnknownOutcome"]
