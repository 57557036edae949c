"""Searches for failing runs in the simulation, and makes failing runs small.

In this order: ``example`` (a run as plain data), ``strategies`` (what Hypothesis draws), ``player`` (plays one),
``states`` (what a run came through, which steers the search), ``explore`` (one search), ``workers`` (one on each core),
``exploration`` (``--explore`` as a test). ``shrink`` makes any failing example small; ``shrunk`` is ``assay shrink``,
of a stored run; ``story`` is what its report says of the small schedule. Only ``harness.plugin`` and ``harness.cli``
import it.
"""
