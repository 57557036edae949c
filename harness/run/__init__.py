"""One run: what is tested, with which settings, where, and how it is driven and judged.

- what: ``experiment`` (the decorator), ``workload_mix`` (what it can take on in addition), ``settings`` and
  their ``limits``,
  ``declared_nodes`` (how many of each role), ``registry`` (faults, checks, models and systems of a session),
  ``faults`` (which runs the options ask for, and the schedule of each), ``command_line``
- where: ``environments`` (containers, simulation), ``endpoints`` (where clients find the system), ``client_nodes``
  (clients on nodes of their own)
- how: ``attempt`` (from plain code: folder, world, verdict, report) around ``trial`` (the execution, as coroutines;
  ``trial_factory`` makes one), with ``event_logs``, ``leader_poller`` (who leads, by asking), ``sim_logs``,
  ``log_tail`` (of logs, for an error), ``progress``, ``interrupt``, ``drain_watchdog`` (a drain that would never end),
  ``process_group``,
  ``full_disk``, ``tester_stall`` (of the tester itself); what is looked at besides: ``acknowledgement_inspection`` (at
  each acknowledgement), ``invariant_assertion`` (invariants, at each event of a log), ``live_judging`` (the history,
  while it grows),
  ``quiescence`` and ``processes`` (when the workload is done); ``judging`` (the history to its judgement)
- what is left: ``run_output`` (by a run in memory), ``store`` (on disk)
- objects by name: ``import_by_name``, ``systems`` (also with a defect or settings; ``packages``: whose code it is),
  ``model_by_name``; ``drawn_settings`` (settings that are drawn)

Imports ``harness.core``, ``harness.remote``, cluster, nemesis, checkers and reports; imported by the rooms above it:
stored, search, nights, plugin, cli, and by the workloads.
"""
