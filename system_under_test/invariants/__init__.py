"""Invariants of a simulated run: conditions that must hold at every event, checked from event logs and disks.

- ``invariant``: the interface of an invariant, a line of an event log, and a violation
- ``roles``: the roles of replicas, from the event logs; ``copies``: the logs on the disks
- ``watermarks``: each in-sync member has the committed records
- ``agreement``: replicas have the same committed records
- ``coordinators``: the state of a group coordinator equals its log
- ``invariant_set``: all invariants together, as testers use them, with two small ones: one controller per controller
  epoch, and one appending leader per leader epoch

No broker imports this package. It imports formats that brokers and testers share, such as the layout of files.
"""
