"""Assignors for clients: the same functions as :mod:`assay.system_under_test.assignors`, which coordinators use."""

from assay.system_under_test.assignors import ASSIGNORS, Assignor, Partition, assign_range, assign_round_robin

__all__ = ["ASSIGNORS", "Assignor", "Partition", "assign_range", "assign_round_robin"]
