"""Machines reached over SSH.

- ``connection``: commands, files and streamed lines of one machine
- ``command_stream``: a local command that carries the connection
- ``ssh_address``: how to reach a machine, as plain data
- ``process``: shell commands for one process
- ``node_processes``: all processes of a node, or one alone
- ``target``: files and starts of processes of an image without a shell
- ``second_copy``: a second copy of the main process
- ``tracing``: counts the changes that the copy makes
- ``firewall``: drops and rejects packets by peer
- ``packets``: delays, loses and duplicates outgoing packets
- ``power``: a disk whose power can be cut
- ``disk_filling``: a full disk
- ``data_folders``: removes, copies and restores folders
- ``memory``: exhausts memory
- ``preloaded``: shifted clocks, slow and failing disks, by preloaded libraries
- ``clock_offset``: how far a machine's clocks are ahead
- ``stream``: lines of a long-running command
- ``node``: the node, built from all of these
- ``usage``: the memory and the disk space that a node uses
- ``logs``: the sizes of the logs over time, and the collection of the logs

``cluster.docker``, ``cluster.hosts``, ``cluster.doctor``, ``cluster.journal`` and ``harness.run`` import it.
"""
