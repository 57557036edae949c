"""The built-in faults, one module per kind.

Each class with a ``description``, and each row of a class's ``descriptions``, is a fault of the catalogue.

Interface:

- ``fault``: probe, inject, observe, heal, prove; and how a fault affects its targets
- ``abilities``: optional abilities of nodes that faults need
- ``varied``: base of the faults that come in several variants

Processes and machines:

- ``process``: base of the faults of processes
- ``kill``: SIGKILL, lack of memory, power loss
- ``stop``: SIGSTOP, or the whole machine frozen
- ``restart``: a clean end with a new start, also of a leader that hands its leadership over first
- ``upgrade``: a restart with a new image
- ``hold``: a process stops itself at an event
- ``start_twice``: a second copy of a process
- ``cascading_failover``: one leader after the other
- ``rolling_outage``: all servers down and up again
- ``zookeeper``: ZooKeeper's processes
- ``consumer``: client nodes
- ``clock``: a machine's wall clock

Networks and sessions:

- ``cut_fault``: base of the faults that cut links
- ``partition``, ``one_way``: cut links, in both directions or one
- ``link_set``, ``cut_shape_names``: any set of links, and its name
- ``connection``: a single connection
- ``packets``: late, lost or duplicated packets
- ``session_expiry``: expired ZooKeeper sessions

Disks and data:

- ``disk_full``, ``slow_disk``, ``disk_error``: full, slow and failing disks
- ``kill_at_disk``: a kill during an fsync, or at a change to the disk
- ``file_damage``, ``data_loss``: damaged files, lost or old data
- ``move``: moved replicas
- ``membership``, ``membership_actions``: servers that leave and join

Imports ``cluster``; ``nemesis.schedule``, ``nemesis.engine`` and the harness import it.
"""
