"""A cluster of containers on this machine's Docker engine.

In this order: ``engine`` (how it is reached, labels, how an entry of the journal is undone, how a container is frozen),
``layer``, ``image_contents`` (what an image has) and ``image`` (the node image), ``tools`` and ``user_images`` (images
of the user's own, with what a node needs), ``wheels`` (of Python packages), ``software`` (what each role asks for),
``image_usage`` (which system asked for which image), ``built_images`` (the images that are there), ``code_archive``
(the code that nodes are given),
``network``, ``disk`` and ``keys`` (made for each run), ``preload`` (compiles what shifts the clocks of a container and
makes its disk slow, or fail), ``cluster`` (puts them together). Nodes are those of ``cluster.ssh``.

Imports ``cluster`` and ``cluster.ssh`` alone. ``cluster.doctor``, ``cluster.leftovers`` and the harness import it.
"""

from assay.cluster.docker.cluster import DockerCluster

__all__ = ["DockerCluster"]
