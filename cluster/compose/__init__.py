"""Systems that a Compose file describes.

- ``project``: the services of a Compose file, as Compose itself reads it
- ``system``: the system under test that consists of these services

Imports ``cluster`` only. A user imports :class:`~assay.cluster.compose.system.Compose` from ``assay``.
"""
