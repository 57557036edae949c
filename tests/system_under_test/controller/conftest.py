"""Makes ``moving_partition`` importable: a name unique among all tests, since folders are no packages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
