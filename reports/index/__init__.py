"""The page of a morning: all runs and nights of a store, what broke, since when, how often, and how to repeat it.

Pure modules, in reading order:

- ``entry``: the data of a run
- ``trends``: the data of many nights, by cell
- ``known``: failures that a file marks
- ``failures``: groups runs with the same failure
- ``board``: a night's matrix, unknowns, detection, a cell's history
- ``page``: renders the HTML, with ``index.html``, ``index.css`` and ``index.js``

``harness.nightly.store_index`` reads the store. Imports ``harness.core`` and ``reports.html``; ``harness.nightly`` and
``harness.cli`` import it.
"""
