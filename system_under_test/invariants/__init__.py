"""What must hold at every instant of a simulated run, read off the event logs and the disks from outside.

- ``invariant``: what one is, a line of an event log as it reads it, and what it says when it is broken.
- By event logs alone: ``leaders`` (one leader appends in an epoch), ``controllers`` (one controller per epoch).
- ``asserted``: all of them together, as testers take them.

No broker imports it; it imports what both sides know, such as the layout of files.
"""
