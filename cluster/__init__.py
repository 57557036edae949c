"""The machines of a run, and the system on them, behind one interface.

- ``node``: interface of a machine of any kind
- ``system``: every protocol that a system under test may satisfy
- ``sidecars``: additional processes on a node
- ``containers``: containers that a system describes itself
- ``compose``: systems that a Compose file describes
- ``second_copy``: a second copy of a node's main process
- ``runtime``: disk, clock, random source and event log of a simulated process
- ``rng``: all random sources of one run
- ``naming``: names of nodes
- ``deploy``: brings a system up on nodes
- ``checked_methods``: calls the methods of a deployment and names their errors
- ``zookeeper``: the cluster's own ZooKeeper
- ``docker``, ``hosts``, ``sim``: clusters of containers, of machines that a user names, and of one deterministic
  process
- ``over_ssh``: start and end of the clusters of real machines
- ``slow_steps``: progress lines for steps that take long
- ``ssh``: nodes reached by SSH
- ``docker_endpoint``: where the Docker engine answers
- ``owner``: the process that owns a container, a network or a journal
- ``operating_system``: look-ups in ``/proc``, or by psutil on other systems
- ``temporary_folders``: temporary folders whose owner is known
- ``log_excerpt``: the beginning and the end of a large log
- ``regular_files``: reads files that may be anything, such as a FIFO
- ``file_lock``: file locks among processes
- ``journal``: undo journal, written before each change
- ``leftovers``: undoes what dead sessions left behind
- ``doctor``: reports what this machine and each host can do

Imports nothing else of the project. Nemesis, workloads and harness import ``node`` and ``system``. Only the harness
imports the three kinds of cluster.
"""
