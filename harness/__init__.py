"""The harness: from operations and generators to a verdict, in pytest and on the command line.

In reading order:

- ``core``: operation, client, generator, interpreter, history
- ``run``: one run, from the first node to the closed history, the verdict and the report
- ``plugin``: the pytest plugin
- ``cli``: the ``assay`` command
- ``remote``: clients on nodes of their own
- ``stored``: judges and repeats stored runs
- ``search``: ``--explore`` and ``assay shrink``
- ``sensitivity``: which violations a run would have shown
- ``nightly``: the nightly run, and tables over many runs
- ``foreign``: histories of other tools
- ``synthetic``: generated histories

No module here imports the broker. ``tests/test_architecture.py`` tests which packages may import which.
"""
