"""Sensitivity of a run: which violations would its history have shown? ``assay sensitivity RUN``. In reading order:

- ``plant``: the declaration of a kind of violation, and the claims that it makes wrong.
- ``object_plants``, ``register_plants``, ``log_plants``, ``group_plants``, ``transaction_plants``, ``model_plants``:
  the plants.
- ``packing``: packs copies into one history, and finds the copies in which a check finds a violation.
- ``measure``: lists all plants. It draws claims of a run, plants violations into copies of its history, and judges
  the copies.

``checkers.judging.sensitivity`` has the result, which ``reports`` and ``nightly`` read. The package imports the
history of ``harness.core`` and ``checkers``; ``harness.cli`` imports it.
"""
