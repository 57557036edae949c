"""What a person reads of a run: the text of a failure, and the page.

The text: ``failure_text`` (pure) with ``evidence`` (looks operations and faults up), ``cut_description`` (links that a
fault has cut), ``folding`` (equal rows folded into one) and ``reasons`` (doubts that several anomalies share). The
page:
``model`` reads a run's folder into one frozen value; ``page`` makes HTML of it (``html`` is what pages share),
``timeline`` its plot, on ``panel`` and ``palette``, and ``fault_lanes`` the uppermost panel. The model's parts:
``files``,
``history_db`` (the history, queried), ``coverage`` (what was checked), ``faults``, ``roles`` (of the nodes),
``leadership``,
``zookeeper``, ``operations``, ``series`` (rates and latencies), ``node_logs`` (with ``log_times``).
``last_pass`` has the last run of the cell that passed. For others: ``figures`` (what a run measured, for ``index``),
``edn_export`` (a history for Jepsen's tools). ``index`` is the page of a whole store. Imports ``checkers`` and
``harness.core``; ``harness.run``, ``harness.stored``, ``harness.nightly`` and the command import it.
"""
