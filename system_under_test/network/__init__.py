"""Network layer: the broker's server, and the connections of clients and brokers to a broker.

- ``handler``: the interface between the broker and the server
- ``accepted``: one accepted connection, with buffered reads and the limit of unsent responses
- ``server``: the listener
- ``limits``: limits on a peer's use of the broker
- ``memory``: the memory that large requests share
- ``connection``: the client end of a connection

All packages that send or answer requests import this one, which imports ``protocol``.
"""
