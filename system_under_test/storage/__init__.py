"""Files of a broker: the real file system behind ``runtime.Storage``, and the one way to replace a file safely.

To read in this order: ``local`` (files, and making them durable), ``sendfile`` (large ranges to a connection),
``atomic`` (replacing a small file). Imports ``runtime`` alone; the log, replication and the real process import it.
"""
