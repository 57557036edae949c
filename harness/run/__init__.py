"""A run: its experiment and settings, its environment, its execution and its judgement.

The experiment and its settings:

- ``experiment``: the decorator ``@experiment``.
- ``workload_mix``: operations, settings and client options that a workload can add.
- ``settings``: all settings of a run, and parsers for options. ``limits``: the ranges of options.
- ``declared_nodes``: possible numbers of nodes per role.
- ``registry``: faults, checks, models and systems of a session.
- ``faults``: runs that the options ask for, and the fault schedule of each.
- ``command_line``: option defaults, and the command that repeats a run.

The environment:

- ``environments``: real machines, or the simulation.
- ``cluster_abilities``: faults that a cluster cannot inject, found before it starts.
- ``system_on_network``: a system whose network calls run in a container on the nodes' network.
- ``imported_packages``: the Python packages that a test's modules import.
- ``client_nodes``: clients on nodes of their own, and the addresses at which clients find the system.

The execution:

- ``attempt``: one run as synchronous code, with folder, world, verdict and report.
- ``trial``: the run itself, as coroutines.
- ``event_logs``: collects the nodes' event logs.
- ``observers``: record what operations do not show: leaders, invariants, processes, snapshots of the system at rest,
  and how long the tester itself was paused.
- ``resource_recorder``: samples memory and disk space.
- ``drain_watchdog``: ends a drain that would never end. ``loop_watchdog``: ends a simulation whose code never awaits.
- ``interrupt``: requests to stop.
- ``progress``: progress for a user. ``node_logs``: logs of simulated processes, and the last log lines for errors.
- ``process_group``: commands in process groups of their own. ``full_disk``: handling of a full disk.

The judgement and the results:

- ``judging``: from a history to its judgement. ``live_judging``: the same during the run.
- ``store``: results on disk or in memory.

Objects by name:

- ``import_by_name``: imports ``module:Class``, models too. ``systems``: systems, their defects and settings.

The package imports ``harness.core``, ``harness.remote``, cluster, nemesis, checkers and reports. Cli, nightly, plugin,
search and stored of the harness import it, and so do the workloads and benchmarks.
"""
