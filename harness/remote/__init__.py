"""Clients on nodes of their own, so that faults can stop, kill and isolate consumers, too.

Each node of role ``client`` runs one worker process: ``python -m assay.harness.remote`` on a real machine, the same
coroutine in the simulation. It accepts one connection per logical process of the history, and runs the workload's
client on request.

- ``server``: the worker process.
- ``proxy``: ``RemoteClient``, the client's counterpart in the harness.
- ``messages``: the protocol between the two.
- ``runtime``: the clock, random numbers and ZooKeeper client that clients get in the real world.

A worker process imports ``assay.harness.core``, this package and the workload's client, and nothing else. Only
``harness.run`` imports this package.
"""

from assay.harness.remote.messages import PORT
from assay.harness.remote.proxy import RemoteClient, RemoteError

__all__ = ["PORT", "RemoteClient", "RemoteError"]
