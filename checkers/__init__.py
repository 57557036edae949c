"""Proves from a history that promises were kept, or names the operations that say otherwise.

Read ``contract`` (what is forbidden) and ``verdict`` (what comes out), then ``judge`` (from a history to a verdict). A
check is declared with ``check`` and ``sql``: SQL views over the history's tables, and words for what they find.
``families`` lists all built-in checks; the families have folders of their own: ``log``, ``register``, ``objects``
(counters, max registers, sets, queues, banks, ids), ``groups`` and ``transactions``; ``refusals`` looks at several,
``lost_changes`` is its mirror image.

Around them: ``engine`` (SQLite, DuckDB, Spark), ``source`` (a history's files as views), ``damage`` and ``validate``
(whole files, and rows that could have happened), ``coverage`` (did enough happen, and did the system recover),
``early`` (what can be said of a run that is not over), ``by_key`` (what can be asked of some keys at a time),
``context`` (faults and leader at the time of a finding), ``causes`` (which findings are one), ``doubtful`` (why a
verdict is unknown), ``times`` (how a reader takes them), ``attribution`` (in which check an error was raised).
What no workload has to record itself: ``disturbance`` (faults, and what clients got done in each), ``progress`` (of
clients that live on), ``inspection`` (servers at the instant of an acknowledgement), ``processes`` (those that ended by
themselves), ``rest`` (looks at a system at rest), ``invariants`` (of the system's own, asserted while a run goes on).
``linearizability`` searches for a legal order where no SQL rule exists.

Imports ``harness.core`` alone; the harness, ``reports`` and ``workloads`` import it.
"""
