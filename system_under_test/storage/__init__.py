"""Files of a broker: the real file system behind ``runtime.Storage``, and atomic replacement of a file.

In reading order:

- ``local``: files, fsync, and sending large ranges to a connection
- ``atomic``: replaces a small file

The log, replication and the real process import this package. It imports only ``runtime``.
"""
