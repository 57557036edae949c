"""The broker's side of the sockets.

Modules: ``handler`` (what the rest of the broker gives to the server), ``limits``, ``budget`` (memory shared by all
connections), ``session`` (one connection), ``server`` (the listener).
"""
