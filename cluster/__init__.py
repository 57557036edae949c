"""The machines of a run, and the system on them, behind one interface.

In this order: ``node`` (what a machine can do, of any kind) with ``commands`` (what a user runs on one), ``system``
(every protocol that a system under test may satisfy) with ``node_counts`` (of each role), ``membership`` (servers that
leave and join), ``sidecars`` (more than one process on a node), ``second_copy`` (a second copy of the main process) and
``inspection`` (what it lets be seen of itself), ``runtime`` (what a simulated process gets), ``rng`` (all that a run
leaves to it), ``naming`` (how nodes are called) and ``addresses`` (how they are written), ``gather`` (steps side by
side), ``deploy`` (brings a system up on nodes) with ``checked_hooks`` (what it is asked for, its errors named),
``zookeeper`` (the cluster's own ZooKeeper). Three kinds of cluster give such nodes: ``docker`` (containers), ``hosts``
(machines that a user names), both ``over_ssh`` (how they begin and end) and reached by ``ssh``, and ``sim`` (one
deterministic process). What a run does to machines is undone in any case: ``owner`` (whose is it), ``journal`` (what is
to be undone, written before it is done), ``leftovers``. ``doctor`` says what this machine can do, in
``doctor_finding``s.

Imports nothing else of the project. Nemesis, workloads and harness import ``node`` and ``system``; of the kinds only
the harness knows.
"""
