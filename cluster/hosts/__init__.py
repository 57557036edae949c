"""A cluster of machines that a user names.

- ``inventory``: the machines, and how to reach them
- ``upkeep``: shell commands that prepare a host before a run and clean it afterwards
- ``host_command``: runs a single command on a host, also to undo a change
- ``cluster``: builds the cluster
- ``attached``: a cluster that already runs, of which only the addresses are known

Nodes are those of ``cluster.ssh``. Imports ``cluster``, ``cluster.ssh`` and the parts of ``cluster.docker`` that
provide the nodes' content. ``cluster.leftovers`` and the harness import it.
"""
