"""assay: a correctness tester for distributed systems that lives in pytest."""
