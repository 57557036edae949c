"""The built-in faults, one module per kind.

``fault`` is the interface that all of them implement: probe, inject, observe, heal, prove. ``impact`` says in which way
a fault harms its targets.

- processes, on ``process``: ``kill``, ``stop``, ``restart``, ``hold``, ``start_twice``, ``cascading_failover``,
  ``rolling_outage``, ``controlled_shutdown``, ``zookeeper``
- consumers: ``consumer``
- links, on ``cut_fault``: ``partition``, ``one_way``, with ``link_set`` and ``cut_shape_names``
- connections and packets: ``connection``, ``packets``
- sessions: ``session_expiry``
- files and disks: ``file_damage``, ``data_loss``, ``disk_full``, ``slow_disk``, ``disk_error``, ``kill_in_fsync``,
  ``kill_in_write``
- machines: ``freeze``, ``power_loss``, ``clock``, ``memory``
- replicas and members: ``move``, ``membership`` with ``membership_actions``

Imports ``cluster``; ``nemesis.schedule``, ``nemesis.engine`` and the harness import it.
"""
