"""The harness: from operations and generators to a verdict, in pytest and on the command line.

In the order in which to read: ``core`` (operation, generator, interpreter, history), ``run`` (a trial: from the first
node to the closed history; an attempt: a trial with its verdict and report), ``plugin`` (pytest) and ``cli`` (the
``assay`` command). Then, as needed: ``remote`` (clients on nodes of their own), ``stored`` (runs judged and done
again), ``search`` (``--explore`` and ``assay shrink``), ``nights`` (tables over many runs), ``foreign`` (histories of
other tools), ``synthetic`` (generated histories).

Nothing here knows the broker. ``tests/test_architecture.py`` holds which room may import which.
"""
