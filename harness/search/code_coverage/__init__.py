"""Which lines and branches of the system under test a search has reached, and which it never has.

In this order: ``points`` (what there is to reach in a source), ``source`` (which sources are the system's, and what of
them is loaded), ``counter`` (what says of each point once that it was reached), in two ways: ``probe_counter``
(counters of our own in the code, where there is no ``sys.monitoring``) and ``monitoring_counter`` (that, with
``jumps``: what a line or a jump says); ``counter_selection`` (which of them), ``coverage_file`` (what is written to the
store, and summed up) and
``table`` (how it is shown).

Only ``harness.search`` and ``harness.cli`` import it. It is loaded where examples are played, so it imports the
standard library, msgspec and ``cluster.system`` alone.
"""
