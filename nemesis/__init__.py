"""Faults: which, when, on whom, and the proof that they took effect.

- ``schedule``: what is meant to happen: steps, targets, triggers, random schedules and mixes
- ``faults``: one module per kind of fault
- ``engine``: plays a schedule on a cluster and reports what became of each fault

Imports ``cluster.node`` and the protocols of ``cluster.system`` alone. It knows no time but the running loop's, so the
same code runs on containers and in the simulation. ``harness.run``, ``stored``, ``search``, ``plugin`` and ``cli``
import it.
"""
