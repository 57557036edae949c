"""Is a history linearizable by a model? For models whose operations leave no other way than to search.

``search`` (the entry: picks the algorithm per key), ``limits``, ``model`` (what a model is) and ``models`` (those
that come along), ``encode`` (operations as integers), ``zones`` (registers with unique values), ``layout`` (one key's
events, and what a configuration is made of), ``core`` (the compiled search), ``searcher`` (drives it), ``workspace``
(its memory and limits), ``explain`` (why an operation has no place), ``compiled`` (numba).
"""

from checkers.linearizability.limits import Limits
from checkers.linearizability.model import Action, Call, Model, ModelError, Values
from checkers.linearizability.models import MODELS
from checkers.linearizability.search import search

__all__ = ["MODELS", "Action", "Call", "Limits", "Model", "ModelError", "Values", "search"]
