"""The page of a morning: all runs of a store and its nights, what broke, since when, how often, and how to repeat it.

Read ``entry`` (what is known of a run) and ``trends`` (what many nights say of the cells), then ``known`` (failures
that a file marks), ``failures`` (one failure, one entry) and ``board`` (the matrix of a night, unknowns, detection, a
cell's history): all pure. ``page`` makes HTML of them, with ``index.html``, ``index.css`` and ``index.js``. Who reads
the store is ``harness.nightly.store_index``.

Imports ``harness.core`` and ``reports.html``; ``harness.nightly`` and ``harness.cli`` import it.
"""
