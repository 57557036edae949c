"""Judges stored runs and histories, and repeats stored runs.

It imports ``harness.run``, ``harness.foreign``, checkers, reports and nemesis. ``harness.search``, ``harness.nightly``
and ``harness.cli`` import it.

- ``request``: the arguments of ``assay check``
- ``check_path``: ``assay check``: a run, a history folder, or a file of another tool
- ``by_contract``: opens a run or history folder and judges it by the checks in SQL
- ``by_model``: judges operations by a model. ``initial_values``: initial values of registers
- ``by_workload``: judges operations of another tool's workload. ``workload_table``: all workloads
- ``recognised_workload``: recognises the workload of a file
- ``transaction_reads``: reads of initial values, and of failed and unknown transactions
- ``certificate_file``: certificates of isolation levels as files
- ``certificate_verification``: replays such a certificate on its history
- ``keyed_transactions``: transactions under keys, each of which stands for a database of its own
- ``element_numbers``: numbers for elements that are no integers. ``drains``: drains of queues as one operation for
  each element
- ``foreign_page``: the HTML page of a file of another tool
- ``foreign_findings``: contradictory answers of a file of another tool, and the order that it supports
- ``contracts``: the contract of a stored history, and the verdict if the contract is lost
- ``batch_check``: judges many runs in one pass
- ``live_check``: judges a running run each time that it has grown
- ``effects_from_ops``: makes the effects for the SQL checks of a history that has only ``ops``
- ``effects_of_workload``: makes the effects for the SQL checks of another tool's workload
- ``set_and_queue_effects``: these effects for sets and queues
- ``repeat_arguments``: the pytest arguments that repeat a run, and errors for runs that may not be repeated
- ``replay``: repeats a stored run and compares it with the first
"""
