"""Machines reached over SSH: connection, main process, firewall, and the node made of them."""
