"""Clients that live on nodes of their own, so that consumers, too, can be stopped, killed and cut off.

On each node of role ``client`` runs one worker process (:mod:`harness.remote.server`; ``python -m harness.remote`` on a
real machine, the same coroutine in the simulation). It listens for connections, one for each logical process of the
history, and runs the workload's client as it is told to. In the harness a :class:`harness.remote.proxy.RemoteClient`
stands for it. :mod:`harness.remote.messages` is what they say to each other.

What runs on a node imports ``harness.core``, ``system_under_test.process`` and the workload's client alone.
"""

from harness.remote.messages import PORT
from harness.remote.proxy import RemoteClient, RemoteError
from harness.remote.server import argv, entry, ready

__all__ = ["PORT", "RemoteClient", "RemoteError", "argv", "entry", "ready"]
