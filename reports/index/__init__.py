"""The page of a store: its runs and nights, and each failure with its first night, its rate and a command to repeat it.

Pure modules, in reading order:

- ``entry``: the data of a run
- ``trends``: the data of many nights, by cell
- ``known``: the file of known failures
- ``failures``: groups of runs with one failure
- ``board``: a night's matrix, reasons for unknown runs, detection of defects, histories of cells
- ``page``: renders the HTML, with ``index.html``, ``index.css`` and ``index.js``

``harness.nightly.store_index`` reads the store. The package imports ``harness.core`` and ``reports.html``;
``harness.nightly`` and ``harness.cli`` import it.
"""
