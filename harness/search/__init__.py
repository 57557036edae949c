"""Searching for failures in the simulation, and making them small."""
