"""Network layer: the broker's server, and the client end that clients and brokers share.

- ``handler``: the interface between the broker and the server
- ``accepted``: one accepted connection, with buffered reads and the limit of unsent responses
- ``server``: the listener
- ``limits``: limits on what a peer may use
- ``memory``: the memory that large requests share
- ``connection``: the client end

The package imports ``protocol``. Everything that sends or answers requests imports it.
"""
