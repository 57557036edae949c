"""What must hold at every instant of a simulated run, read off the event logs and the disks from outside.

- ``invariant``: what one is, a line of an event log as it reads it, and what it says when it is broken.
- What they go by: ``roles`` (of replicas, by the event logs), ``copies`` (logs on the disks).
- By event logs alone: ``leaders`` (one leader appends in an epoch), ``controllers`` (one controller per epoch).
- By the disks as well: ``watermarks`` (what counts is on each member of the in-sync set), ``agreement`` (replicas hold
  the same), ``coordinators`` (of groups: they go by their log).
- ``asserted``: all of them together, as testers take them.

No broker imports it; it imports what both sides know, such as the layout of files.
"""
