"""Clients in worker processes, outside the harness: on nodes of their own, or in a container on the nodes' network.

Faults can stop, kill and isolate clients that have nodes of their own. A container for all clients is needed where the
harness cannot reach the nodes' addresses, as with an engine in a virtual machine.

Each node of role ``client`` runs one worker process: ``python -m assay.harness.remote`` on a real machine, the same
coroutine in the simulation. It accepts one connection per logical process of the history, and runs the workload's
client on request.

- ``server``: the worker process.
- ``proxy``: ``RemoteClient``, the client's counterpart in the harness.
- ``messages``: the protocol between the two.
- ``multiplexer``: many connections over the standard input and output of a worker process.
- ``network_worker``: the harness's side of the worker process in a container.
- ``debugger``: ``breakpoint()`` in a worker process, at the user's terminal.
- ``system_calls``: methods of the system that connect to nodes, called in that process.
- ``runtime``: the clock, random numbers and ZooKeeper client that clients get in the real world.

A worker process imports ``assay.harness.core``, the protocols of ``assay.cluster``, this package and the workload's
client, and nothing else. Only ``harness.run`` imports this package.
"""

from assay.harness.remote.messages import PORT
from assay.harness.remote.proxy import RemoteClient, RemoteError

__all__ = ["PORT", "RemoteClient", "RemoteError"]
