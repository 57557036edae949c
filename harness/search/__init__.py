"""Searches for failing runs in the simulation, and makes failing runs small.

In this order: ``example`` (a run as plain data), ``strategies`` (what Hypothesis draws), ``player`` (plays one, in a
folder), ``fork_player`` (plays many in memory) on ``fork_server`` (the process that plays them, and forks), of which
``fork_supervisor`` starts one after the other; ``coverage_features`` (what a run came through, which steers the search)
and
``online_features`` (the same while it goes on), ``archive`` (which run to leave, and where), ``branch_faults`` (with
what faults); ``explore`` (one search), ``workers`` (one on each core), ``exploration`` (``--explore`` as a test);
``coverage_report`` (what searches came through, and what they never did) and its page, ``coverage_page``;
``code_coverage`` (lines and branches of the system that they reached). ``shrink`` makes any failing example small;
``shrink_run`` is ``assay shrink``, of a stored run;
``shrink_note`` is what its report says of the small schedule. Only ``harness.plugin`` and ``harness.cli`` import it.
"""
