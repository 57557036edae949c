"""A cluster of containers on this machine's Docker engine."""

from assay.cluster.docker.cluster import DockerCluster

__all__ = ["DockerCluster"]
