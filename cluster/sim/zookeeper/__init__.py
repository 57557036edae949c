"""ZooKeeper in the simulation.

- ``tree``: znodes, versions, transactions
- ``ensemble``: state shared by the servers: sessions, watches, the quorum
- ``wire``: frames of the protocol
- ``server``: one server process
- ``client``: the client for the system under test

Imports the network and the processes of ``cluster.sim``. Only ``cluster.sim`` imports it.
"""
