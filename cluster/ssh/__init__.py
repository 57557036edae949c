"""Machines reached over SSH.

In this order: ``connection`` (commands, files and lines of one machine), ``ssh_address`` (how one is reached, as plain
data),
``process`` (the shell of its processes) and ``node_processes`` (all of them together, or one alone), ``second_copy`` (a
second copy of the main one) and ``tracing`` (the changes that the copy makes), ``firewall`` (drops and rejects by
peer), ``packets`` (a queue for what it sends),
``power`` (a disk whose power can be cut), ``disk_filling`` (one that is full), ``data_folders`` (folders removed,
copied and put back),
``memory`` (that runs out), ``mapped_words`` (files that preloaded libraries have mapped) with ``clock`` (a wall clock
that is shifted),
``disk_slowness`` (a disk that is slow) and ``preloaded`` (both), ``stream`` (lines that a command prints all the
while),
``node`` (made of all of them), ``logs`` (what its processes have written), ``log_sizes`` (when they wrote it).
``cluster.docker``, ``cluster.hosts``, ``cluster.doctor``, ``cluster.journal`` and the worlds of the harness import it.
"""
