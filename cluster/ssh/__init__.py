"""Machines reached over SSH.

In this order: ``connection`` (commands, files and lines of one machine), ``reach`` (how one is reached, as plain data),
``process`` (the shell of its processes) and ``running`` (all of them together, or one alone), ``second`` (a second copy
of the main one), ``firewall`` (drops and rejects by peer), ``packets`` (a queue for what it sends), ``power`` (a disk
whose power can be cut), ``filling`` (one that is full), ``data`` (folders removed, copied and put back), ``memory``
(that runs out), ``mapped`` (files that preloaded libraries have mapped) with ``clock`` (a wall clock that is shifted),
``slowness`` (a disk that is slow) and ``preloaded`` (both), ``stream`` (lines that a command prints all the while),
``node`` (made of all of them), ``logs`` (what its processes have written), ``growth`` (when they wrote it).
``cluster.docker``, ``cluster.hosts``, ``cluster.doctor``, ``cluster.journal`` and the worlds of the harness import it.
"""
