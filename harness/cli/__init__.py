"""The ``assay`` command: one module per verb, with its parser and its action.

No other package imports this one. ``assay --help`` loads all modules, so none imports anything heavy at its top.

- ``command``: exit codes, errors and the parser, shared by all verbs; read it first
- ``main``: puts the verbs together; each has ``add(commands)``, which registers its parser and its ``run``
- verbs: ``check``, ``watch``, ``report``, ``replay``, ``shrink``, ``up``, ``heal``, ``doctor``, ``gc``, ``defects``,
  ``generate``, ``nightly``, ``nights``, ``summary``, ``index``, ``serve``, ``carry``, ``image``, ``search``,
  ``sensitivity``, ``verify``, ``init``
- ``known_images``: the images that ``assay init`` recognises
- ``check_many``: ``assay check`` for several runs
- ``time_estimate``: the progress line of long work
- ``serve_cluster``: keeps the cluster of ``assay up`` alive
- ``defect_verification``: the runs of ``assay defects --verify``
- ``sessions``: pytest sessions in processes of their own
"""
