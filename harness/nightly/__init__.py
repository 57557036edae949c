"""A night of runs, and the data set of the runs of many nights, with tables over it, in SQL.

It imports ``harness.run``, ``harness.stored``, ``reports.index`` and the checks' verdicts and engines. Only
``harness.cli`` imports it.

A single night:

- ``night_record``: the record of a night on disk
- ``matrix``: the cells of a night, from ``nightly.toml``, and their order
- ``subprocess_runner``: runs an attempt as a process
- ``outcome``: classifies the end of an attempt
- ``failure_shrinking``: shrinks new failures
- ``night_runner``: runs the night
- ``store_index``: reads a store for the page of ``assay index``
- ``night_verdict``: the verdict of a night; ``markdown`` and ``junit`` format it
- ``carry_over``: copies the files that another store's page needs

Many nights:

- ``dataset_schema``: a run as one row of the data set
- ``run_row``: makes a row from a run's folder
- ``dataset``: the files of the data set
- ``tables``: the tables, in SQL
- ``table_output``: shows and writes the tables
- ``trends``: the cells over many nights
- ``regression``: the statistical tests that find which of them got worse
"""
