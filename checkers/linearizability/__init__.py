"""Is a history linearizable by a model? For models whose operations leave no other way than to search.

``search`` (the entry: picks the algorithm per key), ``limits``, ``model`` (what a model is) and ``models`` (those
that come along), ``encode`` (operations as integers), ``zones`` (registers with unique values).

Where keys are searched: ``place`` (here, or on all cores), ``pool`` and ``worker`` (processes of this machine),
``on_spark`` (its own entry); ``answer`` (what comes back of a key), ``summary`` (and of all of them). How one is
searched: ``layout`` (its events, and what a configuration is made of), ``core`` (the compiled search) and ``tables``
(what it keeps), ``searcher`` (drives it), ``workspace`` (its memory and limits), ``explain`` (why an operation has no
place), ``compiled`` (numba); ``fifo_queue`` and ``key_value`` are models that foresee.
"""

from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values
from assay.checkers.linearizability.models import MODELS
from assay.checkers.linearizability.place import ThisMachine
from assay.checkers.linearizability.search import search

__all__ = ["MODELS", "Action", "Call", "Limits", "Model", "ModelError", "ThisMachine", "Values", "search"]
