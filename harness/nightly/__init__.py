"""Runs of many nights as one partitioned data set, the tables over it, by Spark; and the night that makes them.

``rows``: what is kept of a run. ``run_row``: a run's folder becomes such a row. ``dataset``: where the rows lie.
``tables``: the SQL. ``table_output``: how the tables are shown and written. ``trends``: the cells over many nights, and
``regression``: the exact tests that say which of them got worse.

``night_record``: the record of one night, for all who read it. ``matrix``: its cells, from a file. ``cell_order``:
which come first. ``git_versions``: what git says. ``subprocess_runner``: an attempt as a process. ``outcome``: what its
end means.
``failure_shrinking``: new failures made small. ``night_runner``: the night, from these. ``store_index``: a store as the
page of ``assay index`` knows it. ``night_verdict``: what a night comes to; ``markdown`` and ``junit`` write it.
``carry_over``: what another store must have so that its page knows these nights.

Imports ``harness.run``, ``harness.stored``, ``reports.index`` and the checks' verdicts and engines. Only
``harness.cli`` imports it.
"""
