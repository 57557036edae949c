"""Plays a schedule on a cluster.

- ``conductor``: injects, observes and heals each step
- ``step_list``: the steps of the schedule and of the branches that have begun
- ``waiting_steps``: steps that wait for their triggers
- ``stop_at_event``: processes that stop themselves at an event, so that a step strikes exactly there
- ``active_faults``: which faults are active, and which nodes the next one may strike
- ``recovery``: waits after a heal until the targets serve again
- ``cut_ledger``: which links are cut, and by which fault
- ``guarded_call``: turns an error of a fault into a message
- ``reporter``: reports faults to the history

Imports ``nemesis.schedule`` and ``nemesis.faults``; the harness imports it.
"""
