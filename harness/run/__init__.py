"""One run: what is tested, with which settings, where, and how it is driven and judged.

- what: ``experiment`` (the decorator), ``workload_mix`` (what it can take on in addition), ``settings`` and
  their ``limits``,
  ``declared_nodes`` (how many of each role), ``registry`` (faults, checks, models and systems of a session),
  ``faults`` (which runs the options ask for, and the schedule of each), ``command_line``
- where: ``worlds`` (containers, simulation), ``endpoints`` (where clients find the system), ``client_nodes``
  (clients on nodes of their own)
- how: ``attempt`` (from plain code: folder, world, verdict, report) around ``trial`` (the execution, as coroutines;
  ``made`` makes one), with ``event_logs``, ``sightings`` (who leads, by asking), ``sim_logs``, ``last_lines`` (of
  logs, for an error), ``progress``, ``interrupt``, ``endless`` (a drain that would never end), ``process_group``,
  ``full_disk``, ``standstill`` (of the tester itself); what is looked at besides: ``inspecting`` (at each
  acknowledgement), ``asserting`` (invariants, at each event of a log), ``watched`` (the history, while it grows),
  ``rest`` and ``processes`` (when the workload is done); ``judging`` (the history to its judgement)
- what is left: ``keeping`` (by a run in memory), ``store`` (on disk)
- objects by name: ``named``, ``systems`` (also with a defect or settings; ``packages``: whose code it is),
  ``model_by_name``; ``variant`` (settings that are drawn)

Imports ``harness.core``, ``harness.remote``, cluster, nemesis, checkers and reports; imported by the rooms above it:
stored, search, nights, plugin, cli, and by the workloads.
"""
