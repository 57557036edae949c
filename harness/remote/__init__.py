"""Clients that live on nodes of their own, so that consumers, too, can be stopped, killed and cut off.

On each node of role ``client`` runs one worker process, ``server`` (``python -m assay.harness.remote`` on a real
machine, the same coroutine in the simulation). It listens for connections, one for each logical process of the history,
and runs the workload's client on request. In the harness a ``RemoteClient`` (``proxy``) stands for it. ``messages`` is
what they say to each other, and ``runtime`` what clients get from the real world.

A worker process imports ``assay.harness.core``, this package and the workload's client, and nothing else. Imported by
``harness.run`` alone.
"""

from assay.harness.remote.messages import PORT
from assay.harness.remote.proxy import RemoteClient, RemoteError

__all__ = ["PORT", "RemoteClient", "RemoteError"]
