"""Is a history linearizable by a model? For models whose operations leave no other way than to search.

In this order: ``model`` (what a model is) and ``models`` (those that come along; ``fifo_queue`` and ``key_value`` look
ahead), ``encode`` (operations as integers), ``search`` (the entry: picks the algorithm of each key) with ``zones``
(registers with unique values) and ``limits``.

Where keys are searched: ``scheduler`` (here, or on all cores), ``pool`` and ``worker`` (processes of this machine),
``on_spark`` (its own entry); ``key_result`` (of one key) and ``summary`` (of all). How a key is searched: ``layout``
(its events, and what a configuration is made of), ``core`` and ``prune`` (the compiled search), ``tables`` (what it
keeps),
``workspace`` (its memory and limits), ``searcher`` (runs it), ``explain`` (why an operation has no place), ``compiled``
(numba). Imports ``checkers.judging.verdict`` and ``checkers.engine``; the harness imports ``search`` and ``on_spark``.
"""

from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values
from assay.checkers.linearizability.models import MODELS
from assay.checkers.linearizability.scheduler import ThisMachine
from assay.checkers.linearizability.search import search

__all__ = ["MODELS", "Action", "Call", "Limits", "Model", "ModelError", "ThisMachine", "Values", "search"]
