"""Runs and histories as they lie on disk: judged again, and done again.

- ``request``: what ``assay check`` is asked; ``check_path``: chooses by what lies there
- ``by_contract``: a run or history folder, opened and judged by the checks in SQL; ``by_model``: judged by a model
- ``contracts``: the contract of a stored history, and what is certain of a run that has lost it
- ``batch_check``: many of them in one pass
- ``live_check``: a run that goes on, judged each time that it has grown
- ``effects_from_ops``: what the SQL checks need of a history that has only ``ops``
- ``by_workload``: a file of another tool, judged by the checks in SQL; ``effects_of_workload``: what they read of it
- ``repeat_arguments``: what pytest is given to do a run again, and what is refused
- ``replay``: a stored run done again, and compared with the first time

Imports ``harness.run`` and ``harness.foreign``, and checkers, reports and nemesis; imported by ``harness.search``,
``harness.nightly`` and ``harness.cli``.
"""
