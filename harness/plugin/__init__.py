"""The pytest plugin. ``hooks`` is what pytest loads; read it first.

``options`` (the command line), ``clusters`` (what they need before a session), ``hookspecs`` (a ``conftest.py`` adds
faults, checks, models and systems by them), ``terminal`` (progress), ``pass_remarks`` (on runs that passed),
``repeat_rounds`` (``--repeat=10min``), ``signals`` (requests to stop), ``other_plugins`` (what other plugins do to a
run), ``module_import`` (this project's own workloads, collected in a checkout).

Every pytest session of an environment loads this package: only pytest and the options are imported at the top. No other
package imports it.
"""
