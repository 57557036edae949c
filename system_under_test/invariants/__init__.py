"""Invariants of a simulated run, checked at every event from the event logs and the disks.

- ``invariant``: the interface of an invariant, a line of an event log, and a violation
- ``roles``: the roles of replicas, from the event logs; ``copies``: the logs on the disks
- ``leaders``: one leader appends in an epoch; ``controllers``: one controller per epoch; both from event logs alone
- ``watermarks``: each in-sync member has the committed records
- ``agreement``: replicas hold the same records
- ``coordinators``: coordinators of groups follow their log
- ``asserted``: all of them together, as testers use them

No broker imports it; it imports what both sides know, such as the layout of files.
"""
