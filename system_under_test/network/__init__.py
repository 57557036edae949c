"""Sockets: the broker's side, and the calling end that clients and brokers share.

To read in this order: ``handler`` (what the rest of the broker gives to the server), ``accepted`` (one accepted
connection) on ``read_ahead``, ``server`` (the listener); ``limits`` bound what a peer may take, and
``memory`` is what large requests share. ``connection`` is the calling end.

Imports ``protocol``. All that sends or answers requests imports it.
"""
