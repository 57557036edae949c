"""A whole cluster in one process, in virtual time, the same for the same seed.

Time and tasks: ``loop`` (the event loop), ``process`` (what kill and stop act on). Network: ``network`` (hosts and
links), ``packet_shaping`` (late and lost packets), ``server``, ``transport`` (one end of a connection) on ``sender``
(its sending side). Files: ``filesystem`` (what is seen and what is durable), ``disk_slowness``, ``disk_strikes`` (a
disk that fails),
``snapshot`` (what is noted of files), ``disk``. Put together: ``runtime`` (what a process gets), ``disk_faults`` (what
can be done to a node's disk), ``second_copy`` (a second copy of a process), ``node``, ``cluster``; ``zookeeper`` is a
package of its own.

It uses no clock, no thread, no random numbers but those of the seed; a test holds all code that runs here to that.
Imports ``cluster.node``, ``cluster.system`` and ``cluster.naming``; only ``harness.run`` imports it.
"""
