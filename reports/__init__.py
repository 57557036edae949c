"""Reports of a run: the failure text in the terminal, and the HTML page.

The failure text:

- ``failure_text``: writes the text; a pure function
- ``evidence``: looks up the operations and faults that the text names

The page:

- ``model``: reads a run's folder into one frozen value
- ``page``: renders the HTML. ``html``: functions for all pages
- ``cycle_drawing``: the drawing of a cycle
- ``operation_drawing``: the drawing of operations side by side
- ``timeline``: the plot, drawn with ``panel`` and ``palette``
- parts of the model: ``files``, ``history_db`` (queries of the history), ``coverage`` (what was checked), ``faults``,
  ``roles`` (of the nodes), ``leadership``, ``zookeeper``, ``operations``, ``series`` (rates and latencies),
  ``node_logs`` with ``log_times``
- ``resources``: memory and disk space over time
- ``last_pass``: compares with the last passing run of the same cell

Other outputs:

- ``figures``: measurements of a run, for ``index``
- ``edn_export``: a history for Jepsen's tools
- ``index``: the page of a whole store

The package imports ``checkers`` and ``harness.core``; ``harness.run``, ``harness.stored``, ``harness.nightly`` and the
command import it.
"""
