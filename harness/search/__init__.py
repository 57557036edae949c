"""Searches for failing runs in the simulation, and shrinks failing runs.

Only ``harness.plugin`` and ``harness.cli`` import this package. Its modules, in reading order:

- ``example``: a run as plain data
- ``strategies``: Hypothesis strategies that draw examples
- ``player``: plays an example in this process, with a folder for the run
- ``fork_player``: plays many examples in memory, with the help of ``fork_server``
- ``fork_server``: the fork server, a process that plays examples and forks at points worth branching from
- ``fork_supervisor``: starts a new fork server when one had to be ended
- ``coverage_features``: features of a run, which steer the search
- ``archive``: chooses the fork point to branch from
- ``branch_faults``: draws the faults of a branch
- ``explore``: one search
- ``workers``: a search on each core
- ``exploration``: ``--explore`` as a test
- ``coverage_report``: what searches reached and never reached; ``coverage_page``: its HTML page
- ``code_coverage``: the lines and branches of the system that searches reached
- ``shrink``: minimises a failing example, and writes the result for the report
- ``shrink_run``: ``assay shrink``, for a stored run
"""
