"""Schedules: which faults strike which targets, and when, as plain data.

- ``schedule``: the steps, as planned and as resolved in a run, and the shapes of partitions
- ``target``: the targets of steps
- ``trigger``: steps that wait for an event or a number of operations
- ``draw``: a random schedule of one fault
- ``mix``: a random schedule of many faults
- ``catalogue``: the faults of a session by name

Imports ``nemesis.faults`` and ``cluster``; ``nemesis.engine`` and the harness import it.
"""
