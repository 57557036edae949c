"""A cluster of machines that a user names.

In this order: ``inventory`` (which they are, and how they are reached), ``upkeep`` (what is done to a host before a run
and after it), ``host_command`` (a command on a host, also to undo), ``cluster`` (puts them together), ``doctor`` (what
each host can do). Nodes are those of ``cluster.ssh``. ``attached``: a cluster that runs already, of addresses alone.

Imports ``cluster``, ``cluster.ssh`` and, of ``cluster.docker``, what the nodes are given. ``cluster.leftovers`` and the
harness import it.
"""
