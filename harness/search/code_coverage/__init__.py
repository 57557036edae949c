"""Code coverage of the system under test: the lines and branches that a search has reached, and those it never has.

Only ``harness.search`` and ``harness.cli`` import it. It is loaded in the fork server, so it imports only the standard
library and msgspec, and ``harness.core.printable``. Its modules, in reading order:

- ``points``: the points that can be reached in a source
- ``source``: the sources of the system, and their loaded functions
- ``counter``: probes compiled into the code, which report each point once
- ``coverage_file``: coverage as it is stored and summed up
- ``table``: coverage as lines of text
"""
