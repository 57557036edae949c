"""ZooKeeper in the simulation: ``tree`` (data), ``ensemble`` (sessions, quorum), ``server``, ``client``, ``wire``."""
