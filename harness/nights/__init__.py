"""Runs of many nights as one partitioned data set, and the tables over it, by Spark.

``rows``: what is kept of a run. ``record``: a run's folder becomes such a row. ``dataset``: where the rows lie.
``tables``: the SQL. ``show``: how the tables are shown and written. ``night``: the record of one night, as it goes on.
"""
