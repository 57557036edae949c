"""Searches for failing runs in the simulation, and makes failing runs small.

In this order: ``example`` (a run as plain data), ``strategies`` (what Hypothesis draws), ``player`` (plays one, in a
folder), ``quick`` (plays many in memory) on ``stage`` (the process that plays them, and forks), of which ``stages``
starts one after the other; ``states`` (what a run came through, which steers the search) and ``passing`` (the same
while it goes on), ``archive`` (which run to leave, and where), ``further`` (with what faults); ``explore`` (one
search), ``workers`` (one on each core), ``exploration`` (``--explore`` as a test); ``reached`` (what searches came
through, and what they never did) and its page, ``reached_page``; ``code_coverage`` (lines and branches of the system
that they reached). ``shrink`` makes any failing example small; ``shrunk`` is ``assay shrink``, of a stored run;
``story`` is what its report says of the small schedule. Only ``harness.plugin`` and ``harness.cli`` import it.
"""
