"""Sensitivity of a run: which violations would its history have shown? ``assay sensitivity RUN``. In reading order:

- ``plant``: the declaration of a kind of violation, and the claims that it makes wrong.
- ``object_plants``, ``register_plants``, ``log_plants``, ``group_plants``, ``transaction_plants``: the plants.
- ``catalogue``: all plants, and the reasons why other anomalies have none.
- ``measure``: draws claims of a run, plants violations into copies of its history, and judges the copies.
- ``result``: the shares that were caught, as text and JSON.

Nothing of a stored run changes. ``reports`` draws the table of ``sensitivity.json``, if the run folder has it.
"""
