"""A cluster of containers on a Docker engine.

- ``engine``: access to the engine, labels, undo of journal entries, frozen containers
- ``engine_machine``: the machine on which the engine runs, and what containers have shown to work there
- ``ability_trials``: abilities that faults need, each tried in a container
- ``ssh_transport``: connections to an engine on another machine
- ``layer``: lower layer of the node image
- ``image_contents``: which of the programs that a node needs are in an image
- ``image``: the node image
- ``tools``: Dockerfiles that add a node's needs to a user's image
- ``user_images``: a user's own images
- ``wheels``: wheels of Python packages
- ``target_container``: runs an image without a shell, beside the node's container
- ``job_container``: runs a service that ends before the system is ready
- ``software``: the image of each role
- ``image_usage``: which systems use which image
- ``built_images``: lists and removes images
- ``code_archive``: the code that nodes get
- ``network``, ``disk``: created for each run
- ``power``: makes a disk and cuts its power, in a container of its own
- ``preload``: compiles the libraries that shift a container's clock and slow or fail its disk, and ``hold``
- ``cluster``: builds the cluster; nodes are those of ``cluster.ssh``

Imports only ``cluster`` and ``cluster.ssh``. ``cluster.doctor``, ``cluster.leftovers`` and the harness import it.
"""

from assay.cluster.docker.cluster import DockerCluster

__all__ = ["DockerCluster"]
