"""Runs of many nights as one partitioned data set, the tables over it, by Spark; and the night that makes them.

``rows``: what is kept of a run. ``record``: a run's folder becomes such a row. ``dataset``: where the rows lie.
``tables``: the SQL. ``show``: how the tables are shown and written. ``trends``: the cells over many nights, and
``regression``: the exact tests that say which of them got worse.

``night``: the record of one night, for all who read it. ``matrix``: its cells, from a file. ``order``: which come
first. ``versions``: what git says. ``child``: an attempt as a process. ``ending``: what its end means. ``shrinking``:
new failures made small. ``nightly``: the night, from these. ``morning``: a store as the page of ``assay index`` knows
it. ``account``: what a night comes to; ``markdown`` and ``junit`` write it. ``carry``: what another store must have so
that its page knows these nights.

Imports ``harness.run``, ``harness.stored``, ``reports.index`` and the checks' verdicts and engines. Only
``harness.cli`` imports it.
"""
