"""A run: its experiment and settings, its environment, its execution and its judgement.

The experiment and its settings:

- ``experiment``: the decorator ``@experiment``.
- ``workload_mix``: operations, settings and client options that a workload can add.
- ``settings``: all settings of a run, and parsers for options. ``limits``: the ranges of options.
- ``declared_nodes``: possible numbers of nodes per role.
- ``registry``: faults, checks, models and systems of a session.
- ``faults``: runs that the options ask for, and the fault schedule of each.
- ``drawn_settings``: random settings of the system.
- ``command_line``: option defaults, and the command that repeats a run.

The environment:

- ``environments``: real machines, or the simulation.
- ``endpoints``: addresses at which clients find the system.
- ``client_nodes``: clients on nodes of their own.

The execution:

- ``attempt``: one run as synchronous code, with folder, world, verdict and report.
- ``trial``: the run itself, as coroutines. ``trial_factory``: creates one.
- ``event_logs``: collects the nodes' event logs.
- ``leader_poller``: asks who leads, for systems without event logs.
- ``acknowledgement_inspection``: inspects servers at each acknowledgement.
- ``invariant_assertion``: asserts invariants at each event of a log.
- ``drain_watchdog``: ends a drain that would never end.
- ``quiescence`` and ``processes``: snapshots of the system at rest, and of its processes.
- ``tester_stall``: measures how long the tester itself was paused.
- ``interrupt``: requests to stop.
- ``progress``: progress for a user. ``sim_logs``: logs of simulated processes. ``log_tail``: last log lines, for
  errors.
- ``process_group``: commands in process groups of their own. ``full_disk``: handling of a full disk.

The judgement and the results:

- ``judging``: from a history to its judgement. ``live_judging``: the same during the run.
- ``store``: results on disk. ``run_output``: results in memory.

Objects by name:

- ``import_by_name``: imports ``module:Class``. ``systems`` and ``model_by_name``: systems and models.
- ``packages``: Python packages that are a system's code.

The package imports ``harness.core``, ``harness.remote``, cluster, nemesis, checkers and reports. Cli, nightly, plugin,
search and stored of the harness import it, and so do the workloads and benchmarks.
"""
