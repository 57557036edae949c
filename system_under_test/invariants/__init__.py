"""Invariants of a simulated run, checked at every event from the event logs and the disks.

- ``invariant``: the interface of an invariant, a line of an event log, and a violation
- ``roles``: the roles of replicas, from the event logs; ``copies``: the logs on the disks
- ``watermarks``: each in-sync member has the committed records
- ``agreement``: replicas hold the same records
- ``coordinators``: coordinators of groups follow their log
- ``invariant_set``: all of them together, as testers use them, with two small ones: one controller per controller
  epoch, and one appending leader per leader epoch

No broker imports it; it imports what both sides know, such as the layout of files.
"""
