"""Judges a history by a contract.

- ``contract``: which anomalies are forbidden and which are tolerated
- ``judge``: turns a history and a contract into a verdict
- ``verdict``: findings, and the three verdicts
- ``coverage``: whether enough happened for a pass, and whether the system recovered
- ``sensitivity``: the file with the shares of planted violations that the checks of a run catch
- ``health``: how many operations of each kind were answered
- ``weaknesses``: warnings about streaks of errors, repeated values and an unreached rate
- ``disturbance``: groups faults that overlap, and tells whether operations succeeded during them
- ``history_views``: gives an engine a history's files as views with the columns of the format
- ``validate``: rejects histories that cannot have happened
- ``history_integrity``: finds missing and damaged files
- ``early_checks``: which checks are valid while a run goes on
- ``cause_grouping``: groups the findings that have one cause, and names the check in which an error was raised
- ``finding_context``: the active faults and the leader at the time of a finding

The package imports ``checkers.engine`` and the declaration of checks; the harness and ``reports`` import it.
"""
