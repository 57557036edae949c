"""The nemesis: plans faults, injects them into a cluster, and proves that they took effect.

- ``schedule``: planned steps, targets, triggers, random schedules and mixes
- ``faults``: one module per kind of fault
- ``engine``: plays a schedule on a cluster and reports the outcome of each fault

Imports only ``cluster.node`` and the protocols of ``cluster.system``. It only uses the running loop's time, so the same
code runs on containers and in the simulation. ``harness.run``, ``stored``, ``search``, ``plugin`` and ``cli`` import
it.
"""
