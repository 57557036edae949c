"""Groups of consumers: membership, generations and committed offsets, kept by a coordinator in the offsets topic."""
