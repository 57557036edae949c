"""The ``assay`` command: one module per verb, with its parser and its action.

Read ``command`` first (exit codes, errors, the parser), then any verb: ``check``, ``watch``, ``report``, ``replay``,
``shrink``, ``up``, ``heal``, ``doctor``, ``gc``, ``defects``, ``generate``, ``nightly``, ``nights``, ``summary``,
``index``, ``serve``, ``carry``, ``image``, ``search``. Each has ``add(commands)``, which registers its parser with the
function to run. ``main`` puts the verbs together. ``time_estimate`` shows how far long work is, ``check_many`` is
``assay check`` of several runs, ``no_pandas`` saves it an import, and ``serve_cluster`` keeps the cluster of ``assay
up`` alive.
``defect_verification`` does the runs of ``assay defects --verify``, in the processes of ``sessions``.

Nothing heavy is imported at the top of these modules: ``assay --help`` loads all of them. No other package imports this
one.
"""
