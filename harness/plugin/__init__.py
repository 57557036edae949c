"""The pytest plugin. pytest loads ``hooks``; read it first.

- ``hooks``: options, one test per combination of faults, and the fixture that runs a trial.
- ``options``: the command line.
- ``clusters``: prerequisites of each kind of cluster, checked before a session.
- ``hookspecs``: hooks by which a ``conftest.py`` adds faults, checks, models and systems.
- ``terminal``: progress lines.
- ``usage_errors``: usage errors that show only while tests are collected or set up.
- ``pass_remarks``: remarks on runs that passed.
- ``repeat_rounds``: ``--repeat=10min``.
- ``signals``: requests to stop.
- ``other_plugins``: effects of other plugins on a run.
- ``stored_runs``: stored runs are not collected.
- ``module_import``: collects this project's own workloads in a checkout.

Every pytest session of an environment loads this package, so modules import only pytest and the options at the top. No
other package imports it.
"""
