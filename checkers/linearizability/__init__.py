"""Linearizability by a model, for models whose operations require a search.

- ``model``: the interface of a model. ``models``: the built-in models. ``key_value``: a built-in model that uses
  later operations. ``queues``, ``sets``: models of queues and of a set. ``locks``: mutexes and semaphores.
- ``encode``: encodes operations as integers.
- ``search``: the entry point; chooses the algorithm of each key. ``limits``: limits of a search.
- ``zones``: the near-linear algorithm for registers with unique values.
- ``key_search``: chooses the algorithm of one key of any other model. ``set_order``: sets without removals.
  ``set_elements``: sets with removals, element by element. ``queue_order``: queues with distinct values.
- ``scheduler``: searches keys in this process or on all cores. ``pool``, ``worker``: processes of this machine.
- ``on_spark``: the entry point for Spark.
- ``key_result``: the result for one key. ``summary``: the judgement of all keys.
- ``layout``: a key's events, and the parts of a configuration (a possible state, with the operations that took effect).
- ``core``: the compiled search. ``tables``: its hash tables.
- ``workspace``: memory and limits of the search. ``searcher``: runs the search.
- ``explain``: explains why an operation has no place in any order.
- ``compiled``: compiles functions with numba.

The package imports ``checkers.judging.verdict`` and ``checkers.engine``; the harness imports ``search`` and
``on_spark``.
"""

from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values
from assay.checkers.linearizability.models import MODELS
from assay.checkers.linearizability.scheduler import LocalSearch
from assay.checkers.linearizability.search import search

__all__ = ["MODELS", "Action", "Call", "Limits", "LocalSearch", "Model", "ModelError", "Values", "search"]
