"""A cluster of containers on this machine's Docker engine."""

from cluster.docker.cluster import DockerCluster

__all__ = ["DockerCluster"]
